// A stage of the plan as one of its replicas computes it, or a rank of one: which samples of each
// micro-batch, and which part of the tensors between stages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "dapple/exec/reshard/fragment_place.h"
#include "dapple/exec/reshard/tensor_part.h"
#include "dapple/exec/train/training_job.h"

namespace dapple::exec {

struct LocalStage {
  StageIndex index;
  const StagePlan& plan;
  std::size_t replica = 0;
  /// The number of the rank in its group, where the replica is one, and among all devices.
  std::int64_t rank = 0;
  DeviceIndex number;
  /// The samples of each micro-batch that the replica works on or, where stages have different
  /// groups, this rank of it.
  SampleRange samples;

  bool is_first() const { return index.value == 0; }
};

/// Returns the stage as a replica of it, or a rank of one, computes it. The job must outlive the
/// result.
LocalStage stage_of_replica(const TrainingJob& job, StageIndex stage, std::size_t replica,
                            std::int64_t rank);

/// Returns the device's replica of the stage, or nothing if it has none. The job must outlive the
/// result.
std::optional<LocalStage> local_stage(const TrainingJob& job, StageIndex stage,
                                      const TrainingDevice& device);

/// Returns the samples of a micro-batch that the replica works on; none if the micro-batch is dealt
/// to another replica.
SampleRange share_of(const LocalStage& stage, std::int32_t micro_batch);

/// What stages with different groups exchange in one direction: the activations between two layers,
/// or their gradients.
struct StageBoundary {
  /// Requires: the stage is not the last one, or the first one for gradients.
  StageBoundary(const TrainingJob& job, Direction direction, StageIndex from);

  StageIndex maker;
  StageIndex taker;
  /// The layer behind the boundary.
  std::int32_t cut;
};

/// Returns the part that a rank has of a tensor at the boundary. Requires: the stage is one of the
/// boundary's.
TensorPart part_of(const TrainingJob& job, const StageBoundary& boundary, const LocalStage& stage);

/// Returns the other ranks, by their numbers among all devices, that get a part of a micro-batch's
/// tensor from this rank of the maker, or that send one to this rank of the taker. O(ranks of the
/// other stage * positions).
std::vector<SchedulePeer> receivers(const TrainingJob& job, const StageBoundary& boundary,
                                    const LocalStage& maker, std::int32_t micro_batch);
std::vector<SchedulePeer> senders(const TrainingJob& job, const StageBoundary& boundary,
                                  const LocalStage& taker, std::int32_t micro_batch);

/// Returns the part that such a peer has, of the maker or the taker.
TensorPart part_of_peer(const TrainingJob& job, const StageBoundary& boundary, StageIndex stage,
                        DeviceIndex number);

SampleRange intersection(SampleRange a, SampleRange b);

/// Returns the shape of a batch of `samples` samples of shape `sample`.
nn::Shape with_samples(std::int64_t samples, const nn::Shape& sample);

}  // namespace dapple::exec
