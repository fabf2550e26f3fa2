// Joins profiles of one model that were measured, or estimated, on different kinds of device.
#pragma once

#include "dapple/profile/model_profile.h"

namespace dapple {

/// Adds the times of `other` to the profile as those on one more kind, `other.device`. Sizes, and
/// what else the profile says, stay its own. O(layers * variants). Requires: the profiles have the
/// same layers with variants of the same parallelism, and `other.device` is not among the profile's
/// kinds.
void add_other_device(ModelProfile& profile, const ModelProfile& other);

}  // namespace dapple
