// Every plan of a small problem, one after another: boundaries, device sets, micro-batch sizes,
// depths, recomputation, forms of parallelism. Shares only validate, cost and simulate with the
// planner, and in fastest_plan() the bound of a whole plan, which has tests of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "../support/random_problem.h"
#include "dapple/cost/cost_model.h"
#include "dapple/plan/pins.h"
#include "dapple/simulate/simulate.h"

namespace dapple::small {

/// Calls `visit` for every legal plan that fits. O(exponential): a handful of layers and devices.
void for_each_plan(const Problem& problem, const Topology& topology, bool ignore_memory,
                   const std::function<void(const Plan&, const PlanCost&)>& visit);

/// The samples of each replica of a stage on these devices, so that the slowest replica takes the
/// least for all layers: one sample each, then one after another to the replica that would be done
/// with one more the soonest; of several to the first of those of the first kind.
std::vector<std::int64_t> samples_by_speed(const CostModel& costs, std::int64_t micro_batch_size,
                                           const std::vector<DeviceIndex>& devices);

/// Which plans count, and what a search for the fastest may rely on.
struct OracleOptions {
  Contention contention = Contention::Shared;
  Replicas replicas = Replicas::Together;
  Transfers transfers = Transfers::Overlapped;
  bool ignore_memory = false;
  std::optional<std::int64_t> micro_batch_size = {};
  std::vector<GradientSynchronization> gradients = {};  // any of them; the default if none is given
  Pins pins = {};
  bool shares_by_speed = false;                 // stages may also have shares by speed
  bool may_deal = false;                        // stages may also deal whole micro-batches
  std::function<bool(const Plan&)> allow = {};  // plans that count; all of them if not given
  Duration below = Duration{INT64_MAX};         // slower plans, and equal ones, do not count
  bool use_bounds = true;                       // pass over plans whose bound is too high
};

struct OracleAnswer {
  std::optional<Plan> plan;  // the fastest that counts and fits; the first of them
  Duration iteration{INT64_MAX};
  bool memory_decides = false;  // a plan that does not fit would be faster than `iteration`
};

/// The fastest of all plans. O(exponential).
OracleAnswer fastest_plan(const Problem& problem, const Topology& topology,
                          const OracleOptions& options);

}  // namespace dapple::small
