// Reconstructs from the times of a timeline what each action waited for.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "dapple/timeline/timeline.h"

namespace dapple {

/// The action that another action waited for.
struct Cause {
  // Its position in Timeline::actions.
  std::size_t action = 0;
  // Its end, or the start of the waiting action if that waited for only a part of it.
  Duration moment;
};

class Causes {
 public:
  /// Keeps a reference to the timeline. Requires: the stage of each action is one of its lane's.
  /// O(actions + stages) if every stage processes micro-batches in their order, else
  /// O(actions log actions).
  explicit Causes(const Timeline& timeline);

  /// Returns the positions of a lane's actions on one stream, in their order.
  const std::vector<std::uint32_t>& line(LaneIndex lane, Stream stream) const;

  /// Returns the transfer that brought an action's input, or the computation that made that input,
  /// on any lane; nothing for an action without such an input. If several lanes made a part of it,
  /// the one that ended last. O(lanes of the stage).
  std::optional<std::size_t> transfer_to(std::size_t action) const;
  std::optional<std::size_t> producer_for(std::size_t action) const;

  /// Calls visit(transfer) for every transfer that brought a part of an action's input.
  /// O(lanes of the stage).
  template <class Visit>
  void visit_transfers_to(std::size_t action, const Visit& visit) const {
    visit_needed(action, false, visit);
  }

  /// Calls visit(lane) for every computation that consumes what a transfer brings, with its lane.
  /// O(lanes of the stage).
  template <class Visit>
  void visit_receivers_of(std::size_t transfer, const Visit& visit) const;

  /// Returns the reductions that an optimizer step waits for.
  /// O(log actions + reductions of the lane).
  std::vector<std::size_t> reductions_before(std::size_t step) const;

  /// Returns what an action waited for last, or nothing if it waited for no action.
  /// O(log actions + lanes of the stage) and, for a step, O(reductions of the lane).
  std::optional<Cause> of(std::size_t action) const;

 private:
  struct Key {
    ActionKind kind;
    StageIndex stage;
    std::int32_t index = 0;
  };
  struct Entry {
    // The index of the action: its micro-batch, bucket or tie.
    std::int32_t index = 0;
    // The position in Timeline::actions.
    std::uint32_t action = 0;
  };
  /// The actions of one kind on one stage, by index; those of one index in the timeline's order.
  struct Group {
    std::vector<Entry> entries;
    // The number of entries of each index from zero on, if all indices have equally many; else 0.
    std::size_t repeats = 0;
    // The lane of the first entry.
    std::optional<LaneIndex> lane;
    bool is_on_several_lanes = false;

    std::span<const Entry> with(std::int32_t index) const;
  };

  const TimedAction& at(std::size_t action) const { return timeline_.actions[action]; }
  Key key_of(std::size_t action) const;
  std::size_t place_of(const Key& key) const;
  static std::size_t repeats_of(const std::vector<Entry>& entries);
  /// Returns null for a stage that no lane has.
  const Group* group_of(const Key& key) const;
  void fill_lines();
  void index_by_key();
  std::span<const Entry> with(const Key& key) const;
  bool feeds(LaneIndex from, LaneIndex to) const;
  template <class Visit>
  bool visit_made_by(StageIndex stage, const Key& needed, LaneIndex to, const Visit& visit) const;
  template <class Visit>
  void visit_needed(std::size_t action, bool computed, const Visit& visit) const;
  template <class Visit>
  void visit_skipped_from(StageIndex stage, std::int32_t stages_on, const Visit& visit) const;
  std::optional<std::size_t> last_needed(std::size_t action, bool computed) const;
  std::size_t place_in_line(std::size_t action) const;
  std::optional<std::size_t> previous(std::size_t action) const;
  std::vector<std::size_t> makers_of_bucket(std::size_t reduction) const;
  std::vector<std::size_t> candidates(std::size_t action) const;
  void add_latest_ended(LaneIndex lane, Duration until, std::vector<std::size_t>& found) const;

  const Timeline& timeline_;
  // Timeline::skips: each receiver with who sends to it, and each sender with who receives,
  // ascending.
  std::vector<std::pair<StageIndex, StageIndex>> by_receiver_;
  std::vector<std::pair<StageIndex, StageIndex>> by_sender_;
  // The stages of the lanes, and the first stage, whose key is used for all tied gradients.
  std::vector<StageIndex> stages_;
  // By stage and kind.
  std::vector<Group> groups_;
  // By lane and stream.
  std::vector<std::vector<std::vector<std::uint32_t>>> lines_;
};

/// Says that `action` of a stage needs the `needed` action of the same index, `stages_on` stages
/// further on.
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

/// The rows of kNeeds for one kind of action whose needed actions are computations, or transfers.
struct NeedRows {
  std::size_t begin = 0;
  std::size_t end = 0;
};
constexpr NeedRows need_rows(ActionKind action, bool computed) {
  const auto is_one = [&](const StageNeed& need) {
    return need.action == action && (stream_of(need.needed) == Stream::Compute) == computed;
  };
  NeedRows rows;
  while (rows.begin < std::size(kNeeds) && !is_one(kNeeds[rows.begin])) ++rows.begin;
  rows.end = rows.begin;
  while (rows.end < std::size(kNeeds) && is_one(kNeeds[rows.end])) ++rows.end;
  return rows;
}
inline constexpr std::size_t kActionKinds = static_cast<std::size_t>(ActionKind::OptimizerStep) + 1;
/// The results of need_rows() by kind of action, first for transfers, then for computations.
inline constexpr auto kNeedRows = [] {
  std::array<std::array<NeedRows, 2>, kActionKinds> rows;
  for (std::size_t kind = 0; kind < kActionKinds; ++kind) {
    for (const bool computed : {false, true}) {
      rows[kind][computed ? 1 : 0] = need_rows(static_cast<ActionKind>(kind), computed);
    }
  }
  return rows;
}();

/// Calls visit(stage) for every stage, but for the neighbour, from which a stage gets activations
/// (stages_on < 0), or gradients. O(log skips + stages visited).
template <class Visit>
void Causes::visit_skipped_from(StageIndex stage, std::int32_t stages_on,
                                const Visit& visit) const {
  if (stages_on == 0) return;
  const std::vector<std::pair<StageIndex, StageIndex>>& pairs =
      stages_on < 0 ? by_receiver_ : by_sender_;
  auto pair = std::lower_bound(pairs.begin(), pairs.end(), std::pair{stage, StageIndex{0}});
  for (; pair != pairs.end() && pair->first == stage; ++pair) visit(pair->second);
}

/// Calls visit() for the needed actions on lanes of `stage` that feed `to`. Returns whether there
/// are any.
template <class Visit>
bool Causes::visit_made_by(StageIndex stage, const Key& needed, LaneIndex to,
                           const Visit& visit) const {
  bool is_found = false;
  for (const Entry& entry : with({needed.kind, stage, needed.index})) {
    const LaneIndex from = at(entry.action).lane;
    if (stage == needed.stage ? from != to : !feeds(from, to)) continue;
    visit(std::size_t{entry.action});
    is_found = true;
  }
  return is_found;
}

/// Calls visit() for the needed action on every lane that makes a part of the action's input.
template <class Visit>
void Causes::visit_needed(std::size_t action, bool computed, const Visit& visit) const {
  const Key own = key_of(action);
  const LaneIndex to = at(action).lane;
  const NeedRows& rows = kNeedRows[static_cast<std::size_t>(own.kind)][computed ? 1 : 0];
  for (std::size_t row = rows.begin; row < rows.end; ++row) {
    const StageNeed& need = kNeeds[row];
    const Key needed{need.needed, own.stage, own.index};
    bool is_found = visit_made_by(StageIndex{own.stage.value + need.stages_on}, needed, to, visit);
    if (need.stages_on != 0) {
      visit_skipped_from(own.stage, need.stages_on, [&](StageIndex stage) {
        is_found = visit_made_by(stage, needed, to, visit) || is_found;
      });
    }
    if (is_found) return;
  }
}

template <class Visit>
void Causes::visit_receivers_of(std::size_t transfer, const Visit& visit) const {
  const Key own = key_of(transfer);
  const LaneIndex from = at(transfer).lane;
  const auto visit_stage = [&](ActionKind kind, StageIndex stage) {
    const Group* group = group_of({kind, stage, own.index});
    if (group == nullptr) return;
    const std::span<const Entry> entries = group->with(own.index);
    if (entries.empty()) return;
    // If the group has one lane, its entries need not be visited one by one.
    if (!group->is_on_several_lanes) {
      if (feeds(from, *group->lane)) visit(*group->lane);
      return;
    }
    for (const Entry& entry : entries) {
      const LaneIndex to = at(entry.action).lane;
      if (feeds(from, to)) visit(to);
    }
  };
  for (const StageNeed& need : kNeeds) {
    if (need.needed != own.kind) continue;
    visit_stage(need.action, StageIndex{own.stage.value - need.stages_on});
    // A stage receives from one side and sends to the other, so the sign is reversed.
    visit_skipped_from(own.stage, -need.stages_on,
                       [&](StageIndex stage) { visit_stage(need.action, stage); });
  }
}

}  // namespace dapple
