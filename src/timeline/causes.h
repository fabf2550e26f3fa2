// What the actions of a timeline wait for, found again from when they ran.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "dapple/timeline/timeline.h"

namespace dapple {

/// Something that had to happen before an action: another action, at the moment that counts.
struct Cause {
  std::size_t action = 0;  // position in Timeline::actions
  Duration moment;         // its end, or the action's start where only a part of it was waited for
};

class Causes {
 public:
  /// Keeps a reference to the timeline. O(actions + stages).
  explicit Causes(const Timeline& timeline);

  /// Positions of a lane's actions on one stream, in their order.
  const std::vector<std::uint32_t>& line(LaneIndex lane, Stream stream) const;

  /// The transfer that brought an action's input, and the computation that made that input, on
  /// whatever lane; nothing for an action without such an input. Of several lanes that each made a
  /// part of it, the one that ended last. O(lanes of the stage).
  std::optional<std::size_t> transfer_to(std::size_t action) const;
  std::optional<std::size_t> producer_for(std::size_t action) const;

  /// Calls visit(transfer) for every transfer that brought a part of it. O(lanes of the stage).
  template <class Visit>
  void visit_transfers_to(std::size_t action, const Visit& visit) const {
    visit_needed(action, false, visit);
  }

  /// Calls visit(lane) for every computation that takes in what a transfer brings, with its lane.
  /// O(lanes of the stage).
  template <class Visit>
  void visit_receivers_of(std::size_t transfer, const Visit& visit) const;

  /// The reductions that an optimizer step waits for. O(log actions + reductions of the lane).
  std::vector<std::size_t> reductions_before(std::size_t step) const;

  /// What an action waited for last; nothing where nothing comes before it. O(log actions + lanes
  /// of the stage) and, for a step, O(reductions of the lane).
  std::optional<Cause> of(std::size_t action) const;

 private:
  struct Key {
    ActionKind kind;
    StageIndex stage;
    std::int32_t index = 0;
  };
  /// Actions of one kind on one stage: those with the n-th index are [first[n], first[n + 1]).
  struct Group {
    std::vector<std::uint32_t> first;
    std::optional<LaneIndex> lane;  // of all of them
    bool is_on_several_lanes = false;
  };
  /// Positions in by_key_.
  struct Range {
    std::size_t begin = 0;
    std::size_t end = 0;
  };

  const TimedAction& at(std::size_t action) const { return timeline_.actions[action]; }
  Key key_of(std::size_t action) const;
  /// Numbers from zero, close together where what is numbered is not: a file may say anything.
  class Numbering {
   public:
    void collect(std::int32_t value) { most_ = std::max(most_, value); }
    /// Requires: all were collected. O(count), or O(count log count) where they are far apart.
    template <class ValueOf>
    void finish(std::size_t count, const ValueOf& value_of) {
      is_dense_ = static_cast<std::size_t>(most_) <= count;
      if (is_dense_) return;
      for (std::size_t i = 0; i < count; ++i) values_.push_back(value_of(i));
      std::sort(values_.begin(), values_.end());
      values_.erase(std::unique(values_.begin(), values_.end()), values_.end());
    }
    std::size_t size() const {
      return is_dense_ ? static_cast<std::size_t>(most_) + 1 : values_.size();
    }
    /// size() for what there is none of.
    std::size_t of(std::int32_t value) const {
      if (is_dense_) return value < 0 || value > most_ ? size() : static_cast<std::size_t>(value);
      const auto found = std::lower_bound(values_.begin(), values_.end(), value);
      return found == values_.end() || *found != value
                 ? size()
                 : static_cast<std::size_t>(found - values_.begin());
    }

   private:
    std::int32_t most_ = 0;
    bool is_dense_ = true;
    std::vector<std::int32_t> values_;
  };

  /// Requires: there is such a stage.
  std::size_t group_of(const Key& key) const {
    return static_cast<std::size_t>(key.kind) * stages_.size() + stages_.of(key.stage.value);
  }
  void fill_lines();
  void index_by_key();
  Range with(const Key& key) const;
  bool feeds(LaneIndex from, LaneIndex to) const;
  template <class Visit>
  void visit_needed(std::size_t action, bool computed, const Visit& visit) const;
  std::optional<std::size_t> last_needed(std::size_t action, bool computed) const;
  std::size_t place_in_line(std::size_t action) const;
  std::optional<std::size_t> previous(std::size_t action) const;
  std::vector<std::size_t> makers_of_bucket(std::size_t reduction) const;
  std::vector<std::size_t> candidates(std::size_t action) const;

  const Timeline& timeline_;
  Numbering stages_;
  Numbering indices_;
  std::vector<Group> groups_;          // by kind and stage
  std::vector<std::uint32_t> by_key_;  // positions of actions by key, then in the timeline's order
  std::vector<std::vector<std::vector<std::uint32_t>>> lines_;  // by lane, by stream
};

/// An action of a stage needs one of the same index, so many stages further on.
struct StageNeed {
  ActionKind action;
  std::int32_t stages_on;
  ActionKind needed;
};
inline constexpr StageNeed kNeeds[] = {
    {ActionKind::Forward, -1, ActionKind::SendActivation},
    {ActionKind::Forward, -1, ActionKind::Forward},
    {ActionKind::Backward, 1, ActionKind::SendGradient},
    {ActionKind::Backward, 1, ActionKind::Backward},
    {ActionKind::Backward, 1, ActionKind::InputGradient},
    {ActionKind::InputGradient, 1, ActionKind::SendGradient},
    {ActionKind::InputGradient, 1, ActionKind::Backward},
    {ActionKind::InputGradient, 1, ActionKind::InputGradient},
    {ActionKind::WeightGradient, 0, ActionKind::InputGradient},
    {ActionKind::SendActivation, 0, ActionKind::Forward},
    {ActionKind::SendGradient, 0, ActionKind::Backward},
    {ActionKind::SendGradient, 0, ActionKind::InputGradient},
};

/// What the action needs from the stage that makes it: of every lane that makes a part of it.
template <class Visit>
void Causes::visit_needed(std::size_t action, bool computed, const Visit& visit) const {
  const Key own = key_of(action);
  const LaneIndex to = at(action).lane;
  for (const StageNeed& need : kNeeds) {
    const bool is_computed = stream_of(need.needed) == Stream::Compute;
    if (need.action != own.kind || is_computed != computed) continue;
    const Range range =
        with({need.needed, StageIndex{own.stage.value + need.stages_on}, own.index});
    bool is_found = false;
    for (std::size_t e = range.begin; e < range.end; ++e) {
      const LaneIndex from = at(by_key_[e]).lane;
      if (need.stages_on == 0 ? from != to : !feeds(from, to)) continue;
      visit(std::size_t{by_key_[e]});
      is_found = true;
    }
    if (is_found) return;
  }
}

template <class Visit>
void Causes::visit_receivers_of(std::size_t transfer, const Visit& visit) const {
  const Key own = key_of(transfer);
  const LaneIndex from = at(transfer).lane;
  for (const StageNeed& need : kNeeds) {
    if (need.needed != own.kind) continue;
    const Key key{need.action, StageIndex{own.stage.value - need.stages_on}, own.index};
    const Range range = with(key);
    if (range.begin == range.end) continue;
    const Group& group = groups_[group_of(key)];
    // Mostly there is one lane: then the actions themselves need not be looked at.
    if (!group.is_on_several_lanes) {
      if (feeds(from, *group.lane)) visit(*group.lane);
      continue;
    }
    for (std::size_t e = range.begin; e < range.end; ++e) {
      const LaneIndex to = at(by_key_[e]).lane;
      if (feeds(from, to)) visit(to);
    }
  }
}

}  // namespace dapple
