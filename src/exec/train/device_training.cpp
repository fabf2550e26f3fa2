#include "dapple/exec/train/device_training.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>
#include <variant>

#include "dapple/core/error.h"
#include "exec/message/joint_answer.h"
#include "exec/message/value_payload.h"
#include "exec/train/loss_and_norm.h"
#include "exec/train/named_tensors.h"
#include "exec/train/rank_collectives.h"
#include "exec/train/stage_layout.h"

namespace dapple::exec {
namespace {

/// The messages around an optimizer's step that are not the schedule's, as steps of their keys,
/// which neither the parts of what a step gathers have nor what transports say about these.
enum Exchange : std::int32_t {
  kSquares = -100,
  kLosses,
  kSent,
  // One for each kind of tensor.
  kTensors,
  // This one for answers, the next for the decision.
  kAnswer = kTensors + 3,
};

/// Whether a layer's positions have some of several experts.
bool chooses_experts(const nn::ModelLayer& layer) {
  const auto* block = std::get_if<TransformerBlockOperation>(&layer.operation);
  return block != nullptr && block->experts && block->experts->per_token < block->experts->count;
}

/// Passes on whether the norm of all gradients is finite, and clips the gradients if requested.
void heed_norm(double norm, std::optional<double> clip_norm, TrainingBackend& backend) {
  backend.judge_gradients(std::isfinite(norm));
  if (clip_norm) backend.scale_gradients(clip_factor(norm, *clip_norm));
}

}  // namespace

DeviceTraining::DeviceTraining(const TrainingJob& job, DeviceIndex number, Transport& transport,
                               const MakeBackend& make_backend)
    : job_(job),
      numbers_(job.numbers()),
      number_(number),
      transport_(transport),
      groups_(std::make_unique<RankGroups>(job, job.device_numbered(number), transport)),
      backend_(make_backend(job, groups_->device())),
      interpreter_(
          groups_->schedule(),
          [this](const Action& reduction) {
            return job_.groups.of(reduction, groups_->device().device);
          },
          *backend_, groups_->between_devices(),
          job.settings.clip_norm || backend_->scales_loss() || job.gathers_copies()
              ? BeforeSteps([this](std::int64_t) { look_at_gradients(); })
              : nullptr) {}

DeviceTraining::~DeviceTraining() = default;

void DeviceTraining::restore(const NamedTensors& tensors) {
  backend_->restore(tensors);
}

MeasuredIteration DeviceTraining::run(std::int64_t iteration) {
  iteration_ = iteration;
  await_readers();
  backend_->begin(iteration);
  groups_->begin(iteration);
  const Bytes sent_before = transport_.sent();
  MeasuredIteration measured = measure(interpreter_, iteration, transport_);
  sent_ += transport_.sent() - sent_before;
  ++iterations_;
  return measured;
}

/// Returns those, by their numbers, that together have all of a stage's values of a kind: the ranks
/// of the first replica that do not have the same as others of them. All replicas have the same
/// bits, unless each has its shard, as of all but parameters where the optimizer's state is
/// sharded over replicas.
std::vector<DeviceIndex> DeviceTraining::holders_of(StageIndex stage, TensorKind kind) const {
  const bool is_in_shards = kind != TensorKind::Parameters && is_sharded(job_, stage);
  const bool differ = is_in_shards && job_.has_shards_of_replicas(stage);
  const std::int64_t replicas = differ ? replicas_of(job_.plan.stages[stage.position()]) : 1;
  const Parallelism& form = job_.form(stage);
  const bool are_all_different = is_in_shards || form.experts > 1;
  const std::int64_t ranks = are_all_different ? form.group_size() : form.tensor * form.full_shards;
  std::vector<DeviceIndex> holders;
  for (std::int64_t replica = 0; replica < replicas; ++replica) {
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      holders.push_back(job_.number_in_replica(stage, static_cast<std::size_t>(replica), rank));
    }
  }
  return holders;
}

MessageKey DeviceTraining::key(StageIndex stage, std::int32_t step, DeviceIndex from,
                               DeviceIndex to) const {
  return {.iteration = iteration_,
          .action = {ActionKind::OptimizerStep, 0, stage},
          .step = step,
          .from = from,
          .to = to};
}

void DeviceTraining::look_at_gradients() {
  if (job_.gathers_copies()) {
    for (const StageIndex stage : backend_->stages()) {
      // No other messages within a group are of a reduction.
      groups_->begin({ActionKind::AllReduce, 0, stage});
      backend_->gather_gradients(stage);
    }
  }
  if (!job_.settings.clip_norm && !backend_->scales_loss()) return;
  heed_norm(norm_of(squares()), job_.settings.clip_norm, *backend_);
}

/// Returns the sums of squares of all layers of the model: those that have a stage's gradients send
/// their own to all other devices, and all add them up in the same order.
std::vector<double> DeviceTraining::squares() {
  std::vector<std::vector<double>> own(job_.plan.stages.size());
  for (const StageIndex stage : backend_->stages()) {
    const std::vector<DeviceIndex> holders = holders_of(stage, TensorKind::Gradients);
    if (std::find(holders.begin(), holders.end(), number_) == holders.end()) continue;
    own[stage.position()] = backend_->squares(stage);
    for (const DeviceIndex other : numbers_) {
      if (other == number_) continue;
      transport_.send(key(stage, kSquares, number_, other), payload_of(own[stage.position()]));
    }
  }
  std::vector<double> all;
  for (std::size_t s = 0; s < own.size(); ++s) {
    std::vector<double> sums(static_cast<std::size_t>(job_.plan.stages[s].layers.size()));
    const auto stage = index_at<StageIndex>(s);
    for (const DeviceIndex holder : holders_of(stage, TensorKind::Gradients)) {
      const MessageKey message = key(stage, kSquares, holder, number_);
      const std::vector<double> theirs =
          holder == number_ ? own[s] : values_of<double>(transport_.receive(message, {}));
      check(theirs.size() == sums.size(), "squares of other layers than the stage has");
      std::transform(sums.begin(), sums.end(), theirs.begin(), sums.begin(), std::plus<>());
    }
    all.insert(all.end(), sums.begin(), sums.end());
  }
  return all;
}

/// Tensor-parallel and context-parallel ranks all compute the same losses, which the first ones
/// tell.
double DeviceTraining::loss() {
  const StageIndex last = index_at<StageIndex>(job_.plan.stages.size() - 1);
  const Parallelism& form = job_.form(last);
  const std::int64_t replicas = replicas_of(job_.plan.stages.back());
  std::vector<DeviceIndex> tellers;
  for (std::int64_t replica = 0; replica < replicas; ++replica) {
    for (std::int64_t rank = 0; rank < form.group_size(); rank += form.tensor * form.context) {
      tellers.push_back(job_.number_in_replica(last, static_cast<std::size_t>(replica), rank));
    }
  }
  std::vector<SampleLoss> losses = backend_->losses();
  if (!is_lead()) {
    const bool tells = std::find(tellers.begin(), tellers.end(), number_) != tellers.end();
    if (tells) transport_.send(key(last, kLosses, number_, lead()), payload_of(losses));
    return 0;
  }
  for (const DeviceIndex teller : tellers) {
    if (teller == number_) continue;
    const auto others =
        values_of<SampleLoss>(transport_.receive(key(last, kLosses, teller, number_), {}));
    losses.insert(losses.end(), others.begin(), others.end());
  }
  return mean_loss(std::move(losses));
}

NamedTensors DeviceTraining::gather(TensorKind kind) {
  const std::int64_t states = nn::state_count(job_.settings.optimizer.kind);
  NamedTensors tensors;
  for (std::size_t s = 0; s < job_.plan.stages.size(); ++s) {
    const auto stage = index_at<StageIndex>(s);
    for (const DeviceIndex holder : holders_of(stage, kind)) {
      const MessageKey message =
          key(stage, kTensors + static_cast<std::int32_t>(kind), holder, lead());
      const auto add = [&](std::span<const float> values) {
        add_tensors(StageLayout(job_, stage, job_.device_numbered(holder)), values, kind, states,
                    tensors);
      };
      if (holder == number_) {
        const std::span<const float> values = backend_->values(stage, kind);
        if (!is_lead()) transport_.send(message, payload_of(values));
        if (is_lead()) add(values);
      } else if (is_lead()) {
        add(values_of<float>(transport_.receive(message, {})));
      }
    }
  }
  return tensors;
}

std::optional<MeasuredRun> DeviceTraining::gather_measured(
    std::vector<MeasuredIteration> iterations) {
  const auto count = static_cast<std::int64_t>(iterations.size());
  const TrainingDevice& own_rank = groups_->device();
  if (own_rank.number > 0) {
    transport_.send(key(StageIndex{0}, kSent, number_, job_.number_of(own_rank.device, 0)),
                    payload_of(std::vector{sent_.count}));
    transport_.barrier();  // of exec::gather() on the first ranks
    return std::nullopt;
  }
  Bytes sent = sent_;
  for (std::int64_t rank = 1; rank < job_.ranks(); ++rank) {
    const MessageKey message =
        key(StageIndex{0}, kSent, job_.number_of(own_rank.device, rank), number_);
    sent.count += values_of<std::int64_t>(transport_.receive(message, {})).front();
  }
  const DeviceMeasurements own{.sent = {sent.count / iterations_ * count},
                               .iterations = std::move(iterations)};
  const auto found = std::find_if(
      job_.devices.begin(), job_.devices.end(),
      [&](const DeviceSchedule& schedule) { return schedule.device == own_rank.device; });
  const auto place = static_cast<std::size_t>(found - job_.devices.begin());
  return exec::gather(own, job_.devices, place, iteration_ + 1, kOne, groups_->between_devices());
}

bool DeviceTraining::any_says(bool answer) {
  const MessageKey answers = key(StageIndex{0}, kAnswer, number_, lead());
  const auto place = static_cast<std::size_t>(std::find(numbers_.begin(), numbers_.end(), number_) -
                                              numbers_.begin());
  return exec::any_says(answer, numbers_, place, answers, transport_);
}

void DeviceTraining::await_readers() {
  if (backend_->is_read_in_place()) transport_.barrier();
}

PlainTraining::PlainTraining(const TrainingJob& job, const MakeBackend& make_backend)
    : job_(on_one_device(job)), backend_(make_backend(job_, make_device())) {}

/// Margins are noted only where there are any, as whole layers are made again for that.
TrainingDevice PlainTraining::make_device() {
  TrainingDevice device(job_.devices.front().device);
  if (std::none_of(job_.layers->begin(), job_.layers->end(), chooses_experts)) return device;
  margins_.resize(job_.layers->size());
  device.forms.front().layers.margins = margins_;
  return device;
}

void PlainTraining::restore(const NamedTensors& tensors) {
  backend_->restore(tensors);
}

double PlainTraining::run(std::int64_t iteration) {
  for (nn::RoutingMargins& margins : margins_) margins.clear();
  backend_->begin(iteration);
  for (const DeviceAction& entry : job_.devices.front().actions) {
    if (entry.action.kind != ActionKind::OptimizerStep) {
      backend_->compute(entry.action, nullptr);
      continue;
    }
    if (job_.settings.clip_norm || backend_->scales_loss()) {
      heed_norm(norm_of(backend_->squares(StageIndex{0})), job_.settings.clip_norm, *backend_);
    }
    backend_->step(entry.action);
  }
  return mean_loss(backend_->losses());
}

NamedTensors PlainTraining::tensors(TensorKind kind) {
  NamedTensors tensors;
  add_tensors(StageLayout(job_, StageIndex{0}, job_.devices.front().device),
              backend_->values(StageIndex{0}, kind), kind,
              nn::state_count(job_.settings.optimizer.kind), tensors);
  return tensors;
}

/// Micro-batches run in their order, and so do the positions of their samples.
std::optional<ClosestRouting> PlainTraining::closest_routing() const {
  std::optional<ClosestRouting> closest;
  for (std::size_t l = 0; l < margins_.size(); ++l) {
    const std::optional<nn::RoutingMargin>& smallest = margins_[l].smallest();
    if (!smallest || (closest && closest->margin.size() <= smallest->size())) continue;
    const nn::ModelLayer& layer = (*job_.layers)[l];
    const auto& block = std::get<TransformerBlockOperation>(layer.operation);
    closest = {.layer = layer.name,
               .sample = smallest->position / block.sequence,
               .token = smallest->position % block.sequence,
               .per_token = block.experts->per_token,
               .margin = *smallest};
  }
  return closest;
}

}  // namespace dapple::exec
