// The stages of one device in training, on any hardware: forward, backward whole or in two parts,
// recomputation, accumulation of gradients, optimizer. The schedule decides their order; the
// stashes of a micro-batch are kept from its forward until its weight gradients are computed.
//
// Math does the computations; CpuMath documents what each of its functions has to do. Nothing here
// waits for a computation, so Math may merely enqueue it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "dapple/core/error.h"
#include "dapple/exec/reshard/resharded_tensors.h"
#include "dapple/exec/train/training_backend.h"
#include "exec/message/value_payload.h"
#include "exec/train/kept_stashes.h"
#include "exec/train/local_stage.h"
#include "exec/train/prepared_samples.h"
#include "exec/train/stage_parameters.h"
#include "exec/train/tensor_fragments.h"

namespace dapple::exec {

template <class Math>
class ModelBackend : public TrainingBackend {
 public:
  ModelBackend(const TrainingJob& job, const TrainingDevice& device, std::unique_ptr<Math> math);

  /// Runs all computations of an iteration once, for one micro-batch, because a GPU loads its
  /// kernels when it first uses them. Must be called before the first begin(), which clears its
  /// effects. Requires: Math supports it, which that of a GPU does.
  void warm_up();

  /// Tensors that are re-sharded pass through the host.
  Memory memory() const override { return job_.reshards() ? Memory::Host : Math::kMemory; }
  bool is_read_in_place() const override { return Math::kMemory == Memory::Device; }
  Mark mark(Stream stream) override { return math_->mark(stream); }
  std::int64_t moment_of(const Mark& mark) override { return math_->moment_of(mark); }

  void begin(std::int64_t iteration) override;
  void take_in(const Action& receive, const SchedulePeer& from, Payload payload) override;
  Payload give_out(const Action& send, const SchedulePeer& to) override;
  void compute(const Action& action, const BucketReady& ready) override;
  std::vector<std::unique_ptr<ReductionBuffer>> gradients(const Action& reduction,
                                                          Bytes size) override;
  void step(const Action& action) override;
  std::vector<Gathered> gathered(const Action& step) override {
    return takes_steps_ ? at(step.stage).parameters.gathered() : std::vector<Gathered>{};
  }
  void take_gathered(const Action& step) override {
    math_->await_reductions();
    at(step.stage).parameters.take_gathered();
    at(step.stage).parameters.gather_updated_copies(*math_);
  }

  const std::vector<StageIndex>& stages() const override { return stages_; }
  std::vector<SampleLoss> losses() override;
  Held most_held(StageIndex stage) const override { return at(stage).stashes.most(); }
  std::vector<double> squares(StageIndex stage) override {
    math_->await_reductions();
    return at(stage).parameters.squares();
  }
  void gather_gradients(StageIndex stage) override;
  void scale_gradients(float factor) override;
  double tolerance() const override { return math_->tolerance(); }
  bool scales_loss() const override { return math_->scales_loss(); }
  void judge_gradients(bool are_finite) override {
    takes_steps_ = math_->accepts_gradients(are_finite);
  }
  std::span<const float> values(StageIndex stage, TensorKind kind) override {
    return at(stage).parameters.values(kind);
  }
  void restore(const NamedTensors& tensors) override;

 private:
  using Tensor = typename Math::Tensor;
  using Kept = typename KeptStashes<Math>::Kept;
  using Arrival = typename TensorFragments<Math>::Arrival;

  struct Stage {
    Stage(Math& math, const TrainingJob& job, const LocalStage& own, const TrainingDevice& device)
        : local(own),
          ties(ties_of(job.plan, {own.index})),
          parameters(math, job, own.index, device) {}

    const LocalStage local;
    const std::vector<std::int32_t> ties;  // used by its layers
    StageParameters<Math> parameters;
    KeptStashes<Math> stashes;
  };

  Stage& at(StageIndex index) const {
    Stage* stage = by_stage_[index.position()].get();
    check(stage != nullptr, "a device computes a stage of another one");
    return *stage;
  }
  /// Returns the rank among those that each send a share of what they all have, over the boundary
  /// through which a tensor arrives at a stage or leaves it; a single one where it is sent whole.
  nn::TensorRank sharing_rank(const FragmentPlace& place, bool is_arriving) const {
    const bool is_behind = (place.direction == Direction::Backward) == is_arriving;
    const StageIndex front = is_behind ? place.stage : place.stage.previous();
    if (job_.sends_shares.empty() || !job_.sends_shares[front.position()]) return {};
    return device_.in(at(place.stage).local.plan.form).layers.tensor;
  }
  bool is_last(const Stage& stage) const {
    return stage.local.index.position() + 1 == job_.plan.stages.size();
  }
  std::int64_t first_sample(const Stage& stage, std::int32_t micro_batch) const {
    return micro_batch * job_.plan.micro_batch_size + stage.local.samples.begin;
  }
  /// Returns the shape of one sample of an activation, that of the taker's input, or of a gradient,
  /// that of its output.
  const nn::Shape& arriving_shape(const FragmentPlace& place) const {
    const LayerRange layers = at(place.stage).local.plan.layers;
    return place.direction == Direction::Forward ? job_.layer(layers.begin).input
                                                 : job_.layer(layers.end - 1).output;
  }
  Arrival arrival(const FragmentPlace& place) const {
    return {place, at(place.stage).local.samples, arriving_shape(place)};
  }
  ReshardedTensors::Arrival resharded_arrival(const StageBoundary& boundary,
                                              const FragmentPlace& place) const {
    const LocalStage& taker = at(place.stage).local;
    return {place, part_of(job_, boundary, taker),
            with_samples(taker.samples.size(), arriving_shape(place))};
  }
  void warm_up(Stage& stage);
  void warm_up_layers(Stage& stage);
  void forward(Stage& stage, std::int32_t micro_batch);
  Tensor run_layers(Stage& stage, std::int32_t micro_batch, Tensor input,
                    std::vector<typename Math::Stash>* stashes);
  void backward(Stage& stage, const Action& action, const BucketReady& ready);
  void complete_layer(Stage& stage, std::int32_t layer, const BucketReady& ready);
  void complete_stage(Stage& stage);
  void compute_nothing(Stage& stage, const Action& action, const BucketReady& ready,
                       bool recomputes);
  Tensor output_gradient(const Stage& stage, std::int32_t micro_batch);
  Tensor take_arrived(const Stage& stage, Direction direction, std::int32_t micro_batch);
  void hand_on(const Stage& stage, Direction direction, std::int32_t micro_batch, Tensor tensor);
  void reshard(const Stage& stage, const FragmentPlace& made, nn::Tensor tensor);
  void take_reduced(Stage& stage);

  const TrainingJob& job_;
  const TrainingDevice device_;
  std::unique_ptr<Math> math_;
  std::int64_t iteration_ = 0;
  bool takes_steps_ = true;  // in this iteration
  std::vector<StageIndex> stages_;
  std::vector<std::unique_ptr<Stage>> by_stage_;  // null where another device holds it
  PreparedSamples samples_;
  TensorFragments<Math> fragments_{*math_};
  ReshardedTensors resharded_;  // in place of the fragments, where stages have different groups
  std::vector<std::pair<std::int64_t, Tensor>> losses_;  // with their first sample
};

template <class Math>
ModelBackend<Math>::ModelBackend(const TrainingJob& job, const TrainingDevice& device,
                                 std::unique_ptr<Math> math)
    : job_(job), device_(device), math_(std::move(math)), samples_(job, device.samples) {
  by_stage_.resize(job.plan.stages.size());
  for (std::size_t s = 0; s < by_stage_.size(); ++s) {
    const auto own = local_stage(job, index_at<StageIndex>(s), device);
    if (!own) continue;
    stages_.push_back(own->index);
    by_stage_[s] = std::make_unique<Stage>(*math_, job, *own, device);
  }
}

template <class Math>
void ModelBackend<Math>::warm_up() {
  for (const StageIndex stage : stages_) warm_up(at(stage));
}

/// The loss gradient is zero, so zeros are added to the gradients, and all ranks that gather
/// parameters have the same.
template <class Math>
void ModelBackend<Math>::warm_up(Stage& stage) {
  if (stage.local.samples.size() > 0) {
    warm_up_layers(stage);
  } else {
    // As often as ranks with samples, which compute nothing again.
    constexpr bool kRecomputes = false;
    compute_nothing(stage, {ActionKind::Forward, 0, stage.local.index}, nullptr, kRecomputes);
    compute_nothing(stage, {ActionKind::Backward, 0, stage.local.index}, nullptr, kRecomputes);
  }
  const BucketReady reduces_nothing = [](std::int32_t /*bucket*/) {};
  const LayerRange layers = stage.local.plan.layers;
  for (std::int32_t layer = layers.end - 1; layer >= layers.begin; --layer) {
    complete_layer(stage, layer, reduces_nothing);
  }
  complete_stage(stage);
  gather_gradients(stage.local.index);
  stage.parameters.gather_updated_copies(*math_);
  stage.parameters.warm_up();
}

template <class Math>
void ModelBackend<Math>::warm_up_layers(Stage& stage) {
  const std::int64_t samples = stage.local.samples.size();
  const auto zeros = [&](const nn::Shape& sample) {
    return math_->zeros(with_samples(samples, sample));
  };
  const LayerRange layers = stage.local.plan.layers;
  std::vector<typename Math::Stash> stashes;
  run_layers(stage, 0,
             stage.local.is_first() ? math_->input(samples_.take_inputs(stage.local, 0))
                                    : zeros(job_.layer(layers.begin).input),
             &stashes);
  Tensor gradient =
      is_last(stage) ? math_->loss_gradient(samples, 0) : zeros(job_.layer(layers.end - 1).output);
  for (std::int32_t layer = layers.end - 1; layer >= layers.begin; --layer) {
    typename Math::Stash& stash = stashes[static_cast<std::size_t>(layer - layers.begin)];
    gradient = math_->input_gradient(layer, stage.parameters.parameters(*math_, layer).views(),
                                     std::move(gradient), stash);
    auto sums = stage.parameters.gradients(*math_, layer);
    math_->weight_gradient(layer, stash, sums.views());
    stage.parameters.add_shards(*math_, layer, std::move(sums));
  }
}

template <class Math>
void ModelBackend<Math>::begin(std::int64_t iteration) {
  check(fragments_.is_empty() && resharded_.is_empty(),
        "an iteration has left a tensor on its way");
  iteration_ = iteration;
  losses_.clear();
  takes_steps_ = true;
  math_->begin();
  samples_.begin(iteration);
  for (const StageIndex stage : stages_) {
    at(stage).parameters.clear_gradients();
    samples_.prepare(at(stage).local);
  }
}

template <class Math>
void ModelBackend<Math>::take_in(const Action& receive, const SchedulePeer& from, Payload payload) {
  const bool is_forward = receive.kind == ActionKind::ReceiveActivation;
  const Direction direction = is_forward ? Direction::Forward : Direction::Backward;
  const FragmentPlace place{direction, receive.stage, receive.index};
  if (!job_.reshards()) {
    return fragments_.take_in(arrival(place), from.samples, std::move(payload),
                              sharing_rank(place, /*is_arriving=*/true));
  }
  const StageIndex maker = is_forward ? receive.stage.previous() : receive.stage.next();
  const StageBoundary boundary(job_, direction, maker);
  resharded_.take_in(resharded_arrival(boundary, place),
                     part_of_peer(job_, boundary, maker, from.device), std::move(payload));
}

template <class Math>
Payload ModelBackend<Math>::give_out(const Action& send, const SchedulePeer& to) {
  const bool is_forward = send.kind == ActionKind::SendActivation;
  const Direction direction = is_forward ? Direction::Forward : Direction::Backward;
  const FragmentPlace made{direction, send.stage, send.index};
  if (!job_.reshards()) {
    return fragments_.give_out(made, to.samples, sharing_rank(made, /*is_arriving=*/false));
  }
  const StageBoundary boundary(job_, direction, send.stage);
  return resharded_.give_out(made, part_of_peer(job_, boundary, boundary.taker, to.device));
}

/// Returns a complete activation that a stage takes in, or the gradient of its output.
template <class Math>
typename Math::Tensor ModelBackend<Math>::take_arrived(const Stage& stage, Direction direction,
                                                       std::int32_t micro_batch) {
  const FragmentPlace place{direction, stage.local.index, micro_batch};
  if (job_.reshards()) {
    const bool is_forward = direction == Direction::Forward;
    const StageIndex maker = is_forward ? place.stage.previous() : place.stage.next();
    return math_->from_host(
        resharded_.take_arrived(resharded_arrival(StageBoundary(job_, direction, maker), place)));
  }
  return fragments_.take_arrived(place, sharing_rank(place, /*is_arriving=*/true));
}

/// Keeps what other ranks get of a tensor, and hands over what this one needs on its next stage.
template <class Math>
void ModelBackend<Math>::reshard(const Stage& stage, const FragmentPlace& made, nn::Tensor tensor) {
  const StageBoundary boundary(job_, made.direction, made.stage);
  TensorPart own = part_of(job_, boundary, stage.local);
  const Stage* next = by_stage_[boundary.taker.position()].get();
  if (next != nullptr && share_of(next->local, made.micro_batch).size() > 0) {
    auto arrival = resharded_arrival(boundary, {made.direction, boundary.taker, made.micro_batch});
    if (count_of_sent(own, arrival.part) > 0) {
      resharded_.take_in(arrival, own, payload_of(take_sent(tensor.values, own, arrival.part)));
    }
  }
  const auto others = receivers(job_, boundary, stage.local, made.micro_batch);
  resharded_.hand_on(made, std::move(own), std::move(tensor),
                     static_cast<std::int64_t>(others.size()));
}

/// Samples that the neighbouring stage takes on this device go there directly; the rest waits to be
/// sent.
template <class Math>
void ModelBackend<Math>::hand_on(const Stage& stage, Direction direction, std::int32_t micro_batch,
                                 Tensor tensor) {
  const StageIndex own = stage.local.index;
  const StageIndex taker = direction == Direction::Forward ? own.next() : own.previous();
  const FragmentPlace made{direction, own, micro_batch};
  if (job_.reshards()) return reshard(stage, made, math_->to_host(std::move(tensor)));
  SampleRange staying;
  if (const Stage* next = by_stage_[taker.position()].get()) {
    staying = intersection(stage.local.samples, share_of(next->local, micro_batch));
  }
  if (staying.size() == 0) return fragments_.hand_on(made, stage.local.samples, std::move(tensor));
  fragments_.hand_on(made, stage.local.samples, std::move(tensor),
                     arrival({direction, taker, micro_batch}), staying);
}

template <class Math>
void ModelBackend<Math>::compute(const Action& action, const BucketReady& ready) {
  [[maybe_unused]] const typename Math::Range range(action);
  Stage& stage = at(action.stage);
  if (stage.local.samples.size() == 0) {
    return compute_nothing(stage, action, ready, stage.local.plan.recompute);
  }
  if (action.kind == ActionKind::Forward) return forward(stage, action.index);
  backward(stage, action, ready);
}

template <class Math>
void ModelBackend<Math>::forward(Stage& stage, std::int32_t micro_batch) {
  Tensor input = stage.local.is_first()
                     ? math_->input(samples_.take_inputs(stage.local, micro_batch))
                     : take_arrived(stage, Direction::Forward, micro_batch);
  Kept& kept = stage.stashes.add(micro_batch);
  const bool recomputes = stage.local.plan.recompute;
  if (recomputes) kept.input = math_->copy_of(input);
  Tensor output =
      run_layers(stage, micro_batch, std::move(input), recomputes ? nullptr : &kept.stashes);
  stage.stashes.account(kept);
  if (is_last(stage)) {
    losses_.emplace_back(first_sample(stage, micro_batch), std::move(output));
  } else {
    hand_on(stage, Direction::Forward, micro_batch, std::move(output));
  }
}

/// The layers' stashes are appended to `stashes`, or dropped if it is null.
template <class Math>
typename Math::Tensor ModelBackend<Math>::run_layers(Stage& stage, std::int32_t micro_batch,
                                                     Tensor input,
                                                     std::vector<typename Math::Stash>* stashes) {
  const Tensor targets =
      is_last(stage) ? math_->targets(samples_.targets(stage.local, micro_batch)) : Tensor{};
  const LayerRange layers = stage.local.plan.layers;
  for (std::int32_t layer = layers.begin; layer < layers.end; ++layer) {
    typename Math::Stash stash;
    const auto parameters = stage.parameters.parameters(*math_, layer);
    input = math_->forward(layer, parameters.views(), std::move(input), targets, stash);
    if (stashes != nullptr) stashes->push_back(std::move(stash));
  }
  return input;
}

template <class Math>
void ModelBackend<Math>::backward(Stage& stage, const Action& action, const BucketReady& ready) {
  const bool makes_input = makes_input_gradient(action.kind);
  const bool makes_weights = makes_weight_gradient(action.kind);
  Kept& kept = stage.stashes.of(action.index);
  Tensor gradient;
  if (makes_input) {
    gradient = output_gradient(stage, action.index);
    if (stage.local.plan.recompute) {
      run_layers(stage, action.index, std::move(kept.input), &kept.stashes);
      kept.input = {};
      stage.stashes.account(kept);
    }
  }
  const LayerRange layers = stage.local.plan.layers;
  for (std::int32_t layer = layers.end - 1; layer >= layers.begin; --layer) {
    typename Math::Stash& stash = kept.stashes[static_cast<std::size_t>(layer - layers.begin)];
    if (makes_input) {
      const auto parameters = stage.parameters.parameters(*math_, layer);
      gradient = math_->input_gradient(layer, parameters.views(), std::move(gradient), stash);
    }
    if (!makes_weights) continue;
    auto sums = stage.parameters.gradients(*math_, layer);
    math_->weight_gradient(layer, stash, sums.views());
    stage.parameters.add_shards(*math_, layer, std::move(sums));
    if (ready) complete_layer(stage, layer, ready);
  }
  if (makes_weights && ready) complete_stage(stage);
  stage.stashes.account(kept);
  if (makes_weights) stage.stashes.release(action.index);
  if (!makes_input || stage.local.is_first()) return;
  hand_on(stage, Direction::Backward, action.index, std::move(gradient));
}

/// Sums the complete gradients of a layer over the ranks that have to, and says so of the bucket
/// that it fills. To be called layer by layer, the last one first.
template <class Math>
void ModelBackend<Math>::complete_layer(Stage& stage, std::int32_t layer,
                                        const BucketReady& ready) {
  stage.parameters.sum_over_ranks(*math_, layer);
  const StageIndex index = stage.local.index;
  const std::vector<std::int32_t>& filled_by = job_.buckets[index.position()].first_layer;
  const auto bucket = std::find(filled_by.begin(), filled_by.end(), layer);
  if (bucket == filled_by.end()) return;
  const auto number = static_cast<std::int32_t>(bucket - filled_by.begin());
  stage.parameters.scatter_copies(*math_, layers_of_bucket(job_, index, number));
  ready(number);
}

/// The same for what is in no bucket.
template <class Math>
void ModelBackend<Math>::complete_stage(Stage& stage) {
  const bool has_buckets = !job_.buckets[stage.local.index.position()].first_layer.empty();
  if (!has_buckets) stage.parameters.scatter_copies(*math_, stage.local.plan.layers);
  stage.parameters.sum_ties_over_ranks(*math_);
  for (const std::int32_t tie : stage.ties) stage.parameters.scatter_copies_of_tie(*math_, tie);
}

/// A rank that has no sample of any micro-batch takes part in what ranks with other samples do
/// together: it gathers parameters, and adds nothing to gradients.
template <class Math>
void ModelBackend<Math>::compute_nothing(Stage& stage, const Action& action,
                                         const BucketReady& ready, bool recomputes) {
  const bool is_forward = action.kind == ActionKind::Forward;
  const bool makes_input = makes_input_gradient(action.kind);
  const LayerRange layers = stage.local.plan.layers;
  if (is_forward || (makes_input && recomputes)) {
    for (std::int32_t layer = layers.begin; layer < layers.end; ++layer) {
      stage.parameters.parameters(*math_, layer);
    }
  }
  if (is_forward) return;
  const bool makes_weights = makes_weight_gradient(action.kind);
  for (std::int32_t layer = layers.end - 1; layer >= layers.begin; --layer) {
    if (makes_input) stage.parameters.parameters(*math_, layer);
    if (!makes_weights) continue;
    stage.parameters.add_shards(*math_, layer, stage.parameters.gradients(*math_, layer));
    if (ready) complete_layer(stage, layer, ready);
  }
  if (makes_weights && ready) complete_stage(stage);
}

/// The loss is the mean over the global batch, so each sample's loss has the gradient 1 / B.
template <class Math>
typename Math::Tensor ModelBackend<Math>::output_gradient(const Stage& stage,
                                                          std::int32_t micro_batch) {
  if (!is_last(stage)) return take_arrived(stage, Direction::Backward, micro_batch);
  const float share = 1.0F / static_cast<float>(job_.global_batch_size());
  return math_->loss_gradient(stage.local.samples.size(), share);
}

template <class Math>
std::vector<SampleLoss> ModelBackend<Math>::losses() {
  std::vector<SampleLoss> losses;
  for (const auto& [first, tensor] : losses_) {
    std::int64_t sample = first;
    for (const float loss : math_->on_host(tensor)) {
      losses.push_back({number_of_sample(device_.samples, sample++), loss});
    }
  }
  return losses;
}

/// Tied gradients are reduced in the memory of one stage of the device, to which those of its other
/// stages are added.
template <class Math>
std::vector<std::unique_ptr<ReductionBuffer>> ModelBackend<Math>::gradients(const Action& reduction,
                                                                            Bytes size) {
  StageParameters<Math>& parameters = at(reduction.stage).parameters;
  std::vector<std::unique_ptr<ReductionBuffer>> buffers;
  if (reduction.kind == ActionKind::ReduceTied) {
    std::vector<typename Math::Numbers> others;
    const TiedGradients& tied = job_.plan.tied_gradients[static_cast<std::size_t>(reduction.index)];
    for (const StageIndex other : tied.stages) {
      if (by_stage_[other.position()] == nullptr || other == reduction.stage) continue;
      others.push_back(at(other).parameters.gradients_of_tie(reduction.index));
    }
    buffers.push_back(
        math_->buffer(parameters.gradients_of_tie(reduction.index), std::move(others)));
  } else {
    const LayerRange layers = layers_of_bucket(job_, reduction.stage, reduction.index);
    for (const typename Math::Numbers& part : parameters.gradients_of(layers)) {
      buffers.push_back(math_->buffer(part, {}));
    }
  }
  std::size_t numbers = 0;
  for (const std::unique_ptr<ReductionBuffer>& buffer : buffers) numbers += buffer->size();
  // The plan rounds the size of what each of several ranks reduces.
  const Parallelism& form = job_.form(reduction.stage);
  const bool is_exact = form.copies() == 1 && form.expert_copies() == 1;
  check(!is_exact || static_cast<std::int64_t>(numbers * sizeof(float)) == size.count,
        "a bucket has another size than the plan says");
  return buffers;
}

/// Copies reduced tied gradients from the stage of this device that took part in the reduction.
template <class Math>
void ModelBackend<Math>::take_reduced(Stage& stage) {
  for (const std::int32_t tie : stage.ties) {
    const StageIndex representative =
        representative_stage(job_.plan.tied_gradients[static_cast<std::size_t>(tie)], stages_);
    if (representative == stage.local.index) continue;
    math_->copy(at(representative).parameters.gradients_of_tie(tie),
                stage.parameters.gradients_of_tie(tie));
  }
}

template <class Math>
void ModelBackend<Math>::gather_gradients(StageIndex index) {
  Stage& stage = at(index);
  math_->await_reductions();
  take_reduced(stage);
  const auto buckets = static_cast<std::int32_t>(job_.buckets[index.position()].sizes.size());
  for (std::int32_t bucket = 0; bucket < std::max(1, buckets); ++bucket) {
    stage.parameters.gather_copies(*math_, layers_of_bucket(job_, index, bucket));
  }
  for (const std::int32_t tie : stage.ties) stage.parameters.gather_copies_of_tie(*math_, tie);
}

template <class Math>
void ModelBackend<Math>::scale_gradients(float factor) {
  for (const StageIndex stage : stages_) at(stage).parameters.scale_gradients(factor);
}

template <class Math>
void ModelBackend<Math>::step(const Action& action) {
  if (!takes_steps_) return;
  [[maybe_unused]] const typename Math::Range range(action);
  Stage& stage = at(action.stage);
  const std::int32_t steps = optimizer_steps(job_.plan, action.stage);
  const auto own = std::max<std::size_t>(1, job_.buckets[action.stage.position()].sizes.size());
  const std::int64_t number = iteration_ + 1;
  math_->await_reductions();
  if (steps == 1) {
    stage.parameters.step(stage.local.plan.layers, number);
  } else if (static_cast<std::size_t>(action.index) < own) {
    stage.parameters.step(layers_of_bucket(job_, action.stage, action.index), number);
  }
  if (action.index + 1 < steps) return;
  take_reduced(stage);
  stage.parameters.step_tied(stage.ties, number);
  // Otherwise they are gathered once the replicas' shards are.
  if (!job_.has_shards_of_replicas(action.stage)) stage.parameters.gather_updated_copies(*math_);
}

template <class Math>
void ModelBackend<Math>::restore(const NamedTensors& tensors) {
  for (const StageIndex stage : stages_) at(stage).parameters.restore(tensors);
}

}  // namespace dapple::exec
