#include "dapple/exec/replay/replay.h"

#include <utility>

#include "dapple/cost/cost_model.h"
#include "dapple/cost/plan_cost.h"
#include "dapple/exec/message/thread_transport.h"
#include "dapple/exec/run/interpreter.h"
#include "dapple/schedule/device_schedule.h"
#include "exec/message/joint_answer.h"
#include "exec/message/on_threads.h"
#include "exec/run/reduction_groups.h"

namespace dapple::exec {
namespace {

/// The step of answers' message keys; their action sends no other messages.
constexpr std::int32_t kAnswers = 1;

}  // namespace

class Replay::Job {
 public:
  Job(const PlanDocument& document, const Topology& topology, ReplayOptions options);

  const std::vector<DeviceIndex>& devices() const { return devices_; }
  const std::vector<DeviceSchedule>& schedules() const { return schedules_; }
  const ReplayOptions& options() const { return options_; }
  std::optional<Replayed> run(std::size_t place, Transport& transport);

 private:
  const ReplayOptions options_;
  PlanCost costs_;
  ReductionGroups groups_;
  std::vector<DeviceSchedule> schedules_;
  std::vector<DeviceIndex> devices_;
};

Replay::Job::Job(const PlanDocument& document, const Topology& topology, ReplayOptions options)
    : options_(std::move(options)),
      costs_(CostModel(document.profile, topology).plan_cost(document.plan)),
      groups_(reduction_groups(document.plan, costs_, topology)),
      schedules_(device_schedules(generate(document.plan), costs_)) {
  for (const DeviceSchedule& schedule : schedules_) devices_.push_back(schedule.device);
}

/// The measurements go to the first device as messages of an iteration number that is not run.
/// Between iterations, devices exchange only whether to stop.
std::optional<Replayed> Replay::Job::run(std::size_t place, Transport& transport) {
  const std::unique_ptr<Backend> backend =
      options_.make_backend({.costs = costs_, .schedule = schedules_[place], .place = place},
                            {.pace = options_.pace, .slow_stages = options_.slow_stages});
  const auto group_of = [this, place](const Action& reduction) {
    return groups_.of(reduction, devices_[place]);
  };
  Interpreter interpreter(schedules_[place], group_of, *backend, transport);
  DeviceMeasurements measured;
  bool goes_on = true;
  for (std::int64_t iteration = 0; goes_on; ++iteration) {
    backend->begin(iteration);
    measured.iterations.push_back(measure(interpreter, iteration, transport));
    if (place == 0 && options_.progress) options_.progress(iteration + 1);
    measured.sent = transport.sent();
    goes_on =
        iteration + 1 < options_.iterations &&
        !any_says(options_.should_stop && options_.should_stop(), devices_, place,
                  {.iteration = iteration, .action = {}, .step = kAnswers, .from = {}, .to = {}},
                  transport);
  }
  return gather(measured, schedules_, place, options_.iterations, options_.pace, transport);
}

Replay::Replay(const PlanDocument& document, const Topology& topology, ReplayOptions options)
    : job_(std::make_unique<Job>(document, topology, std::move(options))) {}

Replay::~Replay() = default;

const std::vector<DeviceIndex>& Replay::devices() const {
  return job_->devices();
}

const std::vector<DeviceSchedule>& Replay::schedules() const {
  return job_->schedules();
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
  std::optional<Replayed> replayed;
  on_threads(network, job.devices(), [&](std::size_t place, Transport& transport) {
    std::unique_ptr<Transport> over;
    if (options.make_end_over) over = options.make_end_over(transport, job.schedules(), place);
    std::optional<Replayed> result = job.run(place, over ? *over : transport);
    if (result) replayed = std::move(result);
  });
  return std::move(replayed).value();
}

}  // namespace dapple::exec
