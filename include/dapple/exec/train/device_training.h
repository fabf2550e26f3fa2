// One device's part of training by a plan, whatever carries its messages: every device of the job
// runs the same calls at the same time, be it on a thread or as a process.
//
// The first device of the job is its lead: it is told what only all of them know together, as the
// loss and whole models.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "dapple/exec/message/transport.h"
#include "dapple/exec/run/interpreter.h"
#include "dapple/exec/run/measured_run.h"
#include "dapple/exec/train/cpu_backend.h"
#include "dapple/exec/train/named_tensors.h"
#include "dapple/exec/train/training_backend.h"
#include "dapple/exec/train/training_job.h"

namespace dapple::exec {

class DeviceTraining {
 public:
  /// Parameters as before training. All must outlive it. Requires: the backends of all devices are
  /// of one kind.
  DeviceTraining(const TrainingJob& job, DeviceIndex device, Transport& transport,
                 const MakeBackend& make_backend = make_cpu_backend);
  DeviceTraining(const DeviceTraining&) = delete;
  DeviceTraining& operator=(const DeviceTraining&) = delete;

  bool is_lead() const { return device_ == job_.devices.front().device; }
  const TrainingJob& job() const { return job_; }
  const TrainingBackend& backend() const { return *backend_; }

  /// Goes on from a model and its optimizer's state. Throws Bug where a tensor is missing or has
  /// another shape.
  void restore(const NamedTensors& tensors);

  /// One iteration, counted from zero over the whole training. Throws what transports throw; the
  /// job is aborted then.
  MeasuredIteration run(std::int64_t iteration);

  /// The mean loss of the iteration just run, on the lead; zero elsewhere.
  double loss();

  /// A kind of tensor of the whole model after the iteration just run, on the lead; none elsewhere.
  /// Gradients are reduced and clipped.
  NamedTensors gather(TensorKind kind);

  /// Of these iterations, the last of which is the one just run, on the lead; nothing elsewhere.
  /// What was sent is that of all iterations so far, each counted alike.
  std::optional<MeasuredRun> gather_measured(std::vector<MeasuredIteration> iterations);

  /// Whether any device says so; the same on all of them.
  bool any_says(bool answer);

  /// Waits until no other device reads what lies in this one's memory, as it may of a GPU's. To be
  /// called last where devices share a process; every iteration begins with it.
  void await_readers();

 private:
  std::size_t place() const;  // among the job's devices
  MessageKey key(StageIndex stage, std::int32_t step, DeviceIndex from, DeviceIndex to) const;
  DeviceIndex lead() const { return job_.devices.front().device; }
  void look_at_gradients();
  std::vector<double> squares();

  const TrainingJob& job_;
  const DeviceIndex device_;
  Transport& transport_;
  std::int64_t iteration_ = -1;  // the one just run
  std::int64_t iterations_ = 0;  // run so far
  Bytes sent_;                   // in all of them
  std::unique_ptr<TrainingBackend> backend_;
  Interpreter interpreter_;
};

/// The same training on one device without a pipeline, action by action: what a plan's is compared
/// with.
class PlainTraining {
 public:
  /// Of the job's model, samples and micro-batches.
  explicit PlainTraining(const TrainingJob& job,
                         const MakeBackend& make_backend = make_cpu_backend);

  void restore(const NamedTensors& tensors);
  /// One iteration; its mean loss.
  double run(std::int64_t iteration);
  NamedTensors tensors(TensorKind kind);

 private:
  TrainingJob job_;
  std::unique_ptr<TrainingBackend> backend_;
};

}  // namespace dapple::exec
