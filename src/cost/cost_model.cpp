#include "dapple/cost/cost_model.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "cost/slowest_replica.h"
#include "dapple/core/error.h"
#include "dapple/cost/compatible.h"
#include "dapple/profile/boundary_shares.h"
#include "dapple/profile/skip_tensors.h"

namespace dapple {

struct CostModel::Tables {
  // By number of samples and device kind.
  std::map<std::pair<std::int64_t, std::int32_t>, LayerTable> layers;
  // Prefix sums over the layers.
  std::vector<Bytes> parameters;
  std::vector<Bytes> reduced_parameters;
  std::vector<Bytes> expert_parameters;
  // The memory that `layers` occupies.
  Bytes kept;
  // Those of the stages that were costed last, by their devices: plans that are costed one after
  // another mostly have the same.
  std::map<std::vector<DeviceIndex>, AllReduceModel> reductions;
};

namespace {

std::vector<TransferEnd> transfer_ends(const Plan& plan, const StagePlan& stage,
                                       std::int64_t micro_batch) {
  if (stage.replication == Replication::Deal) {
    const auto replica =
        static_cast<std::size_t>(micro_batch % static_cast<std::int64_t>(stage.devices.size()));
    return {{.device = stage.devices[replica], .samples = {0, plan.micro_batch_size}}};
  }
  std::vector<TransferEnd> ends;
  for (std::size_t i = 0; i < stage.devices.size(); ++i) {
    const auto position = static_cast<std::int32_t>(i);
    ends.push_back({.device = stage.devices[i],
                    .samples = samples_of(plan, stage, i),
                    .member = position % stage.devices_per_replica,
                    .members = stage.devices_per_replica});
  }
  return ends;
}

/// Returns what the passes over some layers, those of a stage or its last ones, take of a NIC.
StageTraffic traffic_with(const LayerNicUse& layers, const PassTraffic& recomputed,
                          const NicUse& gathered_again) {
  const PassTraffic gathered{{}, layers.gather + gathered_again};
  const PassTraffic scattered{{}, layers.scatter};
  const PassTraffic input_gradient = layers.backward + recomputed + gathered;
  return {.forward = layers.forward + PassTraffic{{}, layers.gather},
          .backward = input_gradient + scattered,
          .input_gradient = input_gradient,
          .weight_gradient = scattered};
}

/// Returns when the buckets are ready on a replica with these figures (docs/model.md, section 7.1).
BucketMoments bucket_moments(const LayerTable& layers, const StagePlan& stage,
                             const GradientBuckets& buckets, bool overlaps) {
  const Duration recomputation = stage.recompute ? layers.forward(stage.layers) : Duration{};
  BucketMoments moments;
  const auto weight_gradient = [&](LayerRange some) {
    return layers.backward(some) - layers.input_gradient(some);
  };
  const LayerNicUse all = layers.nic_use(stage.layers);
  for (const std::int32_t first_layer : buckets.first_layer) {
    // The layers in front are the first ones of the stage, so that those that recompute are known.
    const LayerRange front{stage.layers.begin, overlaps ? first_layer : stage.layers.begin};
    moments.in_backward.push_back(recomputation + layers.backward(stage.layers) -
                                  layers.backward(front));
    moments.in_weights.push_back(weight_gradient(stage.layers) - weight_gradient(front));
    if (!layers.passes_servers()) continue;
    const LayerNicUse behind = all - layers.nic_use(front);
    const StageTraffic traffic = stage.recompute ? traffic_with(behind, all.forward, all.gather)
                                                 : traffic_with(behind, {}, {});
    moments.traffic_in_backward.push_back(traffic.backward);
    moments.traffic_in_weights.push_back(traffic.weight_gradient);
  }
  return moments;
}

/// Returns the devices over which tied gradients are reduced, in the order of the ring: by their
/// numbers, but interchangeable ones by the first stage that they run. Otherwise their numbers
/// would decide which of them sends to another server, and with shared links how long that takes.
std::vector<DeviceIndex> ring_of_tie(const TiedGradients& tied, const Plan& plan,
                                     const Topology& topology) {
  std::vector<DeviceIndex> ring;
  std::set<DeviceIndex> seen;
  for (const StageIndex stage : tied.stages) {
    std::vector<DeviceIndex> devices = plan.stages[stage.position()].devices;
    std::sort(devices.begin(), devices.end());
    for (const DeviceIndex device : devices) {
      if (seen.insert(device).second) ring.push_back(device);
    }
  }
  std::stable_sort(ring.begin(), ring.end(), [&](DeviceIndex a, DeviceIndex b) {
    return topology.first_interchangeable(a) < topology.first_interchangeable(b);
  });
  return ring;
}

/// The stage as its memory sees it, with `depth` micro-batches in flight.
StageContext context_of(const Plan& plan, std::size_t index, std::int64_t depth,
                        Bytes largest_bucket) {
  const StagePlan& stage = plan.stages[index];
  const bool is_first = index == 0;
  const bool is_last = index + 1 == plan.stages.size();
  return {.layers = stage.layers,
          .recompute = stage.recompute,
          .depth = depth,
          .depth_before = is_first ? 0 : plan.warmup_depths[index - 1],
          .depth_behind = is_last ? 0 : plan.warmup_depths[index + 1],
          .sends_before = !is_first && plan.stages[index - 1].devices != stage.devices,
          .sends_behind = !is_last && plan.stages[index + 1].devices != stage.devices,
          .largest_bucket = largest_bucket,
          .replicas = replicas_of(stage)};
}

/// Returns the size of the largest bucket; nothing where there is none.
Bytes largest_of(const GradientBuckets& buckets) {
  Bytes largest;
  for (const Bytes size : buckets.sizes) largest = std::max(largest, size);
  return largest;
}

}  // namespace

StageTraffic traffic_of(const LayerTable& table, LayerRange layers, bool recomputes) {
  const LayerNicUse use = table.nic_use(layers);
  return recomputes ? traffic_with(use, use.forward, use.gather) : traffic_with(use, {}, {});
}

CostModel::CostModel(const ModelProfile& profile, const Topology& topology)
    : CostModel(profile, topology, 1, nullptr) {}

CostModel::CostModel(const ModelProfile& profile, const Topology& topology,
                     std::int32_t devices_per_replica, const CostModel* root)
    : profile_(profile),
      topology_(topology),
      root_(root == nullptr ? this : root),
      tables_(std::make_unique<Tables>()),
      devices_per_replica_(devices_per_replica) {
  if (devices_per_replica > 1) {
    groups_ = std::make_unique<LargerGroups>(topology, devices_per_replica);
  }
  tables_->parameters.emplace_back();
  tables_->reduced_parameters.emplace_back();
  tables_->expert_parameters.emplace_back();
  const auto add = [](std::vector<Bytes>& sums, Bytes size) { sums.push_back(sums.back() + size); };
  for (std::size_t l = 0; l < profile.layers.size(); ++l) {
    add(tables_->parameters, profile.layers[l].parameters);
    add(tables_->reduced_parameters, dapple::reduced_parameters(profile, index_at<LayerIndex>(l)));
    add(tables_->expert_parameters, profile.layers[l].expert_parameters);
  }
  for (const DeviceKind& kind : topology.description().devices) {
    measured_.push_back(time_source(profile, kind).value_or(kOne).measured);
  }
  if (profile.boundaries == Boundaries::ScatterGather) {
    divided_ = cuts_with_divided_tensors(profile);
  }
  do_times_rise_ = do_times_rise(profile);
  std::set<Parallelism> known{representative_of_some_layers(profile.parallelism)};
  for (const ModelProfile& form : profile.stage_forms) {
    if (known.insert(representative_of_some_layers(form.parallelism)).second) {
      do_times_rise_ = do_times_rise_ && do_times_rise(form);
    }
    // The constructor is private.
    others_.emplace_back(
        new CostModel(form, topology, dapple::devices_per_replica(profile, form), this));
  }
  if (!others_.empty()) find_alike_forms();
}

CostModel::~CostModel() = default;

/// Finds which forms differ only in the layers that recompute, and which of them stand for others.
void CostModel::find_alike_forms() {
  std::vector<CostModel*> forms{this};
  for (const auto& other : others_) forms.push_back(other.get());
  std::map<Parallelism, std::vector<CostModel*>> by_rest;
  for (CostModel* const form : forms) {
    if (form->profile_.recomputing.empty()) continue;
    Parallelism rest = form->profile_.parallelism;
    rest.recomputed_layers = {};
    by_rest[rest].push_back(form);
  }
  for (const auto& [rest, alike] : by_rest) {
    for (CostModel* const form : alike) {
      std::copy_if(alike.begin(), alike.end(), std::back_inserter(form->alike_),
                   [&](const CostModel* other) { return other != form; });
      form->compare_with(forms);
    }
  }
}

/// Finds which of all forms stand for this one, in which only some layers recompute.
void CostModel::compare_with(const std::vector<CostModel*>& forms) {
  may_recompute_before_.push_back(0);
  for (const Layer& layer : profile_.recomputing.front().layers) {
    may_recompute_before_.push_back(may_recompute_before_.back() + (layer.recomputes ? 1 : 0));
  }
  const Parallelism& own = profile_.parallelism;
  const LayerSelection selection = own.recomputed_layers;
  for (const CostModel* form : forms) {
    const Parallelism& other = form->profile_.parallelism;
    is_beside_none_ = is_beside_none_ || other == without_recomputation(own);
    Parallelism in_own_layers = other;
    in_own_layers.recomputed_layers = selection;
    if (in_own_layers != own || selection.kind() != LayerSelection::Kind::First) continue;
    const LayerSelection others = other.recomputed_layers;
    const bool is_shorter =
        others.kind() == LayerSelection::Kind::First && others.number() < selection.number();
    if (others.is_all()) most_all_ = selection.number();
    if (is_shorter) most_all_ = std::max(most_all_, others.number());
  }
}

bool CostModel::repeats_another_form(LayerRange layers) const {
  if (may_recompute_before_.empty()) return false;
  const std::int64_t count = may_recompute_before_[static_cast<std::size_t>(layers.end)] -
                             may_recompute_before_[static_cast<std::size_t>(layers.begin)];
  const LayerSelection selection = profile_.parallelism.recomputed_layers;
  const bool none_recomputes =
      selection.kind() == LayerSelection::Kind::EveryNth ? count < selection.number() : count == 0;
  return none_recomputes ? is_beside_none_ : count <= most_all_;
}

std::vector<std::int32_t> CostModel::larger_groups() const {
  std::set<std::int32_t> sizes;
  for (const auto& other : others_) {
    if (other->devices_per_replica() > 1) sizes.insert(other->devices_per_replica());
  }
  return {sizes.begin(), sizes.end()};
}

std::int32_t CostModel::largest_group() const {
  std::int32_t largest = devices_per_replica_;
  for (const auto& other : others_) largest = std::max(largest, other->devices_per_replica());
  return largest;
}

AllReduceModel CostModel::reduction(const std::vector<DeviceIndex>& devices) const {
  return groups_ ? groups_->reduction(devices) : AllReduceModel(devices, topology_);
}

/// Returns reduction(), computed once. The reference is valid up to the next call.
const AllReduceModel& CostModel::known_reduction(const std::vector<DeviceIndex>& devices) const {
  auto& known = tables_->reductions;
  const auto found = known.find(devices);
  if (found != known.end()) return found->second;
  constexpr std::size_t kMost = 1024;
  if (known.size() == kMost) known.clear();
  return known.emplace(devices, reduction(devices)).first->second;
}

const LayerTable& CostModel::table(std::int64_t samples, std::int32_t device_kind) const {
  const std::pair key{samples, device_kind};
  const auto found = tables_->layers.find(key);
  if (found != tables_->layers.end()) return found->second;
  const DeviceKind& kind = topology_.description().devices[static_cast<std::size_t>(device_kind)];
  const std::optional<TimeSource> source = time_source(profile_, kind);
  check(source.has_value(), "a device kind without times was costed");
  return make_table(samples, device_kind, {*source});
}

const LayerTable& CostModel::least_table(std::int64_t samples) const {
  // A number that no kind has.
  constexpr std::int32_t kLeastOfKinds = -1;
  const std::pair key{samples, kLeastOfKinds};
  const auto found = tables_->layers.find(key);
  if (found != tables_->layers.end()) return found->second;
  return make_table(samples, kLeastOfKinds, least_time_sources(profile_, topology_));
}

/// Makes a table. Where a form that differs only in the layers that recompute has one, all but that
/// is copied from it.
const LayerTable& CostModel::make_table(std::int64_t samples, std::int32_t device_kind,
                                        const std::vector<TimeSource>& sources) const {
  const std::pair key{samples, device_kind};
  const LayerTable* other = nullptr;
  for (const CostModel* form : alike_) {
    const auto found = form->tables_->layers.find(key);
    if (found == form->tables_->layers.end()) continue;
    other = &found->second;
    break;
  }
  auto& tables = tables_->layers;
  const LayerTable& made =
      (other == nullptr ? tables.try_emplace(key, profile_, samples, sources)
                        : tables.try_emplace(key, *other, profile_.parallelism.recomputed_layers))
          .first->second;
  tables_->kept += made.kept();
  return made;
}

Bytes CostModel::kept_by_tables() const {
  Bytes kept = tables_->kept;
  for (const auto& other : others_) kept += other->kept_by_tables();
  return kept;
}

void CostModel::forget_tables() const {
  tables_->layers.clear();
  tables_->kept = {};
  tables_->reductions.clear();
  for (const auto& other : others_) other->forget_tables();
}

Bytes CostModel::boundary_size(std::int32_t cut, std::int64_t samples) const {
  // Sizes are the same on all kinds of devices, so any table with these samples has them.
  const auto& tables = tables_->layers;
  const auto known = tables.lower_bound({samples, std::numeric_limits<std::int32_t>::min()});
  if (known != tables.end() && known->first.first == samples) return known->second.boundary(cut);
  return table(samples, topology_.device(DeviceIndex{0}).kind).boundary(cut);
}

/// Returns the size of what these layers make of `samples` samples.
Bytes CostModel::outputs(const std::vector<LayerIndex>& layers, std::int64_t samples) const {
  const std::int64_t of_replica = profile_.group.samples_of_replica(samples);
  Bytes size;
  for (const LayerIndex layer : layers) {
    size += output_size(profile_.layers[layer.position()], of_replica);
  }
  return size;
}

StageTensors CostModel::tensors_of(const Plan& plan, StageIndex stage, std::int64_t samples) const {
  const LayerRange own = plan.stages[stage.position()].layers;
  // Sizes are the same on all kinds of devices.
  const LayerTable& table = this->table(samples, topology_.device(DeviceIndex{0}).kind);
  StageTensors tensors{.before = table.boundary(own.begin),
                       .behind = table.boundary(own.end),
                       .sent_before = {},
                       .sent_behind = {}};
  const auto sent = [&](std::size_t other, std::int32_t cut, Bytes size) {
    return Bytes{divide_up(size.count, shares_with(plan.stages[other].form, cut))};
  };
  const std::size_t last = plan.stages.size() - 1;
  const std::size_t position = stage.position();
  if (position > 0) tensors.sent_before = sent(position - 1, own.begin, tensors.before);
  if (position < last) tensors.sent_behind = sent(position + 1, own.end, tensors.behind);
  if (profile_.skip_tensors == SkipTensors::Forwarded) return tensors;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const StageIndex other = index_at<StageIndex>(s);
    if (other == stage) continue;
    const bool is_before = other < stage;
    const LayerRange others = plan.stages[s].layers;
    const std::vector<LayerIndex> layers =
        is_before ? layers_consumed(profile_, others, own) : layers_consumed(profile_, own, others);
    const Bytes size = outputs(layers, samples);
    const Bytes share{divide_up(size.count, shares_of(plan.stages[s].form, layers))};
    if (other.next() == stage) {
      tensors.before = size;
      tensors.sent_before = share;
    } else if (stage.next() == other) {
      tensors.behind = size;
      tensors.sent_behind = share;
    } else if (!layers.empty()) {
      tensors.skips.push_back(
          {.stage = other, .size = size, .sent = share, .is_before = is_before});
    }
  }
  return tensors;
}

/// Returns the sum over the layers and over the owners before them that some are tied to.
Bytes CostModel::with_ties(const std::vector<Bytes>& sums, LayerRange layers,
                           Bytes (*of_owner)(const ModelProfile&, LayerIndex)) const {
  Bytes sum =
      sums[static_cast<std::size_t>(layers.end)] - sums[static_cast<std::size_t>(layers.begin)];
  for (const Tie& tie : profile_.ties) {
    const bool is_before = tie.owner.value < layers.begin;
    if (is_before && sides_of(tie, layers).inside) sum += of_owner(profile_, tie.owner);
  }
  return sum;
}

Bytes CostModel::parameters(LayerRange layers) const {
  return with_ties(tables_->parameters, layers, [](const ModelProfile& profile, LayerIndex owner) {
    return profile.layers[owner.position()].parameters;
  });
}

Bytes CostModel::reduced_parameters(LayerRange layers) const {
  return with_ties(tables_->reduced_parameters, layers, dapple::reduced_parameters);
}

bool CostModel::shards_optimizer() const {
  return topology_.description().shards_optimizer || profile_.group.shards_optimizer;
}

Bytes CostModel::updated_parameters(LayerRange layers) const {
  const bool is_shard = profile_.group.shards_all_state || shards_optimizer();
  return is_shard ? reduced_parameters(layers) : parameters(layers);
}

Duration CostModel::optimizer_step(LayerRange layers) const {
  return optimizer_step(updated_parameters(layers));
}

Duration CostModel::group_reduction(LayerRange layers, std::int32_t device_kind) const {
  const GroupShape& group = group_on(profile_, measured_[static_cast<std::size_t>(device_kind)]);
  const bool has_copies = group.copies.members > 1 || group.expert_copies.members > 1;
  if (!has_copies || group.shards_all_state) return {};
  const Bytes of_experts = tables_->expert_parameters[static_cast<std::size_t>(layers.end)] -
                           tables_->expert_parameters[static_cast<std::size_t>(layers.begin)];
  const Factor gradient = profile_.optimizer.gradient_bytes_per_parameter_byte;
  const Factor gathered = shards_optimizer() ? kOne : gradient;
  const auto reduce = [&](Bytes parameters, const GroupRing& ring) {
    return collective_time(CollectiveKind::ReduceScatter, scale_up(parameters, gradient), ring) +
           collective_time(CollectiveKind::AllGather, scale_up(parameters, gathered), ring);
  };
  return reduce(parameters(layers) - of_experts, group.copies) +
         reduce(of_experts, group.expert_copies);
}

Duration CostModel::update(LayerRange layers, std::int64_t replicas,
                           const std::vector<std::int32_t>& kinds,
                           const AllReduceModel& reduction) const {
  const Duration step = optimizer_step(layers);
  Duration in_group = group_reduction(layers, kinds.front());
  for (std::size_t i = 1; i < kinds.size() && !profile_.other_groups.empty(); ++i) {
    in_group = std::max(in_group, group_reduction(layers, kinds[i]));
  }
  if (!topology_.description().shards_optimizer) return in_group + step;
  return in_group + Duration{divide_up(step.ns, replicas)} +
         reduction.time(reduced_parameters(layers));
}

Duration CostModel::optimizer_step(Bytes parameters) const {
  const std::optional<Factor> step = profile_.optimizer.step_ns_per_parameter_byte;
  return {step ? scale_up(parameters, *step).count : 0};
}

MemoryCost CostModel::memory_cost(const StageContext& stage, const StageTensors& tensors,
                                  const LayerTable& layers) const {
  const std::int64_t waiting_before = std::max<std::int64_t>(0, stage.depth_before - stage.depth);
  const std::int64_t waiting_behind =
      stage.depth_behind == 0 ? 0 : std::max<std::int64_t>(0, stage.depth - stage.depth_behind);
  MemoryCost cost;
  const Bytes updated = updated_parameters(stage.layers);
  cost.weights = profile_.group.shards_all_state ? updated : parameters(stage.layers);
  cost.gradients = scale_up(cost.weights, profile_.optimizer.gradient_bytes_per_parameter_byte);
  cost.framework = scale_up(cost.weights, profile_.optimizer.framework_bytes_per_parameter_byte);
  cost.optimizer_state = scale_up(updated, profile_.optimizer.state_bytes_per_parameter_byte);
  if (topology_.description().shards_optimizer) {
    cost.optimizer_state = {divide_up(cost.optimizer_state.count, stage.replicas)};
  }
  cost.communication_buffers = stage.largest_bucket;
  // Two buffers per boundary and direction, and one more for each micro-batch that may wait there.
  const auto add_buffers = [&](Bytes received, Bytes sent, std::int64_t waiting) {
    cost.communication_buffers += (2 + waiting) * received + 2 * sent;
  };
  if (stage.sends_before) add_buffers(tensors.before, tensors.sent_before, waiting_before);
  if (stage.sends_behind) add_buffers(tensors.behind, tensors.sent_behind, waiting_behind);
  Bytes received = tensors.before;
  for (const StageTensors::Skip& skip : tensors.skips) {
    add_buffers(skip.size, skip.sent, skip.waiting);
    if (skip.is_before) received += skip.size;
  }
  cost.workspace = layers.largest_workspace(stage.layers);
  cost.in_flight = stage.depth;
  cost.per_micro_batch = layers.stash(stage.layers);
  if (stage.recompute) {
    cost.recompute_stash = cost.per_micro_batch;
    // The size of the model's own input is only known as part of the first layer's stash.
    cost.per_micro_batch = stage.layers.begin == 0 ? layers.stash({0, 1}) : received;
  }
  return cost;
}

MemoryCost CostModel::memory_cost(const StageContext& stage, const StageTensors& tensors,
                                  std::int64_t samples, std::int32_t device_kind) const {
  return memory_cost(stage, tensors, table(samples, device_kind));
}

MemoryCost CostModel::memory_cost(const StageContext& stage, std::int64_t samples,
                                  std::int32_t device_kind) const {
  return memory_cost(stage, table(samples, device_kind));
}

MemoryCost CostModel::memory_cost(const StageContext& stage, const LayerTable& layers) const {
  // Beside a stage in this form; no other form has smaller shares beside this one.
  const auto sent = [&](Bytes size, std::int32_t cut) -> Bytes {
    const std::int64_t all = shares(cut);
    return all == 1 ? size : Bytes{divide_up(size.count, all)};
  };
  StageTensors tensors{.before = layers.boundary(stage.layers.begin),
                       .behind = layers.boundary(stage.layers.end),
                       .sent_before = {},
                       .sent_behind = {}};
  tensors.sent_before = sent(tensors.before, stage.layers.begin);
  tensors.sent_behind = sent(tensors.behind, stage.layers.end);
  return memory_cost(stage, tensors, layers);
}

StageCost CostModel::stage_cost(const Plan& plan, std::size_t index) const {
  const StagePlan& stage = plan.stages[index];
  const std::optional<GradientBuckets> matched = match_buckets(profile_, stage);
  check(matched.has_value(), "a plan was costed whose gradient buckets are not its layers'");
  const GradientBuckets& buckets = *matched;
  const Bytes largest_bucket = largest_of(buckets);
  StageCost cost;
  cost.devices_per_replica = stage.devices_per_replica;
  // The samples and the device kind of each entry of cost.moments.
  std::vector<std::pair<std::int64_t, std::int32_t>> paces;
  for (std::size_t i = 0; i < stage.devices.size(); ++i) {
    const std::int32_t kind = topology_.device(stage.devices[i]).kind;
    ReplicaCost replica{.device = stage.devices[i],
                        .samples = samples_of(plan, stage, i).size(),
                        .forward = {},
                        .backward = {},
                        .input_gradient = {},
                        .moments = 0,
                        .memory = {},
                        .memory_limit = topology_.memory_limit(stage.devices[i])};
    const LayerTable& layers = table(replica.samples, kind);
    replica.forward = layers.forward(stage.layers);
    const Duration recomputation = stage.recompute ? replica.forward : Duration{};
    replica.backward = layers.backward(stage.layers) + recomputation;
    replica.input_gradient = layers.input_gradient(stage.layers) + recomputation;
    replica.collectives =
        layers.forward_collectives(stage.layers) + layers.backward_collectives(stage.layers);
    replica.traffic = traffic_of(layers, stage.layers, stage.recompute);
    slow_down_to(cost, replica, recomputation);
    const std::pair pace{replica.samples, kind};
    replica.moments =
        static_cast<std::size_t>(std::find(paces.begin(), paces.end(), pace) - paces.begin());
    if (replica.moments == paces.size()) {
      paces.push_back(pace);
      cost.moments.push_back(bucket_moments(layers, stage, buckets, plan.gradients.overlaps));
      raise_to(cost.bucket_ready, cost.moments.back().in_backward);
      raise_to(cost.bucket_ready_in_weights, cost.moments.back().in_weights);
    }
    const std::int64_t depth =
        std::min(plan.warmup_depths[index], micro_batches_of(plan, stage, i));
    StageTensors tensors = tensors_of(plan, index_at<StageIndex>(index), replica.samples);
    for (StageTensors::Skip& skip : tensors.skips) {
      const std::int64_t other = plan.warmup_depths[skip.stage.position()];
      skip.waiting = std::max<std::int64_t>(0, skip.is_before ? other - depth : depth - other);
    }
    replica.memory =
        memory_cost(context_of(plan, index, depth, largest_bucket), tensors, replica.samples, kind);
    cost.replicas.push_back(replica);
  }
  std::vector<DeviceIndex> members = stage.devices;
  std::sort(members.begin(), members.end());
  const AllReduceModel& reduction = known_reduction(members);
  for (const Bytes size : buckets.sizes) cost.buckets.push_back(reduction.cost(size));
  std::vector<std::int32_t> kinds;
  for (const auto& [samples, kind] : paces) kinds.push_back(kind);
  cost.optimizer_step = update(stage.layers, replicas_of(stage), kinds, reduction);
  if (plan.gradients.optimizer == OptimizerTiming::PerBucket) {
    cost.bucket_steps = bucket_steps(stage.layers, buckets);
  }
  return cost;
}

/// Returns the optimizer step of each bucket, then that of the parameters that are tied to layers
/// outside, as defined for StageCost::bucket_steps.
std::vector<Duration> CostModel::bucket_steps(LayerRange layers,
                                              const GradientBuckets& buckets) const {
  const auto own_parameters = [&](std::int32_t first) {
    Bytes parameters = tables_->parameters[static_cast<std::size_t>(layers.end)] -
                       tables_->parameters[static_cast<std::size_t>(first)];
    for (const Tie& tie : profile_.ties) {
      const bool is_inside = first <= tie.owner.value && tie.owner.value < layers.end;
      if (is_inside && sides_of(tie, layers).outside) {
        parameters = parameters - profile_.layers[tie.owner.position()].parameters;
      }
    }
    return parameters;
  };
  std::vector<Duration> steps;
  Duration before;
  const auto add_until = [&](Duration until) {
    steps.push_back(until - before);
    before = until;
  };
  for (const std::int32_t first : buckets.first_layer) {
    add_until(optimizer_step(own_parameters(first)));
  }
  const bool is_tied = std::any_of(profile_.ties.begin(), profile_.ties.end(), [&](const Tie& tie) {
    const TieSides sides = sides_of(tie, layers);
    return sides.inside && sides.outside;
  });
  if (!is_tied) return steps;
  if (steps.empty()) add_until(optimizer_step(own_parameters(layers.begin)));
  add_until(optimizer_step(layers));
  return steps;
}

std::int64_t CostModel::shares_with(FormIndex other, std::int32_t cut) const {
  const CostModel& of_other = root_->in(other);
  if (is_divided(cut) || of_other.is_divided(cut)) return 1;
  return shares_between(profile_, of_other.profile().parallelism);
}

std::int64_t CostModel::shares(std::int32_t cut) const {
  return is_divided(cut) ? 1 : boundary_shares(profile_);
}

std::int64_t CostModel::shares_of(FormIndex other, const std::vector<LayerIndex>& layers) const {
  const ModelProfile& of_other = root_->in(other).profile();
  for (const LayerIndex layer : layers) {
    const bool is_divided = profile_.layers[layer.position()].divides_output ||
                            of_other.layers[layer.position()].divides_output;
    if (is_divided) return 1;
  }
  return shares_between(profile_, of_other.parallelism);
}

Duration CostModel::gather_time(DeviceIndex device, Bytes size) const {
  const auto kind = static_cast<std::size_t>(topology_.device(device).kind);
  return collective_time(CollectiveKind::AllGather, size,
                         group_on(profile_, measured_[kind]).ring(CollectiveMembers::Tensor));
}

BoundaryCost CostModel::transfers_between(const Plan& plan, std::size_t from,
                                          std::size_t to) const {
  const StagePlan& here = plan.stages[from];
  const StagePlan& there = plan.stages[to];
  const bool are_direct = profile_.skip_tensors == SkipTensors::Direct;
  std::vector<LayerIndex> layers;
  if (are_direct) layers = layers_consumed(profile_, here.layers, there.layers);
  // What a device receives is laid out as its own stage has it.
  const std::int64_t shares = are_direct ? in(here.form).shares_of(there.form, layers)
                                         : in(here.form).shares_with(there.form, here.layers.end);
  const auto gathered_by = [&](const StagePlan& stage) -> TransferShares {
    return {.shares = shares, .gather = [&](DeviceIndex device, Bytes size) {
              return in(stage.form).gather_time(device, size);
            }};
  };
  const auto received_by = [&](const StagePlan& stage) {
    return [&](std::int64_t samples) {
      const CostModel& in_form = in(stage.form);
      return are_direct ? in_form.outputs(layers, samples)
                        : in_form.boundary_size(here.layers.end, samples);
    };
  };
  BoundaryCost cost;
  const std::int64_t period = std::lcm(dealt_to(here), dealt_to(there));
  for (std::int64_t m = 0; m < std::min(period, plan.num_micro_batches); ++m) {
    const std::vector<TransferEnd> senders = transfer_ends(plan, here, m);
    const std::vector<TransferEnd> receivers = transfer_ends(plan, there, m);
    cost.forward.push_back(
        transfer_cost(senders, receivers, received_by(there), topology_, gathered_by(there)));
    cost.backward.push_back(
        transfer_cost(receivers, senders, received_by(here), topology_, gathered_by(here)));
  }
  return cost;
}

/// Adds the transfers of tensors that skip stages.
void CostModel::add_skips(const Plan& plan, PlanCost& cost) const {
  for (std::size_t to = 2; to < plan.stages.size(); ++to) {
    for (std::size_t from = 0; from + 1 < to; ++from) {
      const LayerRange consumers = plan.stages[to].layers;
      if (layers_consumed(profile_, plan.stages[from].layers, consumers).empty()) continue;
      cost.skips.push_back({.from = index_at<StageIndex>(from),
                            .to = index_at<StageIndex>(to),
                            .transfers = transfers_between(plan, from, to)});
    }
  }
}

PlanCost CostModel::plan_cost(const Plan& plan) const {
  PlanCost cost;
  cost.overlap_slowdown = topology_.description().overlap_slowdown;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    cost.stages.push_back(in(plan.stages[s].form).stage_cost(plan, s));
    if (s + 1 < plan.stages.size()) cost.boundaries.push_back(transfers_between(plan, s, s + 1));
  }
  if (profile_.skip_tensors == SkipTensors::Direct) add_skips(plan, cost);
  add_ties(plan, cost);
  return cost;
}

void CostModel::add_ties(const Plan& plan, PlanCost& cost) const {
  for (const TiedGradients& tied : plan.tied_gradients) {
    TiedCost& of_tie = cost.ties.emplace_back();
    of_tie.stages = tied.stages;
    of_tie.devices = ring_of_tie(tied, plan, topology_);
    const Bytes size = scale_up(dapple::reduced_parameters(profile_, tied.owner),
                                profile_.optimizer.gradient_bytes_per_parameter_byte);
    of_tie.reduction = AllReduceModel(of_tie.devices, topology_, /*is_sharded=*/false).cost(size);
    for (const StageIndex stage : tied.stages) {
      cost.stages[stage.position()].tied_reduction += of_tie.reduction.time;
    }
    cost.stages[tied.stages.front().position()].tied_reduction_from_here += of_tie.reduction.time;
  }
}

}  // namespace dapple
