#include "last_gradients.h"

#include <algorithm>
#include <optional>
#include <set>
#include <vector>

#include "dapple/search/bound.h"

namespace dapple {
namespace {

/// Shares of a port are in parts of 2^20, rounded down.
constexpr std::int64_t kWhole = std::int64_t{1} << 20;
/// The simulator's rates are rounded down; over any length of time that is far less than this.
constexpr Duration kRounding{2};

bool passes(const Route& route, PortIndex port) {
  return std::find(route.ports.begin(), route.ports.end(), port) != route.ports.end();
}

/// Of a bucket's bytes those that go through a port; zero if none do.
Bytes size_through(const AllReduceCost& bucket, PortIndex port) {
  const auto found = std::lower_bound(bucket.ports.begin(), bucket.ports.end(), port,
                                      [](const std::pair<PortIndex, Bytes>& load,
                                         PortIndex wanted) { return load.first < wanted; });
  return found == bucket.ports.end() || found->first != port ? Bytes{} : found->second;
}

Duration time_at(Bytes size, Bandwidth bandwidth) {
  return {divide_down(Wide{size.count} * kNanosecondsPerSecond, bandwidth.bytes_per_second)};
}

std::int64_t share_of(Bandwidth rate, Bandwidth port) {
  return divide_down(Wide{rate.bytes_per_second} * kWhole, port.bytes_per_second);
}

class LastFlows {
 public:
  /// O(flows and ports of all transfers and reductions).
  LastFlows(const PlanCost& costs, std::size_t stage, const Topology& topology);

  /// As far as one port tells; nothing if it tells nothing.
  std::optional<LastSending> at(const PortLoad& load) const;

 private:
  const StageCost& stage() const { return costs_.stages[stage_]; }
  const TransferCost& gradients() const { return costs_.boundaries[stage_ - 1].backward.front(); }
  Bandwidth bandwidth(PortIndex port) const { return topology_.ports()[port.position()].bandwidth; }
  bool is_alike_for_all(PortIndex port) const;
  Bandwidth rate_of(const AllReduceCost& bucket) const;
  void count_flows();
  /// What every flow through a port gets at least, after the stage's last backward.
  Bandwidth fair_part(PortIndex port) const {
    const std::int64_t flows = flows_[port.position()];
    return {bandwidth(port).bytes_per_second / std::max<std::int64_t>(1, flows)};
  }
  std::int64_t reduction_share(PortIndex port) const;
  std::int64_t gradient_share(PortIndex port) const;
  Duration reduction_left(PortIndex port) const;
  Duration pauses(Duration window) const;
  /// What the optimizer has yet to do once the last bucket is reduced.
  Duration last_step() const {
    return stage().bucket_steps.empty() ? stage().optimizer_step : stage().bucket_steps.back();
  }

  const PlanCost& costs_;
  std::size_t stage_;
  const Topology& topology_;
  std::vector<std::int64_t> flows_;  // by port: how many may pass it then
  std::vector<Bandwidth> rates_;     // by bucket: of its flow at least
};

LastFlows::LastFlows(const PlanCost& costs, std::size_t stage, const Topology& topology)
    : costs_(costs), stage_(stage), topology_(topology), flows_(topology.ports().size(), 0) {
  count_flows();
  for (const AllReduceCost& bucket : this->stage().buckets) rates_.push_back(rate_of(bucket));
}

void LastFlows::count_flows() {
  for (std::size_t before = 0; before < stage_; ++before) {
    for (const PairFlow& flow : costs_.boundaries[before].backward.front().flows) {
      for (const PortIndex port : flow.route.ports) ++flows_[port.position()];
    }
  }
  std::vector<std::size_t> counted_for(flows_.size(), 0);  // the last stage, from 1
  for (std::size_t s = stage_; s < costs_.stages.size(); ++s) {
    for (const AllReduceCost& bucket : costs_.stages[s].buckets) {
      for (const auto& [port, size] : bucket.ports) {
        if (size.count == 0 || counted_for[port.position()] == s + 1) continue;
        counted_for[port.position()] = s + 1;
        ++flows_[port.position()];
      }
    }
  }
}

/// Of its flow through its busiest port; through others it goes in proportion.
Bandwidth LastFlows::rate_of(const AllReduceCost& bucket) const {
  if (bucket.busy.count == 0) return {};
  Bytes busiest;
  for (const auto& [port, size] : bucket.ports) busiest = std::max(busiest, size);
  Bandwidth rate{divide_down(Wide{busiest.count} * kNanosecondsPerSecond * kTicksPerNanosecond,
                             bucket.busy.count)};
  for (const auto& [port, size] : bucket.ports) rate = std::min(rate, fair_part(port));
  return rate;
}

/// Every bucket goes through the port, and of whoever sends gradients through it all of them do: a
/// sender that waits for a flow elsewhere would leave the port to others meanwhile.
bool LastFlows::is_alike_for_all(PortIndex port) const {
  for (const AllReduceCost& bucket : stage().buckets) {
    if (size_through(bucket, port).count == 0 || bucket.busy.count == 0) return false;
  }
  std::set<DeviceIndex> senders;
  for (const PairFlow& flow : gradients().flows) {
    if (passes(flow.route, port)) senders.insert(flow.from);
  }
  return std::all_of(gradients().flows.begin(), gradients().flows.end(), [&](const PairFlow& flow) {
    return passes(flow.route, port) || senders.count(flow.from) == 0;
  });
}

/// Of the port, while a bucket is reduced.
std::int64_t LastFlows::reduction_share(PortIndex port) const {
  std::int64_t least = kWhole;
  for (std::size_t k = 0; k < stage().buckets.size(); ++k) {
    const AllReduceCost& bucket = stage().buckets[k];
    Bytes busiest;
    for (const auto& [other, size] : bucket.ports) busiest = std::max(busiest, size);
    const std::int64_t share = share_of(rates_[k], bandwidth(port));
    least =
        std::min(least, divide_down(Wide{share} * size_through(bucket, port).count, busiest.count));
  }
  return least;
}

/// Of the port, while gradients are on their way through it.
std::int64_t LastFlows::gradient_share(PortIndex port) const {
  std::int64_t least = kWhole;
  for (const PairFlow& flow : gradients().flows) {
    if (!passes(flow.route, port)) continue;
    Bandwidth rate = flow.route.bandwidth;
    for (const PortIndex other : flow.route.ports) rate = std::min(rate, fair_part(other));
    least = std::min(least, share_of(rate, bandwidth(port)));
  }
  return least;
}

/// How long what is left to reduce when the last backward ends keeps the port busy. Nothing is
/// left where only latency is: the bytes may have passed long before.
Duration LastFlows::reduction_left(PortIndex port) const {
  Duration done;
  for (std::size_t k = 0; k < stage().buckets.size(); ++k) {
    done = std::max(done, stage().bucket_ready[k]) +
           time_at(size_through(stage().buckets[k], port), bandwidth(port));
  }
  return std::max(Duration{}, done - stage().backward);
}

/// Between one bucket and the next only latency passes.
Duration LastFlows::pauses(Duration window) const {
  Duration latency;
  Duration shortest = window + Duration{1};
  for (const AllReduceCost& bucket : stage().buckets) {
    latency = std::max(latency, bucket.latency);
    shortest = std::min(shortest, Duration{bucket.busy.count / kTicksPerNanosecond});
  }
  const std::int64_t ends = 1 + window.ns / std::max<std::int64_t>(1, shortest.ns);
  return std::min(ends, static_cast<std::int64_t>(stage().buckets.size())) * latency;
}

std::optional<LastSending> LastFlows::at(const PortLoad& load) const {
  if (!is_alike_for_all(load.port)) return std::nullopt;
  const std::int64_t for_reduction = reduction_share(load.port);
  const std::int64_t for_gradients = gradient_share(load.port);
  if (for_reduction >= kWhole || for_gradients >= kWhole) return std::nullopt;
  const Duration left = reduction_left(load.port);
  if (left == Duration{}) return std::nullopt;
  const Duration sent = time_at(load.size, bandwidth(load.port));
  const Duration both = left + sent;
  const Duration window{divide_up(Wide{sent.ns} * kWhole, kWhole - for_reduction)};
  const Duration slowed_gradient = window - pauses(window);
  const Duration slowed_reduction{divide_down(Wide{left.ns} * kWhole, kWhole - for_gradients)};
  return LastSending{.gradient = std::min(both, slowed_gradient) + load.latency - kRounding,
                     .after_backward = std::min(both, slowed_reduction) +
                                       stage().buckets.back().latency + last_step() - kRounding};
}

}  // namespace

LastSending last_sending(const PlanCost& costs, std::size_t stage, const Topology& topology) {
  const StageCost& cost = costs.stages[stage];
  const TransferCost& gradients = costs.boundaries[stage - 1].backward.front();
  LastSending sending{.gradient = gradients.time, .after_backward = time_after_last_backward(cost)};
  if (cost.buckets.empty() || costs.overlap_slowdown != kOne) return sending;
  const LastFlows flows(costs, stage, topology);
  for (const PortLoad& load : gradients.ports) {
    const std::optional<LastSending> here = flows.at(load);
    if (!here) continue;
    sending.gradient = std::max(sending.gradient, here->gradient);
    sending.after_backward = std::max(sending.after_backward, here->after_backward);
  }
  return sending;
}

}  // namespace dapple
