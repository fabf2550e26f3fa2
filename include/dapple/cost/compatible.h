// Checks whether a profile, a topology and a plan can be costed together.
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

/// Returns the factor on the profile's times for a kind of device: one for the profiled kind,
/// otherwise the kind's `time_scale` for the profiled one, or nothing if it has none.
/// O(log factors).
std::optional<Factor> time_scale(const ModelProfile& profile, const DeviceKind& kind);

/// Returns the reasons why the profile cannot be used on the topology: a kind of device that is
/// neither the profiled one nor has a time_scale for it, or sums that could overflow. Empty if they
/// are compatible. O(layers + devices).
std::vector<Violation> check_compatible(const ModelProfile& profile, const Topology& topology,
                                        std::int64_t global_batch_size);

/// Returns the faults that prevent a plan from being costed, with JSON pointers: those of
/// validate() and check_compatible() and, if there are none of these, gradient buckets that do not
/// match the layers. Memory is not checked. Empty if the plan can be costed.
std::vector<Violation> costing_faults(const Plan& plan, const ModelProfile& profile,
                                      const Topology& topology);

}  // namespace dapple
