// The samples of an iteration that a device's stages take, made before the iteration begins, so
// that generating or reading them does not count as part of a forward.
#pragma once

#include <cstdint>
#include <map>

#include "dapple/exec/train/training_job.h"
#include "dapple/nn/tensor.h"
#include "exec/train/local_stage.h"

namespace dapple::exec {

/// Returns the number, in the global batch, of one of the samples of a rank.
inline std::int64_t number_of_sample(const SampleRank& rank, std::int64_t own) {
  return own * rank.ranks + rank.rank;
}

class PreparedSamples {
 public:
  /// The samples of a rank. The job must outlive it.
  PreparedSamples(const TrainingJob& job, const SampleRank& rank) : job_(job), rank_(rank) {}

  /// Begins an iteration and drops what is left of the one before.
  void begin(std::int64_t iteration);

  /// Makes what the stage needs for its micro-batches: inputs for the first stage, targets for the
  /// last. Stops once kMostNumbers numbers have been made; the rest is made when it is taken.
  void prepare(const LocalStage& stage);

  /// Returns a micro-batch's inputs and drops them here. To be called once for each micro-batch of
  /// an iteration. O(1) if they are prepared.
  nn::Tensor take_inputs(const LocalStage& stage, std::int32_t micro_batch);

  /// Returns a micro-batch's targets. May be called repeatedly, as stages that recompute do.
  nn::Tensor targets(const LocalStage& stage, std::int32_t micro_batch) const;

 private:
  /// 256 MiB of inputs and targets.
  static constexpr std::int64_t kMostNumbers = std::int64_t{1} << 26;

  nn::Tensor make_inputs(const LocalStage& stage, std::int32_t micro_batch) const;
  nn::Tensor make_targets(const LocalStage& stage, std::int32_t micro_batch) const;

  const TrainingJob& job_;
  const SampleRank rank_;
  std::int64_t iteration_ = 0;
  std::int64_t numbers_ = 0;                    // prepared for this iteration
  std::map<std::int32_t, nn::Tensor> inputs_;   // of the first stage, by micro-batch
  std::map<std::int32_t, nn::Tensor> targets_;  // of the last stage, by micro-batch
};

}  // namespace dapple::exec
