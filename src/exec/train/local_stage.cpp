#include "exec/train/local_stage.h"

#include <algorithm>

#include "dapple/core/error.h"

namespace dapple::exec {

namespace {

SampleRange samples_of_replica(const TrainingJob& job, StageIndex stage, std::size_t replica) {
  const StagePlan& plan = job.plan.stages[stage.position()];
  const auto devices = static_cast<std::size_t>(plan.devices_per_replica);
  return samples_of(job.plan, plan, replica * devices);
}

/// Returns the share of its replica's samples that a rank has, where the plan has the samples of
/// all ranks.
SampleRange samples_of_rank(const TrainingJob& job, StageIndex stage, std::size_t replica,
                            std::int64_t rank) {
  const Parallelism& form = job.form(stage);
  const SampleRange of_replica = samples_of_replica(job, stage, replica);
  const SampleRange own = replica_share(of_replica.size(), form.replicas_in_group(),
                                        rank / (form.tensor * form.context));
  return {of_replica.begin + own.begin, of_replica.begin + own.end};
}

/// Returns the ranks of a stage, other than this one, with which it exchanges any numbers of a
/// micro-batch.
template <class Count>
std::vector<SchedulePeer> peers(const TrainingJob& job, StageIndex of, const LocalStage& own,
                                std::int32_t micro_batch, const Count& count) {
  std::vector<SchedulePeer> found;
  const auto replicas = static_cast<std::size_t>(replicas_of(job.plan.stages[of.position()]));
  for (std::size_t replica = 0; replica < replicas; ++replica) {
    for (std::int64_t rank = 0; rank < job.form(of).group_size(); ++rank) {
      const LocalStage other = stage_of_replica(job, of, replica, rank);
      if (other.number == own.number || share_of(other, micro_batch).size() == 0) continue;
      const Bytes size{count(other) * static_cast<std::int64_t>(sizeof(float))};
      if (size == Bytes{}) continue;
      found.push_back({.device = other.number,
                       .samples = intersection(own.samples, other.samples),
                       .size = size});
    }
  }
  return found;
}

}  // namespace

LocalStage stage_of_replica(const TrainingJob& job, StageIndex stage, std::size_t replica,
                            std::int64_t rank) {
  const StagePlan& plan = job.plan.stages[stage.position()];
  return {.index = stage,
          .plan = plan,
          .replica = replica,
          .rank = rank,
          .number = job.number_in_replica(stage, replica, rank),
          .samples = job.reshards() ? samples_of_rank(job, stage, replica, rank)
                                    : samples_of_replica(job, stage, replica)};
}

std::optional<LocalStage> local_stage(const TrainingJob& job, StageIndex stage,
                                      const TrainingDevice& device) {
  const StagePlan& plan = job.plan.stages[stage.position()];
  const auto here = std::find(plan.devices.begin(), plan.devices.end(), device.device);
  if (here == plan.devices.end()) return std::nullopt;
  const auto replica = static_cast<std::size_t>(here - plan.devices.begin()) /
                       static_cast<std::size_t>(plan.devices_per_replica);
  return stage_of_replica(job, stage, replica, device.in(plan.form).number);
}

SampleRange share_of(const LocalStage& stage, std::int32_t micro_batch) {
  const bool is_dealt = stage.plan.replication == Replication::Deal;
  const auto replicas = static_cast<std::size_t>(replicas_of(stage.plan));
  if (is_dealt && static_cast<std::size_t>(micro_batch) % replicas != stage.replica) return {};
  return stage.samples;
}

StageBoundary::StageBoundary(const TrainingJob& job, Direction direction, StageIndex from)
    : maker(from) {
  const bool is_forward = direction == Direction::Forward;
  const LayerRange layers = job.plan.stages[from.position()].layers;
  taker = is_forward ? from.next() : from.previous();
  cut = is_forward ? layers.end : layers.begin;
}

TensorPart part_of(const TrainingJob& job, const StageBoundary& boundary, const LocalStage& stage) {
  const auto in_front = static_cast<std::size_t>(boundary.cut) - 1;
  const Parallelism& form = job.form(stage.index);
  const nn::LayerRank rank = form_rank(form, stage.rank).layers;
  return {.samples = stage.samples,
          .of_sample = nn::output_part((*job.layers)[in_front], rank),
          .rank = stage.rank,
          .ranks = form.group_size()};
}

std::vector<SchedulePeer> receivers(const TrainingJob& job, const StageBoundary& boundary,
                                    const LocalStage& maker, std::int32_t micro_batch) {
  const TensorPart own = part_of(job, boundary, maker);
  return peers(job, boundary.taker, maker, micro_batch, [&](const LocalStage& taker) {
    return count_of_sent(own, part_of(job, boundary, taker));
  });
}

std::vector<SchedulePeer> senders(const TrainingJob& job, const StageBoundary& boundary,
                                  const LocalStage& taker, std::int32_t micro_batch) {
  const TensorPart own = part_of(job, boundary, taker);
  return peers(job, boundary.maker, taker, micro_batch, [&](const LocalStage& maker) {
    return count_of_sent(part_of(job, boundary, maker), own);
  });
}

TensorPart part_of_peer(const TrainingJob& job, const StageBoundary& boundary, StageIndex stage,
                        DeviceIndex number) {
  const std::optional<LocalStage> peer = local_stage(job, stage, job.device_numbered(number));
  check(peer.has_value(), "a rank of another stage takes part in a transfer");
  return part_of(job, boundary, *peer);
}

SampleRange intersection(SampleRange a, SampleRange b) {
  const std::int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

nn::Shape with_samples(std::int64_t samples, const nn::Shape& sample) {
  nn::Shape shape{samples};
  shape.insert(shape.end(), sample.begin(), sample.end());
  return shape;
}

}  // namespace dapple::exec
