// One completion function for each cut and number of devices: what the stages in front of a cut add
// at least, wherever they are placed.
//
// Source: a completion bound, as in completion_bounds.h, from one component-wise minimum for each
// state in place of a list of functions. It closes states of diagrams before they are expanded
// (D4).
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "dapple/core/indexed_vector.h"
#include "dapple/search/allowance.h"
#include "search/bounds/completion_function.h"
#include "search/bounds/prefix_bound.h"
#include "search/decision_diagram/class_stages.h"

namespace dapple::search {

class PrefixCompletions {
 public:
  /// Computes the functions of all states that may belong to a plan below `threshold`. If the
  /// allowance ends first, none are available. O(cuts * states * stages behind a state).
  PrefixCompletions(const CostModel& costs, ClassStages& stages, const SearchProblem& problem,
                    Duration threshold, Allowance& allowance);

  /// Bounds on the stages in front of a cut.
  struct PrefixCompletion {
    CompletionFunction function;
    // The class of the last stage's devices.
    StageClassIndex last_stage;
    // Upper bound on the micro-batches that each of the stages can hold.
    std::int64_t depth_limit = 1;
  };

  /// Returns a function that bounds all stages in front of `cut` on no more devices than `devices`,
  /// without the boundary at the cut (C6); null if no plan below the threshold has such stages.
  /// O(1).
  const PrefixCompletion* at(CutIndex cut, AllocationClassIndex devices) const {
    if (positions_.empty() || positions_[cut].empty()) return nullptr;
    const std::int32_t position = positions_[cut][devices];
    return position < 0 ? nullptr : &functions_[static_cast<std::size_t>(position)];
  }

  /// Lower bound on every plan, at most the threshold (C7).
  Duration least() const { return least_; }

 private:
  using State = PrefixCompletion;
  /// The stages that begin at a cut on devices of one class.
  struct Extension {
    CutIndex cut;
    StageClassIndex devices;
    // All devices in use, these included.
    AllocationClassIndex used_after;
  };
  /// A stage from some cut to `end`.
  struct Stage {
    CutIndex end;
    StageBound figures;
  };
  State* state(CutIndex cut, AllocationClassIndex devices);
  void merge(CutIndex cut, AllocationClassIndex devices, const State& other);
  void extend(CutIndex cut, AllocationClassIndex used, ClassStages::Boundaries& boundaries);
  const std::vector<Stage>& stages_from(const Extension& of);
  void append_stages(const CompletionFunction& function, std::int64_t depth_limit,
                     const Extension& extension);
  void leave_idle(CutIndex cut);
  BoundLabel least_label(CutIndex cut, AllocationClassIndex devices) const;

  ClassStages& stages_;
  const SearchProblem& problem_;
  std::int64_t micro_batches_;
  CutIndex end_of_model_;
  Duration threshold_;
  Allowance& allowance_;
  const PrefixBound& work_;
  // By class, the samples that some replica has of a micro-batch whatever the stages.
  IndexedVector<AllocationClassIndex, std::int64_t> least_samples_;
  Duration least_;
  // The stages that begin at the current cut, by class, once they are asked for.
  IndexedVector<StageClassIndex, std::optional<std::vector<Stage>>> stages_here_;
  // A deque, as a vector holds a growing table twice while it moves it.
  std::deque<State> functions_;
  // By cut, then devices in use; below zero where there is no function.
  IndexedVector<CutIndex, IndexedVector<AllocationClassIndex, std::int32_t>> positions_;
};

}  // namespace dapple::search
