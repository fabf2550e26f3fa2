#include "search/families/down_set_figures.h"

#include <algorithm>
#include <set>

#include "dapple/profile/boundary_shares.h"
#include "search/families/layer_lower_bounds.h"

namespace dapple::search {
namespace {

/// With more devices, routes are not examined one by one, and boundaries within servers are free.
constexpr std::int32_t kMostExaminedDevices = 256;
/// Steps are summed in parts of a nanosecond.
constexpr std::int64_t kPartsOfNanosecond = 1024;

/// Returns the values of all down-sets as whole numbers of 64 bits, which sums of a profile's
/// figures fit.
std::vector<std::int64_t> narrowed(const std::vector<Wide>& sums) {
  std::vector<std::int64_t> result;
  result.reserve(sums.size());
  for (const Wide sum : sums) result.push_back(static_cast<std::int64_t>(sum));
  return result;
}

Duration time_at(Wide bytes, Bandwidth bandwidth) {
  return {divide_down(bytes * kNanosecondsPerSecond, bandwidth.bytes_per_second)};
}

}  // namespace

DownSetFigures::DownSetFigures(const CostModel& costs, const DownSets& sets,
                               std::int64_t global_batch_size, std::int64_t micro_batch_size)
    : costs_(costs),
      micro_batch_size_(micro_batch_size),
      micro_batches_(global_batch_size / micro_batch_size) {
  find_counts();
  find_times(sets);
  find_sizes(sets);
  find_links();
}

void DownSetFigures::find_counts() {
  const auto most = static_cast<std::int32_t>(std::min<std::int64_t>(micro_batch_size_, devices()));
  for (std::int32_t replicas = 1; replicas <= most; ++replicas) {
    const std::int64_t samples = divide_up(micro_batch_size_, replicas);
    if (counts_.empty() || samples < counts_.back().samples) {
      counts_.push_back({.least = replicas, .most = replicas, .samples = samples});
    }
    counts_.back().most = replicas;
  }
}

void DownSetFigures::find_times(const DownSets& sets) {
  const auto layers = static_cast<std::size_t>(costs_.layer_count());
  std::vector<Wide> device_times(layers);
  for (std::size_t count = 0; count < counts_.size(); ++count) {
    const LayerTable& table = costs_.least_table(counts_[count].samples);
    std::vector<Wide> forward;
    std::vector<Wide> backward;
    for (std::int32_t l = 0; l < costs_.layer_count(); ++l) {
      forward.push_back(table.least_forward({l, l + 1}).ns);
      backward.push_back(table.least_backward({l, l + 1}).ns);
      const Wide time =
          Wide{counts_[count].least} * micro_batches_ * (forward.back() + backward.back());
      Wide& least = device_times[static_cast<std::size_t>(l)];
      least = count == 0 ? time : std::min(least, time);
    }
    forward_.push_back(narrowed(sets.sums(forward)));
    backward_.push_back(narrowed(sets.sums(backward)));
  }
  device_times_ = sets.sums(device_times);
}

void DownSetFigures::find_sizes(const DownSets& sets) {
  const ModelProfile& profile = costs_.profile();
  const std::int64_t samples = profile.group.samples_of_replica(micro_batch_size_);
  const Factor step = profile.optimizer.step_ns_per_parameter_byte.value_or(Factor{});
  const std::int64_t shards =
      costs_.topology().description().shards_optimizer ? costs_.topology().device_count() : 1;
  std::vector<Wide> outputs;
  std::vector<Wide> steps;
  std::vector<Wide> gradients;
  Bytes updated;
  for (std::int32_t l = 0; l < costs_.layer_count(); ++l) {
    // Sizes are rounded up for each tensor by less than a byte.
    const Bytes output = output_size(profile.layers[static_cast<std::size_t>(l)], samples);
    outputs.push_back(std::max<std::int64_t>(0, output.count - 1));
    const Bytes so_far = costs_.updated_parameters({0, l + 1});
    const std::int64_t own = std::max<std::int64_t>(0, (so_far - updated).count - 1);
    updated = so_far;
    steps.push_back(Wide{own} * step.billionths * kPartsOfNanosecond /
                    (Wide{kOne.billionths} * shards));
    const GradientBuckets buckets = gradient_buckets(profile, {l, l + 1});
    gradients.push_back(buckets.sizes.empty() ? 0 : buckets.sizes[0].count);
  }
  sizes_ = sets.crossing(outputs);
  step_parts_ = sets.sums(steps);
  gradients_ = sets.sums(gradients);
}

void DownSetFigures::find_links() {
  const Topology& topology = costs_.topology();
  std::set<std::int32_t> kinds;
  for (std::int32_t d = 0; d < devices(); ++d) kinds.insert(topology.device({d}).kind);
  has_other_shares_ = kinds.size() > 1;
  for (std::int32_t s = 0; s < topology.server_count(); ++s) {
    const ServerIndex server{s};
    largest_server_ = std::max(largest_server_, topology.server(server).device_count);
    widest_server_ = std::max(widest_server_, topology.nics_together(server));
    const ServerGroup& group = topology.group_of(server);
    if (group.links.kind == ServerLinks::Kind::Matrix) has_free_reductions_within_ = true;
    for (const BusBandwidthTable& table : group.bus_bandwidth) {
      (table.servers > 1 ? has_free_reductions_ : has_free_reductions_within_) = true;
    }
  }
  if (devices() < 2 || devices() > kMostExaminedDevices) return;
  best_route_.latency = Duration::infinite();
  for (std::int32_t from = 0; from < devices(); ++from) {
    for (std::int32_t to = 0; to < devices(); ++to) {
      if (from == to) continue;
      const Route route = topology.route({from}, {to});
      best_route_.latency = std::min(best_route_.latency, route.latency);
      best_route_.bandwidth = std::max(best_route_.bandwidth, route.bandwidth);
    }
  }
}

/// Computes (G1).
DownSetStage DownSetFigures::stage(DownSetIndex begin, DownSetIndex end, std::size_t count) const {
  const auto difference = [&](const auto& sums) {
    return static_cast<std::int64_t>(sums[end.position()] - sums[begin.position()]);
  };
  return {.forward = {difference(forward_[count])},
          .backward = {difference(backward_[count])},
          .step = {difference(step_parts_) / kPartsOfNanosecond},
          .gradients = {difference(gradients_)}};
}

/// As LayerLowerBounds::reduction(), of a stage that is known to be on two servers or more.
Duration DownSetFigures::reduction_across(Bytes gradients, std::int32_t devices) const {
  if (has_free_reductions_) return {};
  const std::int64_t servers = std::max<std::int64_t>(2, divide_up(devices, largest_server_));
  const std::int64_t passes = costs_.topology().description().shards_optimizer ? 1 : 2;
  return {divide_down(Wide{passes * (servers - 1)} * gradients.count * kNanosecondsPerSecond,
                      Wide{servers} * widest_server_.bytes_per_second)};
}

/// Computes (G1). On a switch the ring is flat: each device sends 2 (r-1)/r of the gradients over
/// one route.
Duration DownSetFigures::reduction_within(Bytes gradients, std::int32_t devices) const {
  if (has_free_reductions_within_ || devices < 2) return {};
  const std::int64_t passes = costs_.topology().description().shards_optimizer ? 1 : 2;
  return on_widest_route(Wide{passes * (devices - 1)} * gradients.count / devices);
}

Bytes DownSetFigures::crossing(DownSetIndex set, std::int64_t samples) const {
  const GroupShape& group = costs_.profile().group;
  const Wide whole = Wide{group.samples_of_replica(micro_batch_size_)} * group.replicas *
                     boundary_shares(costs_.profile());
  return {divide_down(sizes_[set.position()] * samples, whole)};
}

std::int64_t DownSetFigures::average_flow(std::size_t senders, std::size_t receivers) const {
  return divide_up(micro_batch_size_, counts_[senders].most + counts_[receivers].most - 1);
}

std::int64_t DownSetFigures::least_share(std::size_t count) const {
  return has_other_shares_ ? 1 : micro_batch_size_ / counts_[count].most;
}

Duration DownSetFigures::on_widest_route(Wide bytes) const {
  if (devices() < 2 || devices() > kMostExaminedDevices) return {};
  return time_at(bytes, best_route_.bandwidth);
}

Duration DownSetFigures::through_nics(Wide bytes) const {
  return time_at(bytes, widest_server_);
}

}  // namespace dapple::search
