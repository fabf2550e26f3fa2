#include "dapple/exec/cpu_backend.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "dapple/core/error.h"
#include "stage_parameters.h"
#include "value_payload.h"

namespace dapple {

/// What is held of a micro-batch between its forward and the end of its backward.
struct CpuBackend::Kept {
  nn::Tensor input;                // where the forward is run again
  std::vector<nn::Stash> stashes;  // by layer; none before the forward is run again
  Bytes size;
};

struct CpuBackend::Stage {
  StageIndex index;
  const StagePlan& plan;
  std::size_t replica = 0;
  SampleRange samples;  // of each of its micro-batches
  StageParameters parameters;
  std::map<std::int32_t, Kept> kept = {};  // by micro-batch
  Held held = {};
  Held most_held = {};

  /// Brings the books up to date once something of a micro-batch was made or given back.
  void account(Kept& of_micro_batch);
  void release(std::int32_t micro_batch);
};

namespace {

Bytes size_of(const nn::Tensor& tensor) {
  return {static_cast<std::int64_t>(tensor.values.size() * sizeof(float))};
}

/// Samples of a micro-batch that a replica of a stage works on; none of one dealt to another.
SampleRange share_of(const Plan& plan, const StagePlan& stage, std::size_t replica,
                     std::int32_t micro_batch) {
  const bool is_dealt = stage.replication == Replication::Deal;
  if (is_dealt && static_cast<std::size_t>(micro_batch) % stage.devices.size() != replica)
    return {};
  return samples_of(plan, stage, replica);
}

SampleRange intersection(SampleRange a, SampleRange b) {
  const std::int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

/// Where sample `sample` of the micro-batch begins in a tensor that starts with sample `first`.
std::size_t offset_of(const nn::Tensor& tensor, std::int64_t first, std::int64_t sample) {
  const std::int64_t floats =
      nn::count_of(tensor.shape) / std::max<std::int64_t>(1, tensor.samples());
  return static_cast<std::size_t>((sample - first) * floats);
}

nn::Shape with_samples(std::int64_t samples, const nn::Shape& sample) {
  nn::Shape shape{samples};
  shape.insert(shape.end(), sample.begin(), sample.end());
  return shape;
}

}  // namespace

void CpuBackend::Stage::account(Kept& of_micro_batch) {
  Bytes now = size_of(of_micro_batch.input);
  for (const nn::Stash& stash : of_micro_batch.stashes) now += nn::size_of(stash);
  held.size = held.size - of_micro_batch.size + now;
  of_micro_batch.size = now;
  held.micro_batches = static_cast<std::int64_t>(kept.size());
  most_held.micro_batches = std::max(most_held.micro_batches, held.micro_batches);
  most_held.size = std::max(most_held.size, held.size);
}

void CpuBackend::Stage::release(std::int32_t micro_batch) {
  held.size = held.size - kept.at(micro_batch).size;
  kept.erase(micro_batch);
}

CpuBackend::CpuBackend(const TrainingJob& job, DeviceIndex device) : job_(job) {
  by_stage_.resize(job.plan.stages.size());
  for (std::size_t s = 0; s < by_stage_.size(); ++s) {
    const StagePlan& plan = job.plan.stages[s];
    const auto here = std::find(plan.devices.begin(), plan.devices.end(), device);
    if (here == plan.devices.end()) continue;
    const auto replica = static_cast<std::size_t>(here - plan.devices.begin());
    stages_.push_back(index_at<StageIndex>(s));
    by_stage_[s] =
        std::make_unique<Stage>(Stage{.index = stages_.back(),
                                      .plan = plan,
                                      .replica = replica,
                                      .samples = samples_of(job.plan, plan, replica),
                                      .parameters = StageParameters(job, stages_.back())});
  }
}

CpuBackend::~CpuBackend() = default;

void CpuBackend::begin(std::int64_t iteration) {
  check(arriving_.empty() && leaving_.empty(), "an iteration has left a tensor on its way");
  iteration_ = iteration;
  losses_.clear();
  for (const StageIndex stage : stages_) stage_at(stage).parameters.clear_gradients();
}

CpuBackend::Stage& CpuBackend::stage_at(StageIndex index) const {
  Stage* stage = by_stage_[index.position()].get();
  check(stage != nullptr, "a device computes a stage of another one");
  return *stage;
}

StageParameters& CpuBackend::parameters(StageIndex stage) {
  return stage_at(stage).parameters;
}

CpuBackend::Held CpuBackend::most_held(StageIndex stage) const {
  return stage_at(stage).most_held;
}

bool CpuBackend::is_last(const Stage& stage) const {
  return stage.index.position() + 1 == job_.plan.stages.size();
}

SampleRange CpuBackend::in_global_batch(const Stage& stage, std::int32_t micro_batch) const {
  const std::int64_t first = micro_batch * job_.plan.micro_batch_size;
  return {first + stage.samples.begin, first + stage.samples.end};
}

Batch CpuBackend::batch_of(const Stage& stage, std::int32_t micro_batch) const {
  const SampleRange samples = in_global_batch(stage, micro_batch);
  return job_.batches->samples(iteration_, samples.begin, samples.end);
}

/// Of what is on its way: activations go into the stage, gradients come back to its output.
const nn::Shape& CpuBackend::sample_shape(const Place& place) const {
  const LayerRange layers = job_.plan.stages[place.stage.position()].layers;
  const std::int32_t taker = place.direction == Direction::Forward ? layers.begin : layers.end;
  return job_.layer(taker).input;
}

CpuBackend::Parcel& CpuBackend::arriving(const Place& place) {
  const auto [found, is_new] = arriving_.try_emplace(place);
  Parcel& parcel = found->second;
  if (is_new) {
    parcel.samples = stage_at(place.stage).samples;
    parcel.samples_left = parcel.samples.size();
    parcel.tensor = nn::zeros(with_samples(parcel.samples.size(), sample_shape(place)));
  }
  return parcel;
}

void CpuBackend::take_in(const Action& receive, const SchedulePeer& from, Payload payload) {
  const bool is_forward = receive.kind == ActionKind::ReceiveActivation;
  Parcel& parcel = arriving(
      {is_forward ? Direction::Forward : Direction::Backward, receive.stage, receive.index});
  const std::size_t begin = offset_of(parcel.tensor, parcel.samples.begin, from.samples.begin);
  const std::size_t end = offset_of(parcel.tensor, parcel.samples.begin, from.samples.end);
  copy_values(payload, std::span(parcel.tensor.values).subspan(begin, end - begin));
  parcel.samples_left -= from.samples.size();
}

Payload CpuBackend::give_out(const Action& send, const SchedulePeer& to) {
  const bool is_forward = send.kind == ActionKind::SendActivation;
  const auto found = leaving_.find(
      {is_forward ? Direction::Forward : Direction::Backward, send.stage, send.index});
  check(found != leaving_.end(), "a device sends what it has not made");
  Parcel& parcel = found->second;
  const std::size_t begin = offset_of(parcel.tensor, parcel.samples.begin, to.samples.begin);
  const std::size_t end = offset_of(parcel.tensor, parcel.samples.begin, to.samples.end);
  Payload payload =
      payload_of(std::span<const float>(parcel.tensor.values).subspan(begin, end - begin));
  parcel.samples_left -= to.samples.size();
  if (parcel.samples_left == 0) leaving_.erase(found);
  return payload;
}

nn::Tensor CpuBackend::take_arrived(const Place& place) {
  const auto found = arriving_.find(place);
  check(found != arriving_.end() && found->second.samples_left == 0,
        "a computation begins before all of its samples are there");
  nn::Tensor tensor = std::move(found->second.tensor);
  arriving_.erase(found);
  return tensor;
}

/// What the neighbouring stage needs of it on this device goes there, the rest waits to be sent.
void CpuBackend::hand_on(const Place& made, nn::Tensor tensor) {
  const bool is_forward = made.direction == Direction::Forward;
  const StageIndex taker = is_forward ? made.stage.next() : made.stage.previous();
  Parcel parcel{.tensor = std::move(tensor), .samples = stage_at(made.stage).samples};
  parcel.samples_left = parcel.samples.size();
  if (const Stage* next = by_stage_[taker.position()].get()) {
    const SampleRange stays = intersection(
        parcel.samples, share_of(job_.plan, next->plan, next->replica, made.micro_batch));
    if (stays.size() > 0) put_in({made.direction, taker, made.micro_batch}, stays, parcel);
    parcel.samples_left -= stays.size();
  }
  if (parcel.samples_left > 0) leaving_.emplace(made, std::move(parcel));
}

void CpuBackend::put_in(const Place& place, SampleRange samples, const Parcel& from) {
  Parcel& parcel = arriving(place);
  const auto source =
      from.tensor.values.begin() +
      static_cast<std::ptrdiff_t>(offset_of(from.tensor, from.samples.begin, samples.begin));
  const std::size_t begin = offset_of(parcel.tensor, parcel.samples.begin, samples.begin);
  const std::size_t end = offset_of(parcel.tensor, parcel.samples.begin, samples.end);
  std::copy_n(source, end - begin,
              parcel.tensor.values.begin() + static_cast<std::ptrdiff_t>(begin));
  parcel.samples_left -= samples.size();
}

void CpuBackend::compute(const Action& action, const BucketReady& ready) {
  Stage& stage = stage_at(action.stage);
  if (action.kind == ActionKind::Forward) return forward(stage, action.index);
  backward(stage, action, ready);
}

void CpuBackend::forward(Stage& stage, std::int32_t micro_batch) {
  nn::Tensor input = stage.index.value == 0
                         ? batch_of(stage, micro_batch).inputs
                         : take_arrived({Direction::Forward, stage.index, micro_batch});
  Kept& kept = stage.kept[micro_batch];
  if (stage.plan.recompute) kept.input = input;
  nn::Tensor output = run_layers(stage, micro_batch, std::move(input),
                                 stage.plan.recompute ? nullptr : &kept.stashes);
  stage.account(kept);
  if (is_last(stage)) return note_losses(stage, micro_batch, output);
  hand_on({Direction::Forward, stage.index, micro_batch}, std::move(output));
}

/// Without `stashes` nothing is kept.
nn::Tensor CpuBackend::run_layers(const Stage& stage, std::int32_t micro_batch, nn::Tensor input,
                                  std::vector<nn::Stash>* stashes) {
  const nn::Tensor targets = is_last(stage) ? batch_of(stage, micro_batch).targets : nn::Tensor{};
  for (std::int32_t layer = stage.plan.layers.begin; layer < stage.plan.layers.end; ++layer) {
    nn::Stash stash;
    const nn::Module& module = *job_.layer(layer).module;
    input = module.forward(stage.parameters.parameters(layer), std::move(input), targets, stash);
    if (stashes != nullptr) stashes->push_back(std::move(stash));
  }
  return input;
}

void CpuBackend::note_losses(const Stage& stage, std::int32_t micro_batch,
                             const nn::Tensor& losses) {
  std::int64_t sample = in_global_batch(stage, micro_batch).begin;
  for (const float loss : losses.values) losses_.push_back({sample++, loss});
}

void CpuBackend::backward(Stage& stage, const Action& action, const BucketReady& ready) {
  const bool makes_input = makes_input_gradient(action.kind);
  const bool makes_weights = makes_weight_gradient(action.kind);
  Kept& kept = stage.kept.at(action.index);
  nn::Tensor gradient;
  if (makes_input) {
    gradient = output_gradient(stage, action.index);
    if (stage.plan.recompute) {
      run_layers(stage, action.index, std::move(kept.input), &kept.stashes);
      kept.input = {};
      stage.account(kept);
    }
  }
  const std::vector<std::int32_t>& filled_by = job_.buckets[stage.index.position()].first_layer;
  std::size_t bucket = 0;
  for (std::int32_t layer = stage.plan.layers.end - 1; layer >= stage.plan.layers.begin; --layer) {
    const nn::Module& module = *job_.layer(layer).module;
    nn::Stash& stash = kept.stashes[static_cast<std::size_t>(layer - stage.plan.layers.begin)];
    if (makes_input) {
      gradient =
          module.input_gradient(stage.parameters.parameters(layer), std::move(gradient), stash);
    }
    if (!makes_weights) continue;
    module.weight_gradient(stash, stage.parameters.gradients(layer));
    if (!ready || bucket == filled_by.size() || filled_by[bucket] != layer) continue;
    ready(static_cast<std::int32_t>(bucket++));
  }
  stage.account(kept);
  if (makes_weights) stage.release(action.index);
  if (!makes_input || stage.index.value == 0) return;
  hand_on({Direction::Backward, stage.index, action.index}, std::move(gradient));
}

/// The loss is the mean over the global batch.
nn::Tensor CpuBackend::output_gradient(const Stage& stage, std::int32_t micro_batch) {
  if (!is_last(stage)) return take_arrived({Direction::Backward, stage.index, micro_batch});
  nn::Tensor gradient = nn::zeros({stage.samples.size()});
  const float share = 1.0F / static_cast<float>(job_.plan.global_batch_size);
  std::fill(gradient.values.begin(), gradient.values.end(), share);
  return gradient;
}

std::span<float> CpuBackend::bucket(const Action& reduction, Bytes size) {
  const bool is_tied = reduction.kind == ActionKind::ReduceTied;
  if (is_tied) gather_tied(reduction);
  StageParameters& parameters = stage_at(reduction.stage).parameters;
  const std::span<float> gradients = is_tied ? parameters.gradients_of_tie(reduction.index)
                                             : parameters.gradients_of(layers_of_bucket(reduction));
  check(static_cast<std::int64_t>(gradients.size_bytes()) == size.count,
        "a bucket has another size than the plan says");
  return gradients;
}

/// Adds those of this device's other stages to those of the one that the reduction goes by.
void CpuBackend::gather_tied(const Action& reduction) {
  const TiedGradients& tied = job_.plan.tied_gradients[static_cast<std::size_t>(reduction.index)];
  const std::span<float> sum =
      stage_at(reduction.stage).parameters.gradients_of_tie(reduction.index);
  for (const StageIndex other : tied.stages) {
    Stage* stage = by_stage_[other.position()].get();
    if (stage == nullptr || other == reduction.stage) continue;
    const std::span<const float> own = stage->parameters.gradients_of_tie(reduction.index);
    std::transform(own.begin(), own.end(), sum.begin(), sum.begin(), std::plus<>());
  }
}

/// From the stage of this device that the reductions of tied gradients went by.
void CpuBackend::take_reduced(Stage& stage) {
  for (const std::int32_t tie : ties_of(job_.plan, {stage.index})) {
    const StageIndex speaker =
        speaker_of(job_.plan.tied_gradients[static_cast<std::size_t>(tie)], stages_);
    if (speaker == stage.index) continue;
    const std::span<const float> sum = stage_at(speaker).parameters.gradients_of_tie(tie);
    std::copy(sum.begin(), sum.end(), stage.parameters.gradients_of_tie(tie).begin());
  }
}

/// From the layer that fills it to the one that has filled the bucket before; all of them where
/// there is no bucket.
LayerRange CpuBackend::layers_of_bucket(const Action& action) const {
  const StagePlan& plan = job_.plan.stages[action.stage.position()];
  const std::vector<std::int32_t>& filled_by = job_.buckets[action.stage.position()].first_layer;
  if (filled_by.empty()) return plan.layers;
  const auto bucket = static_cast<std::size_t>(action.index);
  return {filled_by[bucket], bucket == 0 ? plan.layers.end : filled_by[bucket - 1]};
}

void CpuBackend::step(const Action& action) {
  Stage& stage = stage_at(action.stage);
  const std::int32_t steps = optimizer_steps(job_.plan, action.stage);
  const auto own = std::max<std::size_t>(1, job_.buckets[action.stage.position()].sizes.size());
  const std::int64_t number = iteration_ + 1;
  if (steps == 1) {
    stage.parameters.step(stage.plan.layers, number);
  } else if (static_cast<std::size_t>(action.index) < own) {
    stage.parameters.step(layers_of_bucket(action), number);
  }
  if (action.index + 1 < steps) return;
  take_reduced(stage);
  stage.parameters.step_tied(number);
}

}  // namespace dapple
