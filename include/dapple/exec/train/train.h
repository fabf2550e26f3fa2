// Training by a plan, step by step, with checkpoints, and verification of the plan's gradients
// against those of one device. train() and verify() are one device's part, over any transport.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "dapple/core/quantity.h"
#include "dapple/exec/message/thread_transport.h"
#include "dapple/exec/run/measured_run.h"
#include "dapple/exec/train/device_training.h"

namespace dapple::exec {

struct StepReport {
  /// The step's number, counted from one over the whole training.
  std::int64_t number = 0;
  /// The mean loss over the global batch, before the parameters are updated.
  double loss = 0;
  /// The iteration's time on the first device.
  Duration time;
};

/// Options of a training, the same on all devices. Callbacks run in the device's thread, all but
/// `should_stop` on the first device only.
struct TrainOptions {
  /// Steps made by the training that this one continues.
  std::int64_t steps_before = 0;
  std::int64_t steps = 10;
  /// The number of steps between checkpoints; 0: only at the end.
  std::int64_t save_every = 0;
  std::function<void(const StepReport&)> on_step = nullptr;
  /// Called after each step; the training ends on all devices if it returns true on any.
  std::function<bool()> should_stop = nullptr;
  /// Receives the model and the optimizer's state, and the number of steps that led to them.
  std::function<void(std::int64_t steps, NamedTensors tensors)> save = nullptr;
};

struct Trained {
  /// The steps made; fewer than requested if the training was stopped.
  std::int64_t steps = 0;
  /// The measurements of the last steps, at most a hundred.
  MeasuredRun measured;
  /// The median duration of these steps, including the time between iterations but not saving.
  Duration whole_step;
};

/// Trains for the given steps and returns the result on the first device only. Throws
/// Error(BadInput) naming the step if the loss is not finite, or if a tensor to be saved has a
/// number that is not finite; that checkpoint is not saved. Requires: at least one step.
std::optional<Trained> train(DeviceTraining& device, const TrainOptions& options);

/// How far a tensor is from the one that a single device without a pipeline computes from the same
/// parameters and samples.
struct TensorDifference {
  std::string name;
  std::int64_t step = 0;  // from one
  /// The norm of the difference, divided by the norm of the expected tensor or by a thousandth of
  /// the norm of all gradients, whichever is larger, so that tensors that are mere rounding errors
  /// do not count.
  double relative = 0;
};

/// The margin between experts' scores that rounding does not close. Where it is no larger, the plan
/// may choose other experts than one device does, and then its gradients say nothing about it.
inline constexpr double kLeastRoutingMargin = 1e-3;

struct Verification {
  std::int64_t steps = 0;
  std::size_t tensors = 0;
  /// The difference of the tensor that differs most.
  TensorDifference gradients;
  /// The largest relative difference of the losses.
  double loss = 0;
  std::int64_t loss_step = 1;

  /// The backend's tolerance: the relative difference that rounding may cause.
  double tolerance = 0;
  bool passed() const { return gradients.relative <= tolerance && loss <= tolerance; }

  /// Where experts are closest to being others, and in which step, from one: of all steps with a
  /// margin of at most least_margin(), or of those that differ if some do. Nothing if there are
  /// none.
  std::optional<ClosestRouting> routing = {};
  std::int64_t routing_step = 0;
  /// Whether some step differs in which no margin is so small.
  bool differs_beyond_routing = false;
  /// Whether what differs may be due to the choice of experts alone.
  bool is_undecided() const { return !passed() && !differs_beyond_routing; }
  /// Scores differ by rounding, too.
  double least_margin() const { return std::max(kLeastRoutingMargin, tolerance); }
};

/// Trains for `steps` steps and has the first device repeat each of them alone on the CPU. Each
/// repeated step begins with the plan's parameters, so single steps are compared and rounding
/// errors do not accumulate. A step whose gradients agree is verified however close the scores of
/// experts are, as these were then the same. Returns the result on the first device only. Throws
/// Error(BadInput) naming the step if the loss is not finite.
std::optional<Verification> verify(DeviceTraining& device, std::int64_t steps_before,
                                   std::int64_t steps);

/// Returns the difference of the tensor of `gradients` that differs most from the one of the same
/// name in `expected`; NaN counts as an infinite difference. Requires: the same names and shapes.
TensorDifference worst_difference(const NamedTensors& gradients, const NamedTensors& expected);

struct ThreadsOptions {
  ThreadTransportOptions transport = {};
  MakeBackend make_backend = make_cpu_backend;
  /// Called with the schedules of all numbers of the job.
  MakeEndOver make_end_over = nullptr;
  /// Whether devices compute on the CPU: then each thread is pinned to a core of its own, if there
  /// are enough cores.
  bool computes_on_threads = true;
};

/// Runs `work` for every device of the job, each on a thread and over a transport of its own. The
/// topology is that of single devices, also where those of the plan are groups.
void run_on_threads(const TrainingJob& job, const Topology& topology, const ThreadsOptions& options,
                    const std::function<void(DeviceTraining& device)>& work);

}  // namespace dapple::exec
