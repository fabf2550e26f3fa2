#include "dapple/exec/train/train.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "dapple/core/error.h"
#include "dapple/exec/train/rank_connections.h"
#include "exec/measure/measured_passes.h"
#include "exec/message/clock.h"
#include "exec/message/on_threads.h"
#include "exec/run/pinned_thread.h"
#include "exec/train/named_tensors.h"

namespace dapple::exec {
namespace {

constexpr std::size_t kMostMeasured = 100;

double norm_of(const std::vector<float>& values) {
  double sum = 0;
  for (const float value : values) sum += double{value} * double{value};
  return std::sqrt(sum);
}

double norm_of_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = double{a[i]} - double{b[i]};
    sum += difference * difference;
  }
  return std::sqrt(sum);
}

double relative_to(double difference, double norm) {
  if (difference == 0) return 0;
  const double relative = difference / norm;
  return std::isfinite(relative) ? relative : std::numeric_limits<double>::infinity();
}

Duration length_of(const MeasuredIteration& iteration) {
  std::int64_t end = iteration.start;
  for (const MeasuredAction& action : iteration.actions) end = std::max(end, action.end);
  return {end - iteration.start};
}

[[noreturn]] void refuse_to_diverge(std::int64_t step, const std::string& expected) {
  throw Error(ErrorKind::BadInput, "",
              {{fmt::format("step {}", step),
                fmt::format("expected {}, got none: the training diverges; a lower learning rate "
                            "or a lower --clip-norm may help",
                            expected)}});
}

/// Throws if the loss is not finite, as further steps would be of no use. For the lead only.
void check_loss(std::int64_t step, double loss) {
  if (!std::isfinite(loss)) refuse_to_diverge(step, "a loss that is a number");
}

/// Throws if a tensor is not finite, so that no useless checkpoint replaces the one before.
void check_tensors(std::int64_t step, const NamedTensors& tensors) {
  for (const auto& [name, tensor] : tensors) {
    if (first_not_finite(tensor)) refuse_to_diverge(step, "finite numbers in all of " + name);
  }
}

NamedTensors whole_model(DeviceTraining& device) {
  NamedTensors tensors = device.gather(TensorKind::Parameters);
  tensors.merge(device.gather(TensorKind::State));
  return tensors;
}

/// Keeps the closest experts of all steps or, where some differ, of these.
class RoutingOfSteps {
 public:
  /// Adds a step, whose largest relative difference is `difference`.
  void add(std::int64_t step, double difference, const std::optional<ClosestRouting>& closest,
           Verification& verification) {
    const bool differs = difference > verification.tolerance;
    const bool is_close = closest && closest->margin.size() <= verification.least_margin();
    if (differs && !(is_close && std::isfinite(difference))) {
      verification.differs_beyond_routing = true;
    }
    if (!is_close || (is_of_difference_ && !differs)) return;
    const bool is_better = !verification.routing || differs != is_of_difference_ ||
                           closest->margin.size() < verification.routing->margin.size();
    is_of_difference_ = differs;
    if (!is_better) return;
    verification.routing = closest;
    verification.routing_step = step;
  }

 private:
  bool is_of_difference_ = false;
};

}  // namespace

std::optional<Trained> train(DeviceTraining& device, const TrainOptions& options) {
  check(options.steps > 0, "a training without steps");
  const std::int64_t end = options.steps_before + options.steps;
  std::deque<MeasuredIteration> last;
  std::deque<Duration> whole;
  std::int64_t step = options.steps_before;
  bool goes_on = true;
  while (goes_on) {
    const std::int64_t start = monotonic_now();
    last.push_back(device.run(step++));
    if (last.size() > kMostMeasured) last.pop_front();
    const double loss = device.loss();
    if (device.is_lead()) check_loss(step, loss);
    if (device.is_lead() && options.on_step) {
      options.on_step({.number = step, .loss = loss, .time = length_of(last.back())});
    }
    const bool is_stopped = options.should_stop && options.should_stop();
    goes_on = !device.any_says(step >= end || is_stopped);
    whole.push_back({monotonic_now() - start});
    if (whole.size() > kMostMeasured) whole.pop_front();
    const bool is_due = options.save_every > 0 && step % options.save_every == 0;
    if (options.save && (is_due || !goes_on)) {
      NamedTensors tensors = whole_model(device);
      if (!device.is_lead()) continue;
      check_tensors(step, tensors);
      options.save(step, std::move(tensors));
    }
  }
  std::optional<MeasuredRun> measured = device.gather_measured({last.begin(), last.end()});
  if (!measured) return std::nullopt;
  return Trained{.steps = step - options.steps_before,
                 .measured = std::move(*measured),
                 .whole_step = median({whole.begin(), whole.end()})};
}

TensorDifference worst_difference(const NamedTensors& gradients, const NamedTensors& expected) {
  double squares = 0;
  for (const auto& [name, tensor] : expected) {
    const double norm = norm_of(tensor.values);
    squares += norm * norm;
  }
  constexpr double kNothing = 1e-3;
  const double least = kNothing * std::sqrt(squares);
  TensorDifference worst;
  for (const auto& [name, tensor] : expected) {
    const double relative =
        relative_to(norm_of_difference(gradients.at(name).values, tensor.values),
                    std::max(least, norm_of(tensor.values)));
    if (worst.name.empty() || relative > worst.relative) {
      worst = {.name = name, .step = 0, .relative = relative};
    }
  }
  return worst;
}

std::optional<Verification> verify(DeviceTraining& device, std::int64_t steps_before,
                                   std::int64_t steps) {
  std::optional<PlainTraining> plain;
  if (device.is_lead()) plain.emplace(device.job());
  Verification verification;
  verification.steps = steps;
  verification.tolerance = device.backend().tolerance();
  RoutingOfSteps routing;
  for (std::int64_t step = steps_before; step < steps_before + steps; ++step) {
    const NamedTensors before = whole_model(device);
    device.run(step);
    const double loss = device.loss();
    const NamedTensors gradients = device.gather(TensorKind::Gradients);
    if (!plain) continue;
    check_loss(step + 1, loss);
    plain->restore(before);
    const double expected = plain->run(step);
    const double difference = relative_to(std::abs(loss - expected), std::abs(expected));
    if (difference > verification.loss) {
      verification.loss = difference;
      verification.loss_step = step + 1;
    }
    TensorDifference worst = worst_difference(gradients, plain->tensors(TensorKind::Gradients));
    worst.step = step + 1;
    routing.add(step + 1, std::max(difference, worst.relative), plain->closest_routing(),
                verification);
    verification.tensors = gradients.size();
    if (verification.gradients.name.empty() || worst.relative > verification.gradients.relative) {
      verification.gradients = std::move(worst);
    }
  }
  if (!plain) return std::nullopt;
  return verification;
}

void run_on_threads(const TrainingJob& job, const Topology& topology, const ThreadsOptions& options,
                    const std::function<void(DeviceTraining& device)>& work) {
  const std::vector<DeviceIndex> devices = job.numbers();
  ThreadNetwork network(topology, devices, options.transport);
  const std::vector<DeviceSchedule> schedules = schedules_of_numbers(job);
  const bool has_cores = options.computes_on_threads && devices.size() <= usable_cores();
  on_threads(network, devices, [&](std::size_t place, Transport& transport) {
    std::optional<PinnedThread> pinned;
    if (has_cores) pinned.emplace(place);
    std::unique_ptr<Transport> over;
    if (options.make_end_over) over = options.make_end_over(transport, schedules, place);
    DeviceTraining device(job, devices[place], over ? *over : transport, options.make_backend);
    work(device);
    device.await_readers();
  });
}

}  // namespace dapple::exec
