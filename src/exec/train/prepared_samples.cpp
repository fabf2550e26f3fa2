#include "exec/train/prepared_samples.h"

#include <utility>

namespace dapple::exec {
namespace {

SampleRange samples_in_batch(const TrainingJob& job, const LocalStage& stage,
                             std::int32_t micro_batch) {
  const std::int64_t first = micro_batch * job.plan.micro_batch_size + stage.samples.begin;
  return {first, first + stage.samples.size()};
}

/// Returns the tensors of single samples as one.
template <class SampleAt>
nn::Tensor joined(const SampleRank& rank, SampleRange samples, const SampleAt& sample_at) {
  nn::Tensor all;
  for (std::int64_t own = samples.begin; own < samples.end; ++own) {
    const nn::Tensor one = sample_at(number_of_sample(rank, own));
    if (all.shape.empty()) {
      all = one;
      continue;
    }
    ++all.shape.front();
    all.values.insert(all.values.end(), one.values.begin(), one.values.end());
  }
  return all;
}

bool is_last(const TrainingJob& job, const LocalStage& stage) {
  return stage.index.position() + 1 == job.plan.stages.size();
}

}  // namespace

void PreparedSamples::begin(std::int64_t iteration) {
  iteration_ = iteration;
  numbers_ = 0;
  inputs_.clear();
  targets_.clear();
}

void PreparedSamples::prepare(const LocalStage& stage) {
  const auto keep = [this](std::map<std::int32_t, nn::Tensor>& kept, std::int32_t micro_batch,
                           nn::Tensor tensor) {
    numbers_ += static_cast<std::int64_t>(tensor.values.size());
    kept.emplace(micro_batch, std::move(tensor));
  };
  for (std::int32_t m = 0; m < job_.plan.num_micro_batches && numbers_ < kMostNumbers; ++m) {
    if (share_of(stage, m).size() == 0) continue;
    if (stage.is_first()) keep(inputs_, m, make_inputs(stage, m));
    if (is_last(job_, stage)) keep(targets_, m, make_targets(stage, m));
  }
}

nn::Tensor PreparedSamples::take_inputs(const LocalStage& stage, std::int32_t micro_batch) {
  auto prepared = inputs_.extract(micro_batch);
  return prepared ? std::move(prepared.mapped()) : make_inputs(stage, micro_batch);
}

nn::Tensor PreparedSamples::targets(const LocalStage& stage, std::int32_t micro_batch) const {
  const auto prepared = targets_.find(micro_batch);
  return prepared != targets_.end() ? prepared->second : make_targets(stage, micro_batch);
}

nn::Tensor PreparedSamples::make_inputs(const LocalStage& stage, std::int32_t micro_batch) const {
  const SampleRange samples = samples_in_batch(job_, stage, micro_batch);
  if (rank_.ranks == 1) return job_.batches->inputs(iteration_, samples.begin, samples.end);
  return joined(rank_, samples, [this](std::int64_t sample) {
    return job_.batches->inputs(iteration_, sample, sample + 1);
  });
}

nn::Tensor PreparedSamples::make_targets(const LocalStage& stage, std::int32_t micro_batch) const {
  const SampleRange samples = samples_in_batch(job_, stage, micro_batch);
  if (rank_.ranks == 1) return job_.batches->targets(iteration_, samples.begin, samples.end);
  return joined(rank_, samples, [this](std::int64_t sample) {
    return job_.batches->targets(iteration_, sample, sample + 1);
  });
}

}  // namespace dapple::exec
