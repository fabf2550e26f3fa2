// Whether a profile, a topology and a plan can be costed together.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "dapple/core/error.h"
#include "dapple/core/quantity.h"
#include "dapple/plan/plan.h"
#include "dapple/profile/model_profile.h"
#include "dapple/topology/topology.h"

namespace dapple {

/// Factor on the profile's times for a kind of device: one for the profiled kind, else what the
/// kind states for it; nothing if it states none. O(log factors).
std::optional<Factor> time_scale(const ModelProfile& profile, const DeviceKind& kind);

/// What keeps the profile from being used on the topology: a kind of device that is neither the
/// profiled one nor has a time_scale for it, a missing global batch, sums that would overflow.
/// Empty if they fit. O(layers + devices).
std::vector<Violation> check_compatible(const ModelProfile& profile, const Topology& topology,
                                        std::int64_t global_batch_size);

/// Faults that keep a plan from being costed at all, with JSON pointers into it: those of
/// validate() and check_compatible(), and gradient buckets that are not its layers'. Memory is not
/// looked at. Empty if there are none.
std::vector<Violation> costing_faults(const Plan& plan, const ModelProfile& profile,
                                      const Topology& topology);

}  // namespace dapple
