#include "dapple/exec/replay.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>
#include <type_traits>
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

/// What one device measured of one iteration, in moments of the first device's clock.
struct DeviceRun {
  std::int64_t start = 0;  // behind the barrier
  std::vector<MeasuredAction> actions;
};

/// What one device measured of all.
struct DeviceRuns {
  Bytes sent;
  std::vector<DeviceRun> iterations;
};

/// Figures and lists of them, one behind the other, to and from a message.
class Packer {
 public:
  template <class Figure>
  void add(const Figure& figure) {
    static_assert(std::is_trivially_copyable_v<Figure>);
    const auto* begin = reinterpret_cast<const std::byte*>(&figure);
    payload_.insert(payload_.end(), begin, begin + sizeof(Figure));
  }
  Payload take() { return std::move(payload_); }

 private:
  Payload payload_;
};

class Unpacker {
 public:
  explicit Unpacker(const Payload& payload) : payload_(payload) {}
  template <class Figure>
  Figure next() {
    static_assert(std::is_trivially_copyable_v<Figure>);
    check(payload_.size() - position_ >= sizeof(Figure), "a report of a device is cut off");
    Figure figure;
    std::memcpy(&figure, payload_.data() + position_, sizeof(Figure));
    position_ += sizeof(Figure);
    return figure;
  }

 private:
  const Payload& payload_;
  std::size_t position_ = 0;
};

Payload packed(const DeviceRuns& runs) {
  Packer packer;
  packer.add(runs.sent);
  for (const DeviceRun& run : runs.iterations) {
    packer.add(run.start);
    packer.add(run.actions.size());
    for (const MeasuredAction& action : run.actions) packer.add(action);
  }
  return packer.take();
}

DeviceRuns unpacked(const Payload& payload, std::int64_t iterations) {
  Unpacker unpacker(payload);
  DeviceRuns runs{.sent = unpacker.next<Bytes>(), .iterations = {}};
  for (std::int64_t i = 0; i < iterations; ++i) {
    DeviceRun& run = runs.iterations.emplace_back();
    run.start = unpacker.next<std::int64_t>();
    const auto actions = unpacker.next<std::size_t>();
    for (std::size_t k = 0; k < actions; ++k) {
      run.actions.push_back(unpacker.next<MeasuredAction>());
    }
  }
  return runs;
}

}  // namespace

class Replay::Job {
 public:
  Job(const PlanDocument& document, const Topology& topology, ReplayOptions options);

  const std::vector<DeviceIndex>& devices() const { return devices_; }
  const ReplayOptions& options() const { return options_; }
  std::optional<Replayed> run(std::size_t place, Transport& transport);

 private:
  DeviceRuns run_device(std::size_t place, Transport& transport);
  std::optional<Replayed> gather(std::size_t place, DeviceRuns own, Transport& transport) const;
  ReductionGroup group_of(const Action& reduction) const;
  Replayed summary(const std::vector<DeviceRuns>& runs) const;
  /// As if nothing had been slowed down.
  Duration in_plan_time(std::int64_t measured) const {
    return {divide_down(Wide{measured} * kOne.billionths, options_.pace.billionths)};
  }
  Timeline timeline_of(const std::vector<DeviceRuns>& runs, std::size_t iteration) const;

  const Plan plan_;
  const Topology& topology_;
  const ReplayOptions options_;
  PlanCost costs_;
  std::vector<DeviceSchedule> schedules_;
  std::vector<DeviceIndex> devices_;
};

Replay::Job::Job(const PlanDocument& document, const Topology& topology, ReplayOptions options)
    : plan_(document.plan),
      topology_(topology),
      options_(std::move(options)),
      costs_(CostModel(document.profile, topology).plan_cost(document.plan)),
      schedules_(device_schedules(generate(document.plan), costs_)) {
  for (const DeviceSchedule& schedule : schedules_) devices_.push_back(schedule.device);
}

/// As the cost model reduces it: server by server, or in one ring over all replicas.
ReductionGroup Replay::Job::group_of(const Action& reduction) const {
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

std::optional<Replayed> Replay::Job::run(std::size_t place, Transport& transport) {
  return gather(place, run_device(place, transport), transport);
}

DeviceRuns Replay::Job::run_device(std::size_t place, Transport& transport) {
  const DeviceSchedule& schedule = schedules_[place];
  const std::unique_ptr<Backend> backend = make_replay_backend(
      costs_, schedule.device, {.pace = options_.pace, .slow_stages = options_.slow_stages});
  Interpreter interpreter(
      schedule, [this](const Action& reduction) { return group_of(reduction); }, *backend,
      transport);
  const std::int64_t offset = transport.clock_offset();
  DeviceRuns runs;
  for (std::int64_t iteration = 0; iteration < options_.iterations; ++iteration) {
    transport.barrier();
    DeviceRun& run = runs.iterations.emplace_back();
    run.start = monotonic_now() + offset;
    run.actions = interpreter.run(iteration);
    for (MeasuredAction& action : run.actions) {
      action.start += offset;
      action.end += offset;
    }
    if (place == 0 && options_.progress) options_.progress(iteration + 1);
  }
  runs.sent = transport.sent();
  return runs;
}

/// What is measured goes to the first device as a message of an iteration that is none.
std::optional<Replayed> Replay::Job::gather(std::size_t place, DeviceRuns own,
                                            Transport& transport) const {
  MessageKey key{.iteration = options_.iterations,
                 .action = {},
                 .step = 0,
                 .from = devices_[place],
                 .to = devices_.front()};
  if (place > 0) {
    transport.send(key, packed(own));
    transport.barrier();
    return std::nullopt;
  }
  std::vector<DeviceRuns> all{std::move(own)};
  for (std::size_t other = 1; other < devices_.size(); ++other) {
    key.from = devices_[other];
    all.push_back(unpacked(transport.receive(key), options_.iterations));
  }
  transport.barrier();
  return summary(all);
}

Replayed Replay::Job::summary(const std::vector<DeviceRuns>& runs) const {
  Replayed result;
  std::vector<std::pair<Duration, std::size_t>> order;
  for (std::size_t i = 0; i < static_cast<std::size_t>(options_.iterations); ++i) {
    std::int64_t start = INT64_MAX;
    std::int64_t end = 0;
    for (const DeviceRuns& device : runs) {
      const DeviceRun& run = device.iterations[i];
      start = std::min(start, run.start);
      for (const MeasuredAction& action : run.actions) end = std::max(end, action.end);
    }
    result.iterations.push_back(in_plan_time(end - start));
    order.emplace_back(result.iterations.back(), i);
  }
  std::sort(order.begin(), order.end());
  const auto& [median, number] = order[(order.size() - 1) / 2];
  result.median = median;
  result.timeline = timeline_of(runs, number);
  for (const DeviceRuns& device : runs) result.sent += device.sent;
  result.sent = {result.sent.count / options_.iterations};
  return result;
}

Timeline Replay::Job::timeline_of(const std::vector<DeviceRuns>& runs,
                                  std::size_t iteration) const {
  Timeline timeline;
  timeline.origin = Timeline::Origin::Measured;
  std::int64_t zero = INT64_MAX;
  for (const DeviceRuns& device : runs) zero = std::min(zero, device.iterations[iteration].start);
  for (std::size_t i = 0; i < schedules_.size(); ++i) {
    const auto lane = index_at<LaneIndex>(timeline.lanes.size());
    timeline.lanes.push_back({schedules_[i].stages, {schedules_[i].device}});
    for (const MeasuredAction& measured : runs[i].iterations[iteration].actions) {
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

Replay::Replay(const PlanDocument& document, const Topology& topology, ReplayOptions options)
    : job_(std::make_unique<Job>(document, topology, std::move(options))) {}

Replay::~Replay() = default;

const std::vector<DeviceIndex>& Replay::devices() const {
  return job_->devices();
}

std::optional<Pacing> Replay::pacing() const {
  if (!job_->options().paces_links) return std::nullopt;
  return Pacing{.pace = job_->options().pace, .slow_links = job_->options().slow_links};
}

std::optional<Replayed> Replay::run(std::size_t place, Transport& transport) {
  return job_->run(place, transport);
}

Replayed replay(const PlanDocument& document, const Topology& topology,
                const ReplayOptions& options) {
  Replay job(document, topology, options);
  ThreadNetwork network(topology, job.devices(),
                        {.pacing = job.pacing(), .timeout = options.timeout});
  std::mutex mutex;
  std::exception_ptr failure;
  std::optional<Replayed> replayed;
  {
    std::vector<std::jthread> threads;
    for (std::size_t place = 0; place < job.devices().size(); ++place) {
      threads.emplace_back([&, place] {
        const std::unique_ptr<Transport> end = network.end_of(job.devices()[place]);
        try {
          std::optional<Replayed> result = job.run(place, *end);
          if (result) replayed = std::move(result);
        } catch (const JobAborted&) {  // another one says why
        } catch (...) {
          const std::lock_guard lock(mutex);
          if (!failure) failure = std::current_exception();
          end->abort();
        }
      });
    }
  }
  if (failure) std::rethrow_exception(failure);
  return std::move(replayed).value();
}

}  // namespace dapple
