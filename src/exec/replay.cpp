#include "dapple/exec/replay.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <thread>
#include <utility>

#include "clock.h"
#include "dapple/core/error.h"
#include "dapple/cost/costs.h"
#include "dapple/exec/interpreter.h"
#include "dapple/exec/replay_backend.h"
#include "dapple/exec/thread_transport.h"
#include "dapple/schedule/device_schedule.h"

namespace dapple {
namespace {

/// What one device measured of one iteration.
struct DeviceRun {
  std::int64_t start = 0;  // of all devices: behind the barrier
  std::vector<MeasuredAction> actions;
};

class Replay {
 public:
  Replay(const PlanDocument& document, const Topology& topology, const ReplayOptions& options);
  Replayed run();

 private:
  void run_device(std::size_t number);
  ReductionGroup group_of(const Action& reduction) const;
  std::int64_t start_of(std::size_t iteration) const;
  /// As if nothing had been slowed down.
  Duration in_plan_time(std::int64_t measured) const {
    return {divide_down(Wide{measured} * kOne.billionths, options_.pace.billionths)};
  }
  Duration length_of(std::size_t iteration) const;
  Timeline timeline_of(std::size_t iteration) const;

  const Plan& plan_;
  const Topology& topology_;
  const ReplayOptions& options_;
  PlanCost costs_;
  std::vector<DeviceSchedule> devices_;
  ThreadNetwork network_;
  std::vector<std::vector<DeviceRun>> runs_;  // by device, then iteration
};

std::vector<DeviceIndex> indices_of(const std::vector<DeviceSchedule>& schedules) {
  std::vector<DeviceIndex> devices;
  for (const DeviceSchedule& schedule : schedules) devices.push_back(schedule.device);
  return devices;
}

Replay::Replay(const PlanDocument& document, const Topology& topology, const ReplayOptions& options)
    : plan_(document.plan),
      topology_(topology),
      options_(options),
      costs_(CostModel(document.profile, topology).plan_cost(document.plan)),
      devices_(device_schedules(generate(document.plan), costs_)),
      network_(topology, indices_of(devices_),
               {.pace = options.paces_links ? std::optional(options.pace) : std::nullopt,
                .timeout = options.timeout}),
      runs_(devices_.size()) {}

/// As the cost model reduces it: server by server, or in one ring over all replicas.
ReductionGroup Replay::group_of(const Action& reduction) const {
  const std::size_t stage = reduction.stage.position();
  const AllReduceCost& cost =
      costs_.stages[stage].buckets[static_cast<std::size_t>(reduction.index)];
  std::vector<DeviceIndex> members = plan_.stages[stage].devices;
  std::sort(members.begin(), members.end());
  if (cost.algorithm != AllReduceAlgorithm::Hierarchical) return {.servers = {members}};
  ReductionGroup group;
  for (const DeviceIndex member : members) {
    const bool is_next_server =
        group.servers.empty() ||
        topology_.device(group.servers.back().back()).server != topology_.device(member).server;
    if (is_next_server) group.servers.emplace_back();
    group.servers.back().push_back(member);
  }
  return group;
}

void Replay::run_device(std::size_t number) {
  const DeviceSchedule& schedule = devices_[number];
  const std::unique_ptr<Transport> transport = network_.end_of(schedule.device);
  const std::unique_ptr<Backend> backend =
      make_replay_backend(costs_, schedule.device, options_.pace);
  Interpreter interpreter(
      schedule, [this](const Action& reduction) { return group_of(reduction); }, *backend,
      *transport);
  for (std::int64_t iteration = 0; iteration < options_.iterations; ++iteration) {
    transport->barrier();
    DeviceRun& run = runs_[number].emplace_back();
    run.start = monotonic_now();
    run.actions = interpreter.run(iteration);
  }
}

Replayed Replay::run() {
  std::vector<std::exception_ptr> failures(devices_.size());
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < devices_.size(); ++i) {
      threads.emplace_back([this, i, &failures] {
        try {
          run_device(i);
        } catch (...) {
          failures[i] = std::current_exception();
          network_.end_of(devices_[i].device)->abort();
        }
      });
    }
  }
  std::exception_ptr aborted;
  for (const std::exception_ptr& failure : failures) {
    if (!failure) continue;
    try {
      std::rethrow_exception(failure);
    } catch (const JobAborted&) { aborted = failure; }
  }
  if (aborted) std::rethrow_exception(aborted);
  Replayed result;
  std::vector<std::pair<Duration, std::size_t>> order;
  for (std::size_t i = 0; i < static_cast<std::size_t>(options_.iterations); ++i) {
    result.iterations.push_back(length_of(i));
    order.emplace_back(result.iterations.back(), i);
  }
  std::sort(order.begin(), order.end());
  const auto& [median, number] = order[(order.size() - 1) / 2];
  result.median = median;
  result.timeline = timeline_of(number);
  result.sent = {network_.sent().count / options_.iterations};
  return result;
}

std::int64_t Replay::start_of(std::size_t iteration) const {
  std::int64_t start = INT64_MAX;
  for (const std::vector<DeviceRun>& runs : runs_) start = std::min(start, runs[iteration].start);
  return start;
}

Duration Replay::length_of(std::size_t iteration) const {
  std::int64_t end = 0;
  for (const std::vector<DeviceRun>& runs : runs_) {
    for (const MeasuredAction& action : runs[iteration].actions) end = std::max(end, action.end);
  }
  return in_plan_time(end - start_of(iteration));
}

Timeline Replay::timeline_of(std::size_t iteration) const {
  Timeline timeline;
  timeline.origin = Timeline::Origin::Measured;
  const std::int64_t zero = start_of(iteration);
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    const auto lane = index_at<LaneIndex>(timeline.lanes.size());
    timeline.lanes.push_back({devices_[i].stages, {devices_[i].device}});
    for (const MeasuredAction& measured : runs_[i][iteration].actions) {
      timeline.actions.push_back({.lane = lane,
                                  .action = measured.action,
                                  .start = in_plan_time(measured.start - zero),
                                  .end = in_plan_time(measured.end - zero),
                                  .size = measured.size});
    }
  }
  sort_actions(timeline);
  return timeline;
}

}  // namespace

Replayed replay(const PlanDocument& document, const Topology& topology,
                const ReplayOptions& options) {
  return Replay(document, topology, options).run();
}

}  // namespace dapple
