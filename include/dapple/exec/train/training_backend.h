// A backend that trains the stages of one device: what training reads and changes in addition to
// running the schedule's actions. Its values are in host memory and in single precision, whatever
// device computes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "dapple/core/index.h"
#include "dapple/core/quantity.h"
#include "dapple/exec/run/backend.h"
#include "dapple/exec/train/named_tensors.h"
#include "dapple/exec/train/training_job.h"

namespace dapple::exec {

struct SampleLoss {
  std::int64_t sample = 0;  // index in the global batch
  float loss = 0;
};

/// What a stage keeps of micro-batches from their forward to the end of their backward.
struct Held {
  std::int64_t micro_batches = 0;
  Bytes size;
};

class TrainingBackend : public Backend {
 public:
  /// Prepares an iteration: makes its samples and clears the gradients. Must be called before each
  /// iteration.
  void begin(std::int64_t iteration) override = 0;

  /// Whether other devices may read what this one sends in its memory until an iteration is over.
  virtual bool is_read_in_place() const { return false; }

  /// The stages of this device, in ascending order.
  virtual const std::vector<StageIndex>& stages() const = 0;

  /// The losses of this iteration's samples that this device has run through the last stage, in the
  /// order of their forwards; the same on all ranks of a group.
  virtual std::vector<SampleLoss> losses() = 0;

  /// The largest count and size, each on its own, that a stage has held at one time since the
  /// backend was made.
  virtual Held most_held(StageIndex stage) const = 0;

  /// Returns, for each layer of a stage, the sum of the squares of the gradients of the layer's own
  /// parameters; with sharded state, of those that this replica updates. Of what several ranks
  /// of a group hold, only the first of them counts the gradients.
  virtual std::vector<double> squares(StageIndex stage) = 0;
  /// Gives all ranks that hold the same parameters of a stage the gradients of which each has
  /// reduced a part. To be called once per iteration for each stage, in ascending order, where
  /// there are such ranks (TrainingJob::gathers_copies()), when all gradients are reduced and no
  /// optimizer step has begun.
  virtual void gather_gradients(StageIndex /*stage*/) {}
  /// Multiplies all gradients of all stages, before the optimizer's steps.
  virtual void scale_gradients(float factor) = 0;

  /// Whether the backend uses loss scaling, because gradients may overflow its precision. Then
  /// judge_gradients() must be called before each iteration's optimizer steps with whether the
  /// gradients of all devices are finite; if they are not, the steps do nothing.
  virtual bool scales_loss() const { return false; }
  virtual void judge_gradients(bool /*are_finite*/) {}

  /// The relative difference from the gradients and losses of a single CPU that rounding may cause.
  virtual double tolerance() const = 0;

  /// Returns all numbers of a kind, in the order of StageLayout. With sharded state, the state is
  /// only that of what this replica updates, and only these gradients are reduced. Valid until the
  /// next call.
  virtual std::span<const float> values(StageIndex stage, TensorKind kind) = 0;
  /// Sets the parameters, and the optimizer's state if it has any. Throws Bug if a tensor is
  /// missing or has another shape.
  virtual void restore(const NamedTensors& tensors) = 0;
};

/// Makes a device's backend with initial parameters. The job, and the rank's group if it has one,
/// must outlive it.
using MakeBackend = std::function<std::unique_ptr<TrainingBackend>(const TrainingJob& job,
                                                                   const TrainingDevice& device)>;

}  // namespace dapple::exec
