// The order of all-reduces. Lanes with the same stages form a group, which reduces the buckets of
// its stages and the tied gradients to which they contribute one after another, in the order of the
// schedule. A bucket is reduced when it is ready on every lane of its group. Tied gradients are
// reduced by all groups that contribute to them at once, when all gradients are computed and the
// reduction is the next one of each of these groups.
//
// The caller says what is ready and which reduction is over, and is told which reduction starts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "dapple/core/index.h"
#include "dapple/cost/plan_cost.h"
#include "dapple/schedule/schedule.h"

namespace dapple::simulate {

/// An all-reduce of a bucket of a stage, or of tied gradients.
struct Reduction {
  /// The stage, or, from the number of stages on, the tie. Each has at most one reduction under
  /// way.
  std::int32_t reducer = 0;
  /// The bucket of the stage; zero for tied gradients.
  std::int32_t bucket = 0;

  const AllReduceCost& cost(const PlanCost& costs) const {
    const auto position = static_cast<std::size_t>(reducer);
    return position < costs.stages.size()
               ? costs.stages[position].buckets[static_cast<std::size_t>(bucket)]
               : costs.ties[position - costs.stages.size()].reduction;
  }
  friend bool operator==(const Reduction&, const Reduction&) = default;
};

/// A group of lanes with the same stages.
using GroupIndex = Index<struct GroupTag>;

class ReductionScheduler {
 public:
  /// The consecutive lanes of a group.
  struct Lanes {
    LaneIndex first;
    std::int32_t count = 0;
  };

  /// Keeps a reference to the costs. Requires: `costs` are those of the schedule's plan.
  /// O(actions).
  ReductionScheduler(const Schedule& schedule, const PlanCost& costs);

  /// Notes that a bucket of a stage is ready on one more lane. Returns the reduction that
  /// this starts, if any.
  std::optional<Reduction> bucket_ready(StageIndex stage, std::size_t bucket);

  /// Notes that one more lane has computed all its gradients of a stage. Returns the reduction that
  /// this starts, if any.
  std::optional<Reduction> gradients_made(StageIndex stage);

  /// Notes that a reduction is over. The caller then asks start_next() for each of its groups.
  void finish(const Reduction& reduction);

  /// Starts the next reduction of a group, for tied gradients on all groups that contribute, and
  /// returns it; returns nothing if the group is reducing, has no reduction left or must wait.
  std::optional<Reduction> start_next(GroupIndex group);

  /// Whether everything that an optimizer step needs is reduced: its bucket and those before it,
  /// since buckets are reduced in order; for the step at the end and the step of tied parameters,
  /// all buckets of the stage and all tied gradients of its group.
  bool is_reduced_for(const Action& step) const;

  bool is_reducing(GroupIndex group) const { return groups_[group.position()].reducing; }
  /// Returns the schedule's action for the reduction that was last started on a group. Requires:
  /// there has been one.
  const Action& last_started(GroupIndex group) const {
    const Group& state = groups_[group.position()];
    return state.reductions[state.next - 1];
  }
  /// Returns the groups that take part in a reduction, ascending.
  std::span<const GroupIndex> groups_of(const Reduction& reduction) const;
  const Lanes& lanes_of(GroupIndex group) const { return groups_[group.position()].lanes; }

 private:
  struct Stage {
    GroupIndex group;
    // By bucket, the number of lanes on which it is ready.
    std::vector<std::int32_t> lanes_ready;
    std::size_t buckets_done = 0;
    // The ties that include some of the stage's gradients.
    std::vector<std::size_t> ties;
  };
  struct Group {
    Lanes lanes;
    // The schedule's actions, and the position of the next one.
    std::vector<Action> reductions;
    std::size_t next = 0;
    std::int32_t ties_left = 0;
    bool reducing = false;
  };
  struct Tie {
    // The groups that contribute, ascending.
    std::vector<GroupIndex> groups;
    // The number of pairs of a stage of the tie and a lane of it that have not yet computed all of
    // their gradients.
    std::int32_t contributions_left = 0;
  };

  void add_group(const Lane& lane, LaneIndex index);
  void add_tie(const TiedCost& tied);
  bool is_tie(const Reduction& reduction) const {
    return static_cast<std::size_t>(reduction.reducer) >= stages_.size();
  }
  const Tie& tie_of(const Reduction& reduction) const {
    return ties_[static_cast<std::size_t>(reduction.reducer) - stages_.size()];
  }
  Reduction next_of(const Group& group) const;
  bool can_start_next(const Group& group) const;

  const PlanCost& costs_;
  std::vector<Stage> stages_;
  std::vector<Group> groups_;
  std::vector<Tie> ties_;
};

}  // namespace dapple::simulate
