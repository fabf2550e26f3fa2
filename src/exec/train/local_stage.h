// A stage of the plan as one of its devices computes it: which samples of each micro-batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "dapple/exec/train/training_job.h"

namespace dapple::exec {

struct LocalStage {
  StageIndex index;
  const StagePlan& plan;
  std::size_t replica = 0;
  SampleRange samples;  // of each of its micro-batches

  bool is_first() const { return index.value == 0; }
};

/// Nothing where the device has no part in the stage. The job must outlive it.
std::optional<LocalStage> local_stage(const TrainingJob& job, StageIndex stage, DeviceIndex device);

/// Samples of a micro-batch that it works on; none of one that is dealt to another replica.
SampleRange share_of(const LocalStage& stage, std::int32_t micro_batch);

SampleRange intersection(SampleRange a, SampleRange b);

/// The shape of so many samples of a shape.
nn::Shape with_samples(std::int64_t samples, const nn::Shape& sample);

}  // namespace dapple::exec
