// One device's part of training by a plan, over any transport. All devices of the job make the same
// calls at the same time, each on a thread or in a process of its own.
//
// Where the plan's devices are groups, every rank of a group runs the group's schedule: it
// exchanges tensors with the ranks of its number in other groups, or where stages have different
// groups with those that hold or need what it needs or holds, reduces gradients with those of its
// number in its stage's replicas, and shares layers, or shards of all state, with other ranks of
// its own group.
//
// The first device of the job is its lead: it gathers what no single device knows, such as the loss
// and whole models.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dapple/exec/message/transport.h"
#include "dapple/exec/run/interpreter.h"
#include "dapple/exec/run/measured_run.h"
#include "dapple/exec/train/cpu_backend.h"
#include "dapple/exec/train/named_tensors.h"
#include "dapple/exec/train/training_backend.h"
#include "dapple/exec/train/training_job.h"
#include "dapple/nn/routing_margins.h"

namespace dapple::exec {

class RankGroups;

class DeviceTraining {
 public:
  /// Starts with initial parameters. `number` is one of job.numbers(), which are those of the
  /// transport. All arguments must outlive it. Requires: the backends of all devices are of one
  /// kind.
  DeviceTraining(const TrainingJob& job, DeviceIndex number, Transport& transport,
                 const MakeBackend& make_backend = make_cpu_backend);
  DeviceTraining(const DeviceTraining&) = delete;
  DeviceTraining& operator=(const DeviceTraining&) = delete;

  ~DeviceTraining();

  bool is_lead() const { return number_ == lead(); }
  const TrainingJob& job() const { return job_; }
  const TrainingBackend& backend() const { return *backend_; }

  /// Sets the parameters and the optimizer's state. Throws Bug if a tensor is missing or has
  /// another shape.
  void restore(const NamedTensors& tensors);

  /// Runs one iteration; they are counted from zero over the whole training. Throws what transports
  /// throw; the job is aborted then.
  MeasuredIteration run(std::int64_t iteration);

  /// Returns the mean loss of the last iteration on the lead, zero on other devices.
  double loss();

  /// Returns all tensors of a kind, of the whole model after the last iteration, on the lead; none
  /// on other devices. Gradients are reduced and clipped.
  NamedTensors gather(TensorKind kind);

  /// Returns the measurements of these iterations, which end with the last one run, on the lead;
  /// nothing on other devices. Of a group the times are those of the first rank. The bytes sent are
  /// the mean over all iterations run so far, times the number of these iterations.
  std::optional<MeasuredRun> gather_measured(std::vector<MeasuredIteration> iterations);

  /// Whether the answer of any device is true; all devices get the same result.
  bool any_says(bool answer);

  /// Waits until no other device reads this device's memory, as others may do with GPU memory. Must
  /// be the last call if devices share a process; run() begins with it.
  void await_readers();

 private:
  MessageKey key(StageIndex stage, std::int32_t step, DeviceIndex from, DeviceIndex to) const;
  DeviceIndex lead() const { return numbers_.front(); }
  std::vector<DeviceIndex> holders_of(StageIndex stage, TensorKind kind) const;
  void look_at_gradients();
  std::vector<double> squares();

  const TrainingJob& job_;
  const std::vector<DeviceIndex> numbers_;  // of all devices
  const DeviceIndex number_;
  // It connects all devices by their numbers.
  Transport& transport_;
  const std::unique_ptr<RankGroups> groups_;
  std::int64_t iteration_ = -1;  // the last one run
  std::int64_t iterations_ = 0;  // run so far
  Bytes sent_;                   // in all iterations run so far
  std::unique_ptr<TrainingBackend> backend_;
  Interpreter interpreter_;
};

/// A position whose experts have the smallest margin of all that were routed.
struct ClosestRouting {
  std::string layer;
  /// The sample's number in the global batch, and the position's in the sample, from zero.
  std::int64_t sample = 0;
  std::int64_t token = 0;
  /// How many experts are chosen.
  std::int64_t per_token = 1;
  nn::RoutingMargin margin;
};

/// The same training on one device without a pipeline, action by action: the reference that a
/// plan's training is compared with.
class PlainTraining {
 public:
  /// Takes the job's model, samples and micro-batches, and copies the job.
  explicit PlainTraining(const TrainingJob& job,
                         const MakeBackend& make_backend = make_cpu_backend);

  void restore(const NamedTensors& tensors);
  /// Runs one iteration and returns its mean loss.
  double run(std::int64_t iteration);
  NamedTensors tensors(TensorKind kind);
  /// Returns the position of the last iteration whose experts have the smallest margin; nothing if
  /// no layer chooses some of several experts. Requires: the backend is a CPU's.
  std::optional<ClosestRouting> closest_routing() const;

 private:
  TrainingDevice make_device();

  TrainingJob job_;
  // By layer; empty where none has experts. The backend's layers add to them.
  std::vector<nn::RoutingMargins> margins_;
  std::unique_ptr<TrainingBackend> backend_;
};

}  // namespace dapple::exec
