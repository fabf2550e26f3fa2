// How a plan's iteration varies where devices are not equally fast: in a sample of iterations in
// which every device has a random speed, and with one slower device in each stage.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "dapple/cost/plan_cost.h"
#include "dapple/plan/prediction.h"
#include "dapple/plan/request.h"
#include "dapple/plan/simulation_mode.h"
#include "dapple/planner/candidates/evaluate.h"
#include "dapple/schedule/schedule.h"
#include "dapple/topology/topology.h"

namespace dapple::planner {

/// Devices are slower by this part where one is slowed down in each stage.
inline constexpr Factor kSlowerDevice{kOne.billionths / 10};

/// A plan as it is simulated; what this refers to must outlive it.
struct ReadyPlan {
  const Schedule& schedule;
  const PlanCost& costs;
  const Topology& topology;
  SimulationMode mode;
};

/// Returns the number of actions of a schedule, at least one. O(lanes).
std::int64_t count_actions(const Schedule& schedule);

/// Returns how many iterations are drawn for a plan with this schedule: fewer for a long one.
/// O(lanes).
std::int64_t draws_of(const Schedule& schedule);

/// Returns the iterations of the first `count` draws. In a draw a device has the same speed under
/// all plans. Times are infinite where `should_stop` ended a simulation. The result does not depend
/// on the number of threads. O(count * actions).
std::vector<Duration> drawn_iterations(const ReadyPlan& plan, std::size_t count,
                                       const JitterRequest& request, int threads,
                                       const std::function<bool()>& should_stop = {});

/// Returns by stage the iteration if the device that computes longest there, of equals the first,
/// is slower by kSlowerDevice. O(stages * actions).
std::vector<Duration> with_slow_devices(const ReadyPlan& plan, int threads);

/// Returns the smallest time that at least this many percent of the times do not exceed. O(times).
/// Requires: there are times; percent is from 1 to 100.
Duration percentile(std::vector<Duration> times, std::size_t percent);

/// Simulates a plan that was evaluated in this mode, draws_of() its schedule and with slow devices.
/// The result does not depend on the number of threads. O((draws + stages) * actions).
JitterFigures jitter_of(const Evaluation& evaluation, const Topology& topology, SimulationMode mode,
                        const JitterRequest& request, int threads);

}  // namespace dapple::planner
