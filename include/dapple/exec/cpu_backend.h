// The stages of one device computed on the CPU, in single precision: forward, backward whole or in
// two parts, recomputation, accumulation of gradients, optimizer. Which comes when is not decided
// here; what a micro-batch's forward left is kept until its weights' gradients are made.
//
// Samples: replica shares are intersected, so that what arrives from several peers is put together
// and what goes to several is cut. Activations and gradients between two stages of the same device
// are handed over inside.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "dapple/core/index.h"
#include "dapple/core/quantity.h"
#include "dapple/exec/backend.h"
#include "dapple/exec/training_job.h"

namespace dapple {

class StageParameters;

class CpuBackend : public Backend {
 public:
  /// Parameters as before training. The job must outlive it.
  CpuBackend(const TrainingJob& job, DeviceIndex device);
  ~CpuBackend() override;

  /// To be called before each iteration: which samples it takes, and gradients are zero again.
  void begin(std::int64_t iteration);

  void take_in(const Action& receive, const SchedulePeer& from, Payload payload) override;
  Payload give_out(const Action& send, const SchedulePeer& to) override;
  void compute(const Action& action, const BucketReady& ready) override;
  std::span<float> bucket(const Action& reduction, Bytes size) override;
  void step(const Action& action) override;

  /// Stages of this device, ascending.
  const std::vector<StageIndex>& stages() const { return stages_; }
  StageParameters& parameters(StageIndex stage);

  struct SampleLoss {
    std::int64_t sample = 0;  // of the global batch
    float loss = 0;
  };
  /// Of this iteration's samples that this device has seen in the last stage, as they came.
  const std::vector<SampleLoss>& losses() const { return losses_; }

  /// Most that a stage has held at a time since the backend was made, between the forwards of
  /// micro-batches and the end of their backwards.
  struct Held {
    std::int64_t micro_batches = 0;
    Bytes size;
  };
  Held most_held(StageIndex stage) const;

 private:
  struct Kept;   // of one micro-batch
  struct Stage;  // of this device
  enum class Direction { Forward, Backward };
  struct Place {  // of a tensor on its way: the stage that takes it in, or that made it
    Direction direction;
    StageIndex stage;
    std::int32_t micro_batch;
    friend auto operator<=>(const Place&, const Place&) = default;
  };
  struct Parcel {
    nn::Tensor tensor;
    SampleRange samples;            // of the micro-batch
    std::int64_t samples_left = 0;  // that are to arrive, or to leave
  };

  Stage& stage_at(StageIndex index) const;
  bool is_last(const Stage& stage) const;
  SampleRange in_global_batch(const Stage& stage, std::int32_t micro_batch) const;
  Batch batch_of(const Stage& stage, std::int32_t micro_batch) const;
  const nn::Shape& sample_shape(const Place& place) const;
  Parcel& arriving(const Place& place);
  void put_in(const Place& place, SampleRange samples, const Parcel& from);
  nn::Tensor take_arrived(const Place& place);
  void hand_on(const Place& made, nn::Tensor tensor);

  void forward(Stage& stage, std::int32_t micro_batch);
  nn::Tensor run_layers(const Stage& stage, std::int32_t micro_batch, nn::Tensor input,
                        std::vector<nn::Stash>* stashes);
  void note_losses(const Stage& stage, std::int32_t micro_batch, const nn::Tensor& losses);
  void backward(Stage& stage, const Action& action, const BucketReady& ready);
  nn::Tensor output_gradient(const Stage& stage, std::int32_t micro_batch);
  LayerRange layers_of_bucket(const Action& action) const;
  void gather_tied(const Action& reduction);
  void take_reduced(Stage& stage);

  const TrainingJob& job_;
  std::int64_t iteration_ = 0;
  std::vector<StageIndex> stages_;
  std::vector<std::unique_ptr<Stage>> by_stage_;  // null where another device holds it
  std::map<Place, Parcel> arriving_;
  std::map<Place, Parcel> leaving_;
  std::vector<SampleLoss> losses_;
};

}  // namespace dapple
