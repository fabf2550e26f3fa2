// The result of planning: a plan with what it is compared with.
#pragma once

#include <vector>

#include "dapple/plan/document.h"
#include "dapple/planner/baselines/baselines.h"
#include "dapple/planner/candidates/evaluate.h"

namespace dapple::planner {

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
};

}  // namespace dapple::planner
