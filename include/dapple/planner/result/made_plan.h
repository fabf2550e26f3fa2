// The result of planning: a plan with what it is compared with.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/plan/document.h"
#include "dapple/planner/baselines/baselines.h"
#include "dapple/planner/candidates/evaluate.h"

namespace dapple::planner {

/// How a plan was chosen where devices are not equally fast.
struct ChoiceUnderJitter {
  /// The median of the fastest plan in the same draws.
  Duration median_of_fastest;
  /// The number of plans compared, the fastest one included.
  std::int64_t compared = 0;
};

/// A plan that is as fast as the chosen one and needs less memory, but whose times lean further on
/// batches below the measured ones.
struct FrugalPlan {
  std::int64_t micro_batch_size = 1;
  /// The memory of the fullest device.
  Bytes peak_memory;
};

/// The result of planning.
struct MadePlan {
  PlanDocument document;
  /// The evaluation of the document's plan.
  Evaluation evaluation;
  /// The plans of the document's baselines, in their order.
  std::vector<BaselinePlan> baselines;
  /// Whether the search was stopped before all baselines were chosen, although it proved the
  /// requested gap, which is above zero. The last baseline is then left out, so that the document
  /// shows that the search was stopped.
  bool lacks_baselines = false;
  /// Where the plan was chosen by the median of its iterations.
  std::optional<ChoiceUnderJitter> under_jitter = {};
  /// Where such a plan is known.
  std::optional<FrugalPlan> frugal = {};
};

/// Sets the plan's baselines, and their figures in its document.
inline void set_baselines(MadePlan& made, std::vector<BaselinePlan> baselines) {
  made.baselines = std::move(baselines);
  made.document.baselines.clear();
  for (const BaselinePlan& baseline : made.baselines) {
    made.document.baselines.push_back(baseline.figures);
  }
}

}  // namespace dapple::planner
