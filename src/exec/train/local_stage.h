// A stage of the plan as one of its replicas computes it: which samples of each micro-batch.
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
  /// The replica's samples of each micro-batch that it works on.
  SampleRange samples;

  DeviceIndex device() const { return plan.devices[replica]; }
  bool is_first() const { return index.value == 0; }
};

/// Returns the device's replica of the stage, or nothing if it has none. The job must outlive the
/// result.
std::optional<LocalStage> local_stage(const TrainingJob& job, StageIndex stage, DeviceIndex device);

/// Returns the samples of a micro-batch that the replica works on; none if the micro-batch is dealt
/// to another replica.
SampleRange share_of(const LocalStage& stage, std::int32_t micro_batch);

SampleRange intersection(SampleRange a, SampleRange b);

/// Returns the shape of a batch of `samples` samples of shape `sample`.
nn::Shape with_samples(std::int64_t samples, const nn::Shape& sample);

}  // namespace dapple::exec
