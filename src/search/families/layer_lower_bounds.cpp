#include "search/families/layer_lower_bounds.h"

#include <algorithm>
#include <optional>

#include "dapple/cost/compatible.h"

namespace dapple::search {
namespace {

/// With more devices, routes are not examined one by one, and boundaries count as free.
constexpr std::int32_t kMostDevicesByRoutes = 256;
/// The most figures, of layers by shares or of boundaries by flows, that are kept. With more, only
/// sums over the layers are kept, and boundaries count as free.
constexpr std::size_t kMostKeptFigures = 2'000'000;

/// The largest bandwidth and the least latency of all routes between devices, which may be those of
/// two different routes.
Link best_route(const Topology& topology) {
  Link best{.bandwidth = {1}, .latency = Duration::infinite()};
  for (std::int32_t from = 0; from < topology.device_count(); ++from) {
    for (std::int32_t to = 0; to < topology.device_count(); ++to) {
      if (from == to) continue;
      const Route route = topology.route(DeviceIndex{from}, DeviceIndex{to});
      best.latency = std::min(best.latency, route.latency);
      best.bandwidth = std::max(best.bandwidth, route.bandwidth);
    }
  }
  return best;
}

}  // namespace

LayerLowerBounds::LayerLowerBounds(const CostModel& costs, std::int64_t global_batch_size,
                                   std::int64_t micro_batch_size, bool ignore_memory)
    : costs_(costs),
      micro_batch_size_(micro_batch_size),
      micro_batches_(global_batch_size / micro_batch_size),
      ignore_memory_(ignore_memory),
      widest_server_{1},
      gradients_(1) {
  const Topology& topology = costs.topology();
  for (std::int32_t d = 0; d < topology.device_count(); ++d) {
    most_memory_ = std::max(most_memory_, topology.memory_limit(DeviceIndex{d}));
    all_memory_ += std::max<std::int64_t>(0, topology.memory_limit(DeviceIndex{d}).count);
  }
  for (std::int32_t s = 0; s < topology.server_count(); ++s) {
    const ServerIndex server{s};
    largest_server_ = std::max(largest_server_, topology.server(server).device_count);
    widest_server_ = std::max(widest_server_, topology.nics_together(server));
    const std::vector<BusBandwidthTable>& tables = topology.group_of(server).bus_bandwidth;
    is_measured_ = is_measured_ || std::any_of(tables.begin(), tables.end(),
                                               [](const auto& table) { return table.servers > 1; });
  }
  find_shares();
  find_sums();
  find_layers();
  find_crossings();
  join_forms(global_batch_size);
}

namespace {

StageLowerBound least_of(const StageLowerBound& a, const StageLowerBound& b) {
  return {.forward = std::min(a.forward, b.forward),
          .backward = std::min(a.backward, b.backward),
          .input_gradient = std::min(a.input_gradient, b.input_gradient),
          .optimizer_step = std::min(a.optimizer_step, b.optimizer_step),
          .reduction = std::min(a.reduction, b.reduction)};
}

}  // namespace

/// Makes the bounds of the other forms, and those that do not depend on a stage the least of all.
void LayerLowerBounds::join_forms(std::int64_t global_batch_size) {
  for (FormIndex form{1}; form.value < costs_.form_count(); form = form.next()) {
    const LayerLowerBounds& other = *others_.emplace_back(std::make_unique<LayerLowerBounds>(
        costs_.in(form), global_batch_size, micro_batch_size_, ignore_memory_));
    for (const LayerIndex l : layers_.indices()) {
      layers_[l].forward = std::min(layers_[l].forward, other.layers_[l].forward);
      layers_[l].backward = std::min(layers_[l].backward, other.layers_[l].backward);
      device_times_[l] = std::min(device_times_[l], other.device_times_[l]);
    }
    least_layer_ = std::min(least_layer_, other.least_layer_);
    least_crossing_ = std::min(least_crossing_, other.least_crossing_);
    for (std::size_t i = 0; i < shares_.size(); ++i) {
      StageLowerBound& whole = shares_[i].whole;
      whole = least_of(whole, other.shares_[i].whole);
      // Each of several stages may have the form with the least step or reduction.
      whole.optimizer_step = {};
      whole.reduction = {};
    }
  }
}

void LayerLowerBounds::find_shares() {
  const auto most = static_cast<std::int32_t>(
      std::min<std::int64_t>(micro_batch_size_, costs_.topology().device_count()));
  positions_.assign(static_cast<std::size_t>(most) + 1, 0);
  for (std::int32_t replicas = 1; replicas <= most; ++replicas) {
    const std::int64_t samples = replica_share(micro_batch_size_, replicas, 0).size();
    if (shares_.empty() || samples < shares_.back().samples) {
      replica_counts_.push_back(replicas);
      shares_.push_back({.replicas = replicas,
                         .most_replicas = replicas,
                         .samples = samples,
                         .table = nullptr,
                         .whole = {}});
    }
    shares_.back().most_replicas = replicas;
    positions_[static_cast<std::size_t>(replicas)] = shares_.size() - 1;
  }
}

/// Computes the prefix sums that do not depend on the samples.
void LayerLowerBounds::find_sums() {
  const Factor step = costs_.profile().optimizer.step_ns_per_parameter_byte.value_or(Factor{});
  // Each replica makes a part of a sharded step: the smallest if all devices are its replicas.
  const bool is_sharded = costs_.topology().description().shards_optimizer;
  const std::int64_t shards = is_sharded ? costs_.topology().device_count() : 1;
  for (std::int32_t end = 0; end <= costs_.layer_count(); ++end) {
    steps_.push_back(
        divide_down(Wide{costs_.updated_parameters({0, end}).count} * step.billionths * kStepParts,
                    Wide{kOne.billionths} * shards));
  }
  for (std::int32_t l = 0; l < costs_.layer_count(); ++l) {
    const GradientBuckets buckets = gradient_buckets(costs_.profile(), {l, l + 1});
    gradients_.push_back(gradients_.back() + (buckets.sizes.empty() ? Bytes{} : buckets.sizes[0]));
  }
}

void LayerLowerBounds::find_layers() {
  const auto layers = static_cast<std::size_t>(costs_.layer_count());
  const std::vector<TimeSource> sources = least_time_sources(costs_.profile(), costs_.topology());
  const bool is_small = layers * shares_.size() <= kMostKeptFigures;
  layers_.resize(layers, {.forward = Duration::infinite(), .backward = Duration::infinite()});
  device_times_.resize(layers, Duration::infinite().ns);
  least_layer_ = Duration::infinite();
  for (Share& share : shares_) {
    // If there are too many tables to keep, they are made one after another.
    std::optional<LayerTable> own;
    if (is_small) share.table = &costs_.least_table(share.samples);
    const LayerTable& table =
        is_small ? *share.table : own.emplace(costs_.profile(), share.samples, sources);
    const LayerRange every{0, costs_.layer_count()};
    share.whole = stage_of(table, every, share.replicas);
    // One group of devices may hold all layers in several stages, in which others recompute.
    share.whole.forward = table.least_forward(every);
    share.whole.backward = table.least_backward(every);
    for (const LayerIndex l : layers_.indices()) {
      const LayerRange alone{l.value, l.value + 1};
      const Duration forward = table.least_forward(alone);
      const Duration backward = table.least_backward(alone);
      const Duration work = micro_batches_ * (forward + backward);
      layers_[l].forward = std::min(layers_[l].forward, forward);
      layers_[l].backward = std::min(layers_[l].backward, backward);
      least_layer_ = std::min(least_layer_, work);
      device_times_[l] = std::min(device_times_[l], Wide{share.replicas} * work.ns);
    }
  }
}

Wide LayerLowerBounds::device_time_of_work() const {
  Wide sum = 0;
  for (const Wide time : device_times_) sum += time;
  return sum;
}

/// Computes (F2) for every number of flows and every cut.
void LayerLowerBounds::find_crossings() {
  const Topology& topology = costs_.topology();
  const std::int32_t devices = topology.device_count();
  const auto cuts = static_cast<std::size_t>(costs_.layer_count()) + 1;
  const auto most_flows = 2 * static_cast<std::size_t>(devices);
  const bool is_small =
      devices > 1 && devices <= kMostDevicesByRoutes && most_flows * cuts <= kMostKeptFigures;
  if (!is_small) return;
  const Link best = best_route(topology);
  crossings_.assign(most_flows, IndexedVector<CutIndex, Duration>(cuts));
  least_crossing_ = Duration::infinite();
  for (std::int32_t flows = 1; flows < 2 * devices; ++flows) {
    // At least one of `flows` flows has at least the average number of samples.
    const std::int64_t samples = divide_up(micro_batch_size_, flows);
    for (std::int32_t cut = 1; cut < costs_.layer_count(); ++cut) {
      const Bytes whole = costs_.boundary_size(cut, samples);
      const Bytes size{divide_up(whole.count, costs_.shares(cut))};
      Duration& crossing = crossings_[static_cast<std::size_t>(flows)][CutIndex{cut}];
      if (size.count > 0) {
        crossing = best.latency + Duration{divide_down(Wide{size.count} * kNanosecondsPerSecond,
                                                       best.bandwidth.bytes_per_second)};
      }
      least_crossing_ = std::min(least_crossing_, crossing);
    }
  }
  if (least_crossing_.is_infinite()) least_crossing_ = {};
}

/// The step of each stage is rounded up, so their sum is no less than the step of all layers. Of
/// several forms it is not known which stages have the larger ones.
Wide LayerLowerBounds::device_time_of_steps() const {
  if (!others_.empty()) return 0;
  return costs_.optimizer_step({0, costs_.layer_count()}).ns;
}

const LayerLowerBounds::Share& LayerLowerBounds::share_of(std::int32_t replicas) const {
  return shares_[positions_[static_cast<std::size_t>(replicas)]];
}

/// Lower bound on a stage's step. Unless state is sharded it equals the real one, which is rounded
/// up, or is a nanosecond less, because the prefix sums are rounded down.
Duration LayerLowerBounds::optimizer_step(LayerRange layers) const {
  const std::int64_t parts = steps_[CutIndex{layers.end}] - steps_[CutIndex{layers.begin}];
  return {(parts + kStepParts - 2) / kStepParts};
}

/// Lower bound on an all-reduce (F1). Every server must send and receive what other servers need of
/// its sums. A measured all-reduce may be faster, for instance where switches reduce, so measured
/// ones count as free. Where state is sharded, only the reduce-scatter counts: the all-gather
/// behind the step moves parameters, which may be smaller than their gradients.
Duration LayerLowerBounds::reduction(Bytes gradients, std::int32_t replicas) const {
  if (replicas <= largest_server_ || is_measured_) return {};
  const std::int64_t servers = divide_up(replicas, largest_server_);
  const std::int64_t passes = costs_.topology().description().shards_optimizer ? 1 : 2;
  return {divide_down(Wide{passes * (servers - 1)} * gradients.count * kNanosecondsPerSecond,
                      Wide{servers} * widest_server_.bytes_per_second)};
}

StageLowerBound LayerLowerBounds::stage(LayerRange layers, std::int32_t replicas) const {
  StageLowerBound least = stage_in_form(layers, replicas);
  for (const auto& other : others_) {
    least = least_of(least, other->stage_in_form(layers, replicas));
  }
  return least;
}

StageLowerBound LayerLowerBounds::stage_in_form(LayerRange layers, std::int32_t replicas) const {
  return stage_of(*share_of(replicas).table, layers, replicas);
}

StageLowerBound LayerLowerBounds::stage_of(const LayerTable& table, LayerRange layers,
                                           std::int32_t replicas) const {
  const Bytes gradients = gradients_[CutIndex{layers.end}] - gradients_[CutIndex{layers.begin}];
  return {.forward = table.forward(layers),
          .backward = table.backward(layers),
          .input_gradient = table.input_gradient(layers),
          .optimizer_step = optimizer_step(layers),
          .reduction = reduction(gradients, replicas)};
}

bool LayerLowerBounds::fits(LayerRange layers, std::int32_t replicas) const {
  if (ignore_memory_) return true;
  return fits_in_form(layers, replicas) ||
         std::any_of(others_.begin(), others_.end(),
                     [&](const auto& other) { return other->fits_in_form(layers, replicas); });
}

bool LayerLowerBounds::fits_in_form(LayerRange layers, std::int32_t replicas) const {
  return memory_of(layers, replicas).peak() <= most_memory_;
}

/// Returns the memory of a stage with one micro-batch in flight on so many replicas, or more with
/// the same largest share.
MemoryCost LayerLowerBounds::memory_of(LayerRange layers, std::int32_t replicas) const {
  const Share& share = share_of(replicas);
  return costs_.memory_cost({.layers = layers,
                             .sends_before = false,
                             .sends_behind = false,
                             .replicas = share.most_replicas},
                            share.samples, costs_.topology().device(DeviceIndex{0}).kind);
}

bool LayerLowerBounds::layer_fits(std::int32_t layer, std::int32_t replicas) const {
  return layer_fits_in_form(layer, replicas) ||
         std::any_of(others_.begin(), others_.end(),
                     [&](const auto& other) { return other->layer_fits_in_form(layer, replicas); });
}

/// Whether some device has memory for a layer in some stage, where it may recompute although it
/// does not as a stage by itself.
bool LayerLowerBounds::layer_fits_in_form(std::int32_t layer, std::int32_t replicas) const {
  const LayerRange alone{layer, layer + 1};
  const LayerTable& table =
      costs_.table(share_of(replicas).samples, costs_.topology().device(DeviceIndex{0}).kind);
  const Bytes as_a_stage = table.stash(alone) + table.largest_workspace(alone);
  return memory_of(alone, replicas).peak() - as_a_stage + table.least_held(layer) <= most_memory_;
}

/// Checks (F10): all that is kept, on all devices together, and each layer by itself. Of several
/// forms each layer may have another one, so that only the layers by themselves are known.
bool LayerLowerBounds::may_fit() const {
  if (ignore_memory_) return true;
  if (others_.empty() && kept_by_all_layers().count > all_memory_) return false;
  for (std::int32_t l = 0; l < costs_.layer_count(); ++l) {
    const bool has_device =
        std::any_of(replica_counts_.begin(), replica_counts_.end(),
                    [&](std::int32_t replicas) { return layer_fits(l, replicas); });
    if (!has_device) return false;
  }
  return true;
}

Bytes LayerLowerBounds::kept_by_all_layers() const {
  const MemoryCost all = costs_.memory_cost({.layers = {0, costs_.layer_count()}}, 1,
                                            costs_.topology().device(DeviceIndex{0}).kind);
  return all.weights + all.gradients + all.framework + all.optimizer_state;
}

Duration LayerLowerBounds::crossing(CutIndex cut, std::int32_t replicas, std::int32_t left) const {
  Duration least = crossing_in_form(cut, replicas, left);
  for (const auto& other : others_) {
    least = std::min(least, other->crossing_in_form(cut, replicas, left));
  }
  return least;
}

Duration LayerLowerBounds::crossing_in_form(CutIndex cut, std::int32_t replicas,
                                            std::int32_t left) const {
  if (crossings_.empty()) return {};
  const std::int64_t receivers = std::min<std::int64_t>(left, micro_batch_size_);
  const std::int64_t flows = share_of(replicas).most_replicas + receivers - 1;
  return crossings_[static_cast<std::size_t>(flows)][cut];
}

}  // namespace dapple::search
