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

/// Returns the times of the profile that hold for a kind of device: its own if it was measured,
/// otherwise those of the first measured kind for which it has a `time_scale`, longer by that
/// factor; nothing if it has none. O(kinds log factors).
std::optional<TimeSource> time_source(const ModelProfile& profile, const DeviceKind& kind);

/// Returns one source for each measured kind whose times hold for devices of the topology, with the
/// least factor there: the least time of a layer on any device is the least over these. Requires:
/// the profile and the topology are compatible. O(devices).
std::vector<TimeSource> least_time_sources(const ModelProfile& profile, const Topology& topology);

/// Returns the reasons why the profile cannot be used on the topology: a kind of device that is
/// neither one that was measured nor has a time_scale for one, or sums that could overflow. Empty
/// if they are compatible. O(layers + devices).
std::vector<Violation> check_compatible(const ModelProfile& profile, const Topology& topology,
                                        std::int64_t global_batch_size);

/// Returns the faults that prevent a plan from being costed, with JSON pointers: those of
/// validate() and check_compatible() and, if there are none of these, gradient buckets that do not
/// match the layers. Memory is not checked. Empty if the plan can be costed.
std::vector<Violation> costing_faults(const Plan& plan, const ModelProfile& profile,
                                      const Topology& topology);

}  // namespace dapple
