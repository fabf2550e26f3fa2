// The ways of handling gradients that a search looks at.
#pragma once

#include <vector>

#include "dapple/plan/plan.h"
#include "dapple/planner/request/planner.h"
#include "dapple/profile/model_profile.h"

namespace dapple::planner {

/// With the bucket size that is asked for; if none is, with 1, 5, 25, 100 and 400 MiB, as far as
/// they cut the model's gradients differently, and with all in one bucket. By rising size.
/// O(layers).
std::vector<GradientSynchronization> gradient_synchronizations(const PlannerOptions& options,
                                                               const ModelProfile& profile);

/// With the bucket size that is asked for; if none is, with the default one: what others do.
GradientSynchronization usual_gradients(const PlannerOptions& options);

}  // namespace dapple::planner
