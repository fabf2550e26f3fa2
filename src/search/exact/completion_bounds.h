// Completion bounds: lower bounds on what the stages in front of a cut add to the part behind it,
// wherever they are placed. They close nodes of the exact search. The equations are (C5) to (C7)
// and (C10) of docs/bounds.md; those of one function are in completion_function.h.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "dapple/core/indexed_vector.h"
#include "dapple/search/indices.h"
#include "dapple/search/placement/placement_space.h"
#include "dapple/search/search_problem.h"
#include "search/bounds/completion_function.h"
#include "search/exact/allocation_classes.h"
#include "search/exact/completion_stages.h"
#include "search/exact/least_labels.h"
#include "search/table_count.h"

namespace dapple::search {

/// The completion functions of all cuts, and the lower bound on all plans that follows from them.
class CompletionBounds {
 public:
  /// Computes the completion functions of all cuts. Bounds of `threshold` or more are not
  /// distinguished from each other. At most O(layers^2 * devices^2) times the number of
  /// non-dominated functions of a cut, and far less with a good threshold. If the allowance ends
  /// first, no bounds are available.
  CompletionBounds(const CostModel& costs, PlacementSpace& placements, const SearchProblem& problem,
                   Duration threshold, const Allowance::Limits& limits);

  /// Whether the limits leave room for what is kept even without any completion function. If not,
  /// no bounds could be computed. O(device classes).
  static bool has_room(const CostModel& costs, const PlacementSpace& placements,
                       const SearchProblem& problem, const Allowance::Limits& limits);

  /// Whether the allowance ended first, so that no bounds are available.
  bool is_stopped() const { return is_stopped_; }

  /// Lower bound on all plans, at most the threshold (C7).
  /// Requires: not stopped.
  Duration least() const { return least_; }

  /// What choices() distinguishes of the partial plan behind a cut.
  struct PartialPlanState {
    CutIndex cut;
    // The devices in use there.
    UseIndex used;
    // The device allocation of its first stage, and whether that deals its micro-batches.
    AllocationIndex allocation;
    bool deals = false;
  };
  /// Returns the completion functions of the stages that may stand in front of `state`, including
  /// the boundary between them. O(log choices) once known.
  const std::vector<CompletionFunction>& choices(const PartialPlanState& state);

  /// The number of completion functions kept, over all cuts and choices.
  std::int64_t function_count() const { return function_count_; }
  Bytes kept_bytes() const {
    return allowance_.kept() + choice_count_ * Bytes{sizeof(CompletionFunction)} +
           classes().kept_bytes();
  }
  std::int64_t work() const { return allowance_.work(); }

 private:
  /// The stages of one kind that begin at a cut.
  struct Extension {
    CompletionStages::Kind kind;
    // All devices in use, these included.
    AllocationClassIndex used_after;
    // The cut if (C5) is tracked for these stages, otherwise kNoCut.
    CutIndex tracked_begin = CompletionFunction::kNoCut;
  };
  /// Counts a step and what is kept. Returns whether the allowance has ended.
  bool must_stop() {
    allowance_.keep(classes().kept_bytes() - bytes_of_classes_);
    bytes_of_classes_ = classes().kept_bytes();
    tables_.add_to(allowance_);
    return !allowance_.spend(1);
  }
  /// Counts functions that are kept from now on.
  void keep(std::int64_t functions) {
    allowance_.keep(functions * Bytes{sizeof(CompletionFunction)});
  }
  AllocationClasses& classes() { return stages_.classes(); }
  const AllocationClasses& classes() const { return stages_.classes(); }
  static CompletionStages::Kind last_stage(const CompletionFunction& function) {
    return {function.last_stage, function.last_deals};
  }
  void enumerate_below(Bytes most_of_labels);
  void enumerate(const LeastLabels& behind);
  void extend_state(CutIndex cut, AllocationClassIndex used, const LeastLabels& behind);
  std::vector<CompletionFunction> functions_before(CutIndex cut, AllocationClassIndex used,
                                                   CompletionStages::Kind stage);
  void append_stage(const CompletionFunction& function, const CompletionStages::Stage& stage,
                    const Extension& extension, const BoundLabel* behind);
  CompletionFunction append_boundary(const CompletionFunction& function,
                                     const BoundaryBound& boundary, CutIndex cut) const;
  bool is_heavy(CutIndex cut, CompletionStages::Kind stage) const;
  void leave_idle(CutIndex cut);
  AllocationClassIndex free_class(UseIndex used);

  PlacementSpace& placements_;
  const SearchProblem& problem_;
  CutIndex end_of_model_;
  Duration threshold_;
  Allowance allowance_;
  TableCount tables_;
  Bytes bytes_of_classes_;
  Duration least_;
  std::size_t most_alike_;
  bool is_stopped_ = false;
  CompletionStages stages_;
  // By cut, then devices in use; no function of a list dominates another one.
  IndexedVector<CutIndex, IndexedVector<AllocationClassIndex, std::vector<CompletionFunction>>>
      kept_;
  // The class of the devices that a use leaves free; kUnknown until it is asked for.
  IndexedVector<UseIndex, AllocationClassIndex> free_classes_;
  static constexpr AllocationClassIndex kUnknown{-1};
  // By cut, class of the free devices, the device allocation behind, or only its number of replicas
  // where the space is not complete, and whether micro-batches are dealt to it.
  std::map<std::tuple<CutIndex, AllocationClassIndex, std::int32_t, bool>,
           std::vector<CompletionFunction>>
      choices_;
  std::int64_t function_count_ = 0;
  std::int64_t choice_count_ = 0;
};

}  // namespace dapple::search
