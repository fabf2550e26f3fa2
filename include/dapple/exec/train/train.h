// Training by a plan, step by step, with checkpoints; and whether the plan's gradients are those of
// one device. Each function is one device's part, over any transport.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/exec/message/thread_transport.h"
#include "dapple/exec/run/measured_run.h"
#include "dapple/exec/train/device_training.h"

namespace dapple::exec {

struct StepReport {
  std::int64_t number = 0;  // from one, over the whole training
  double loss = 0;          // mean over the global batch, before the step
  Duration time;            // of the iteration on the first device
};

/// The same on all devices; what is called is called in the device's thread, and but for
/// `should_stop` on the first one alone.
struct TrainOptions {
  std::int64_t steps_before = 0;  // made before, by the training that is gone on with
  std::int64_t steps = 10;
  std::int64_t save_every = 0;  // steps; 0: in the end alone
  std::function<void(const StepReport&)> on_step = nullptr;
  /// Asked after each step; the training ends on all devices if it is to on any.
  std::function<bool()> should_stop = nullptr;
  /// Given the model and the optimizer's state, and the steps that led to them.
  std::function<void(std::int64_t steps, NamedTensors tensors)> save = nullptr;
};

struct Trained {
  std::int64_t steps = 0;  // made, less than asked for where it was stopped
  MeasuredRun measured;    // of the last steps, a hundred at most
  Duration whole_step;     // the median of them, with what lies between iterations, without saving
};

/// What was measured is known to the first device alone. Throws Error(BadInput) naming the step
/// where the loss is no number, or a tensor that is to be saved has one that is none: nothing is
/// saved of it. Requires: at least one step.
std::optional<Trained> train(DeviceTraining& device, const TrainOptions& options);

/// Relative to what one device, without a pipeline, makes of the same parameters and samples.
struct TensorDifference {
  std::string name;
  std::int64_t step = 0;  // from one
  /// Norm of the difference over the norm of the tensor, or over a thousandth of the norm of all
  /// gradients where that is more: in what is nothing but rounding, there is nothing to compare.
  double relative = 0;
};

struct Verification {
  std::int64_t steps = 0;
  std::size_t tensors = 0;
  TensorDifference gradients;  // of the tensor that differs most
  double loss = 0;             // largest difference of the losses, relative
  std::int64_t loss_step = 1;

  double tolerance = 0;  // of the backend: what rounding may explain
  bool passed() const { return gradients.relative <= tolerance && loss <= tolerance; }
};

/// Trains for so many steps and has the first device, the only one to know the result, do the same
/// by itself on the CPU; it begins every step with the plan's parameters, so that what is compared
/// is one step and not what many have made of a last bit.
std::optional<Verification> verify(DeviceTraining& device, std::int64_t steps_before,
                                   std::int64_t steps);

/// The tensor of `gradients` that differs most from the one of the same name in `expected`; a
/// number that is none differs infinitely. Requires: the same names and shapes.
TensorDifference worst_difference(const NamedTensors& gradients, const NamedTensors& expected);

struct ThreadsOptions {
  ThreadTransportOptions transport = {};
  MakeBackend make_backend = make_cpu_backend;
  MakeEndOver make_end_over = nullptr;
  bool computes_on_threads = true;  // which then have a core each, where there are as many
};

/// All devices of the job on threads, each over its end: `work` is what each does.
void run_on_threads(const TrainingJob& job, const Topology& topology, const ThreadsOptions& options,
                    const std::function<void(DeviceTraining& device)>& work);

}  // namespace dapple::exec
