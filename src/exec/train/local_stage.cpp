#include "exec/train/local_stage.h"

#include <algorithm>

namespace dapple::exec {

std::optional<LocalStage> local_stage(const TrainingJob& job, StageIndex stage,
                                      DeviceIndex device) {
  const StagePlan& plan = job.plan.stages[stage.position()];
  const auto here = std::find(plan.devices.begin(), plan.devices.end(), device);
  if (here == plan.devices.end()) return std::nullopt;
  const auto replica = static_cast<std::size_t>(here - plan.devices.begin());
  return LocalStage{.index = stage,
                    .plan = plan,
                    .replica = replica,
                    .samples = samples_of(job.plan, plan, replica)};
}

SampleRange share_of(const LocalStage& stage, std::int32_t micro_batch) {
  const bool is_dealt = stage.plan.replication == Replication::Deal;
  const std::size_t replicas = stage.plan.devices.size();
  if (is_dealt && static_cast<std::size_t>(micro_batch) % replicas != stage.replica) return {};
  return stage.samples;
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
