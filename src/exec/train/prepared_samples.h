// What a device's stages take of an iteration's samples, made before the iteration begins: making
// them up, or reading them, is no part of a forward.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "dapple/exec/train/training_job.h"
#include "dapple/nn/tensor.h"
#include "exec/train/local_stage.h"

namespace dapple::exec {

class PreparedSamples {
 public:
  /// The job must outlive it.
  explicit PreparedSamples(const TrainingJob& job) : job_(job) {}

  /// Drops what is left of the iteration before.
  void begin(std::int64_t iteration);

  /// Makes what the stage takes of its micro-batches: the first stage inputs, the last one targets.
  /// Larger batches than kMostNumbers in all are made as far as that goes, and the rest when it is
  /// taken.
  void prepare(const LocalStage& stage);

  /// Once for each micro-batch of an iteration. O(1) where they are prepared.
  nn::Tensor take_inputs(const LocalStage& stage, std::int32_t micro_batch);

  /// As often as wanted, as a stage that recomputes takes them twice.
  nn::Tensor targets(const LocalStage& stage, std::int32_t micro_batch) const;

 private:
  /// 256 MiB of inputs and targets.
  static constexpr std::int64_t kMostNumbers = std::int64_t{1} << 26;

  nn::Tensor make_inputs(const LocalStage& stage, std::int32_t micro_batch) const;
  nn::Tensor make_targets(const LocalStage& stage, std::int32_t micro_batch) const;

  const TrainingJob& job_;
  std::int64_t iteration_ = 0;
  std::int64_t numbers_ = 0;                    // prepared for this iteration
  std::map<std::int32_t, nn::Tensor> inputs_;   // by micro-batch, of the first stage
  std::map<std::int32_t, nn::Tensor> targets_;  // of the last stage
};

}  // namespace dapple::exec
