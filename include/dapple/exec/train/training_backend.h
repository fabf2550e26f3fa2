// A backend that trains the stages of one device: what its training needs to know and to change of
// it beside the schedule's actions, in host memory and single precision wherever it computes.
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
  std::int64_t sample = 0;  // of the global batch
  float loss = 0;
};

/// What a stage holds between the forwards of micro-batches and the end of their backwards.
struct Held {
  std::int64_t micro_batches = 0;
  Bytes size;
};

class TrainingBackend : public Backend {
 public:
  /// To be called before each iteration: makes the samples that it takes, and gradients are zero
  /// again.
  void begin(std::int64_t iteration) override = 0;

  /// Stages of this device, ascending.
  virtual const std::vector<StageIndex>& stages() const = 0;

  /// Of this iteration's samples that this device has seen in the last stage, as they came.
  virtual std::vector<SampleLoss> losses() = 0;

  /// Most that a stage has held at a time since the backend was made.
  virtual Held most_held(StageIndex stage) const = 0;

  /// Sums of the squares of the gradients of the parameters that are a layer's own, for each layer
  /// of a stage.
  virtual std::vector<double> squares(StageIndex stage) = 0;
  /// All gradients of all stages, for the steps that come.
  virtual void scale_gradients(float factor) = 0;

  /// Whether gradients may be too large for what they are computed in, so that the backend has to
  /// be told before each iteration's steps whether those of all devices are numbers; if they are
  /// not, its steps do nothing.
  virtual bool scales_loss() const { return false; }
  virtual void judge_gradients(bool /*are_finite*/) {}

  /// How far gradients and losses may be from those of one CPU, relative, for reasons of rounding.
  virtual double tolerance() const = 0;

  /// All numbers of a kind, as the places of StageLayout say. Valid until the next call.
  virtual std::span<const float> values(StageIndex stage, TensorKind kind) = 0;
  /// Sets parameters, and state where there is any. Throws Bug where a tensor is missing or has
  /// another shape.
  virtual void restore(const NamedTensors& tensors) = 0;
};

/// Parameters as before training. The job must outlive it.
using MakeBackend =
    std::function<std::unique_ptr<TrainingBackend>(const TrainingJob& job, DeviceIndex device)>;

}  // namespace dapple::exec
