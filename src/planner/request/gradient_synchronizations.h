// The gradient synchronizations that a search tries.
#pragma once

#include <vector>

#include "dapple/plan/plan.h"
#include "dapple/planner/request/planner_options.h"
#include "dapple/profile/model_profile.h"

namespace dapple::planner {

/// Returns the gradient synchronizations to try, by rising bucket size: with the requested size; if
/// there is none, with 1, 5, 25, 100 and 400 MiB, as far as they split the model's gradients
/// differently, and with all gradients in one bucket. O(layers).
std::vector<GradientSynchronization> gradient_synchronizations(const PlannerOptions& options,
                                                               const ModelProfile& profile);

/// Returns the gradient synchronization with the requested bucket size; if there is none, with the
/// default one, which the baselines have.
GradientSynchronization usual_gradients(const PlannerOptions& options);

}  // namespace dapple::planner
