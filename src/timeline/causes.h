// What the actions of a timeline wait for, found again from when they ran.
#pragma once

#include <cstddef>
#include <optional>
#include <tuple>
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
  /// Keeps a reference to the timeline. O(actions log actions).
  explicit Causes(const Timeline& timeline);

  /// Positions of a lane's actions on one stream, in their order.
  const std::vector<std::size_t>& line(LaneIndex lane, Stream stream) const;

  /// The transfer that brought an action's input, and the computation that made that input, on
  /// whatever lane; nothing for an action without such an input. Of several lanes that each made a
  /// part of it, the one that ended last. O(log actions + lanes of the stage).
  std::optional<std::size_t> transfer_to(std::size_t action) const;
  std::optional<std::size_t> producer_for(std::size_t action) const;

  /// All transfers that brought parts of it. O(log actions + lanes of the stage).
  std::vector<std::size_t> transfers_to(std::size_t action) const;

  /// The reductions that an optimizer step waits for. O(reductions of the lane).
  std::vector<std::size_t> reductions_before(std::size_t step) const;

  /// What an action waited for last; nothing where nothing comes before it. O(log actions) and, for
  /// a reduction or a step, O(lanes of the stage or reductions of the lane).
  std::optional<Cause> of(std::size_t action) const;

 private:
  using Key = std::tuple<ActionKind, StageIndex, std::int32_t>;  // kind, stage, index
  struct Entry {
    Key key;
    std::size_t action = 0;
  };

  const TimedAction& at(std::size_t action) const { return timeline_.actions[action]; }
  Key key_of(std::size_t action) const;
  std::size_t first_with(const Key& key) const;
  bool feeds(LaneIndex from, LaneIndex to) const;
  std::vector<std::size_t> needed(std::size_t action, bool computed) const;
  std::optional<std::size_t> last_of(const std::vector<std::size_t>& actions) const;
  std::optional<std::size_t> previous(std::size_t action) const;
  std::vector<std::size_t> makers_of_bucket(std::size_t reduction) const;
  std::vector<std::size_t> candidates(std::size_t action) const;

  const Timeline& timeline_;
  std::vector<Entry> entries_;  // by key, then in the timeline's order
  std::vector<std::vector<std::vector<std::size_t>>> lines_;  // by lane, by stream
  std::vector<std::size_t> place_in_line_;                    // by action
};

}  // namespace dapple
