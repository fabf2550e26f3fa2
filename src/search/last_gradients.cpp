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

/// Of a phase's bytes those that go through a port; zero if none do.
Bytes size_through(const std::vector<std::pair<PortIndex, Bytes>>& ports, PortIndex port) {
  const auto found = std::lower_bound(ports.begin(), ports.end(), port,
                                      [](const std::pair<PortIndex, Bytes>& load,
                                         PortIndex wanted) { return load.first < wanted; });
  return found == ports.end() || found->first != port ? Bytes{} : found->second;
}

Bytes busiest_size(const AllReducePhase& phase) {
  Bytes busiest;
  for (const auto& [port, size] : phase.ports) busiest = std::max(busiest, size);
  return busiest;
}

Duration time_at(Bytes size, Bandwidth bandwidth) {
  return {divide_down(Wide{size.count} * kNanosecondsPerSecond, bandwidth.bytes_per_second)};
}

std::int64_t share_of(Bandwidth rate, Bandwidth port) {
  return divide_down(Wide{rate.bytes_per_second} * kWhole, port.bytes_per_second);
}

Duration round_down(Ticks time) {
  return {time.count / kTicksPerNanosecond};
}

/// On idle links, rounds and their pauses, rounded down.
Duration length_of(const AllReducePhase& phase) {
  return round_down(phase.busy) + phase.rounds * phase.latency;
}

/// What is still to come of a bucket at least, some time after it was begun on idle links; on
/// shared ones it is no further.
struct Left {
  Bytes size;        // through a port
  Duration waiting;  // pauses, and phases elsewhere
};

/// Of a phase that sends so much through a port.
Left left_of(const AllReducePhase& phase, Bytes size, Duration elapsed) {
  if (elapsed > length_of(phase)) return {};
  if (size.count == 0) return {.size = {}, .waiting = length_of(phase) - elapsed};
  const Duration longest_round = round_up({divide_up(phase.busy.count, phase.rounds)});
  const Duration shortest_round = round_down({phase.busy.count / phase.rounds});
  const auto cycles = [&](Duration time, Duration round) {
    const std::int64_t each = std::max<std::int64_t>(1, (round + phase.latency).ns);
    return std::min(phase.rounds, time.ns / each);
  };
  const std::int64_t pauses_done = cycles(elapsed, longest_round);
  const std::int64_t pauses_begun = cycles(elapsed + phase.latency, shortest_round);
  const Wide busy =
      std::min<Wide>(to_ticks(elapsed - pauses_done * phase.latency).count, phase.busy.count);
  const Bytes passed{divide_up(size.count * busy, phase.busy.count)};
  return {.size = size - passed, .waiting = (phase.rounds - pauses_begun) * phase.latency};
}

/// Of what a phase says goes through its ports its flow moves so much, in parts of kWhole: sizes
/// are rounded up, which may be more than a port lets through while the phase is busy.
std::int64_t moved_share(const AllReducePhase& phase, const Topology& topology) {
  std::int64_t least = kWhole;
  for (const auto& [port, size] : phase.ports) {
    const Wide room =
        Wide{topology.ports()[port.position()].bandwidth.bytes_per_second} * phase.busy.count;
    const Wide wanted = Wide{size.count} * kNanosecondsPerSecond * kTicksPerNanosecond;
    if (room < wanted) least = std::min(least, divide_down(room * kWhole, wanted));
  }
  return least;
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
  Bandwidth rate_of(const AllReducePhase& phase) const;
  void count_flows();
  /// What every flow through a port gets at least, after the stage's last backward.
  Bandwidth fair_part(PortIndex port) const {
    const std::int64_t flows = flows_[port.position()];
    return {bandwidth(port).bytes_per_second / std::max<std::int64_t>(1, flows)};
  }
  std::int64_t reduction_share(PortIndex port) const;
  std::int64_t gradient_share(PortIndex port) const;
  Left reduction_left(PortIndex port) const;
  Duration after_port(PortIndex port) const;
  Duration pauses(PortIndex port, Duration window) const;
  Duration time_elsewhere(PortIndex port, Duration window) const;
  /// What there is to do yet once the last bucket is reduced.
  Duration last_step() const;

  const PlanCost& costs_;
  std::size_t stage_;
  const Topology& topology_;
  std::vector<std::int64_t> flows_;  // by port: how many may pass it then
  struct PhaseFlow {
    Bandwidth rate;  // at least
    std::int64_t moved = 0;
  };
  std::vector<std::vector<PhaseFlow>> phases_;  // by bucket and phase
};

LastFlows::LastFlows(const PlanCost& costs, std::size_t stage, const Topology& topology)
    : costs_(costs), stage_(stage), topology_(topology), flows_(topology.ports().size(), 0) {
  count_flows();
  for (const AllReduceCost& bucket : this->stage().buckets) {
    std::vector<PhaseFlow>& phases = phases_.emplace_back();
    for (const AllReducePhase& phase : bucket.phases) {
      phases.push_back({.rate = rate_of(phase), .moved = moved_share(phase, topology)});
    }
  }
}

Duration LastFlows::last_step() const {
  const StageCost& cost = stage();
  if (cost.bucket_steps.empty()) return cost.tied_reduction_from_here + cost.optimizer_step;
  const Duration of_bucket = cost.bucket_steps[cost.buckets.size() - 1];
  if (!cost.has_tied_step()) return of_bucket;
  return std::max(of_bucket, cost.tied_reduction_from_here) + cost.bucket_steps.back();
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
        if (counted_for[port.position()] == s + 1) continue;
        counted_for[port.position()] = s + 1;
        ++flows_[port.position()];
      }
    }
  }
  // Those of a stage before this one begin when the gradients have arrived there.
  for (const TiedCost& tie : costs_.ties) {
    if (tie.stages.front().position() < stage_) continue;
    for (const auto& [port, size] : tie.reduction.ports) ++flows_[port.position()];
  }
}

/// Of its flow through its busiest port; through others it goes in proportion.
Bandwidth LastFlows::rate_of(const AllReducePhase& phase) const {
  if (phase.busy.count == 0) return {};
  Bandwidth rate{
      divide_down(Wide{busiest_size(phase).count} * kNanosecondsPerSecond * kTicksPerNanosecond,
                  phase.busy.count)};
  for (const auto& [port, size] : phase.ports) rate = std::min(rate, fair_part(port));
  return rate;
}

/// Every bucket goes through the port, and of whoever sends gradients through it all of them do: a
/// sender that waits for a flow elsewhere would leave the port to others meanwhile. And no phase is
/// so small, or shares its links with so many, that nothing is sure about it.
bool LastFlows::is_alike_for_all(PortIndex port) const {
  for (std::size_t k = 0; k < stage().buckets.size(); ++k) {
    if (size_through(stage().buckets[k].ports, port).count == 0) return false;
    for (const PhaseFlow& phase : phases_[k]) {
      if (phase.rate.bytes_per_second == 0) return false;
    }
  }
  std::set<DeviceIndex> senders;
  for (const PairFlow& flow : gradients().flows) {
    if (passes(flow.route, port)) senders.insert(flow.from);
  }
  return std::all_of(gradients().flows.begin(), gradients().flows.end(), [&](const PairFlow& flow) {
    return passes(flow.route, port) || senders.count(flow.from) == 0;
  });
}

/// Of the port, while a round goes through it.
std::int64_t LastFlows::reduction_share(PortIndex port) const {
  std::int64_t least = kWhole;
  for (std::size_t k = 0; k < stage().buckets.size(); ++k) {
    const std::vector<AllReducePhase>& phases = stage().buckets[k].phases;
    for (std::size_t i = 0; i < phases.size(); ++i) {
      const Bytes size = size_through(phases[i].ports, port);
      if (size.count == 0) continue;
      const std::int64_t share = share_of(phases_[k][i].rate, bandwidth(port));
      least = std::min(least, divide_down(Wide{share} * size.count, busiest_size(phases[i]).count));
    }
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

/// When the last backward ends.
Left LastFlows::reduction_left(PortIndex port) const {
  Left left;
  Duration done;
  for (std::size_t k = 0; k < stage().buckets.size(); ++k) {
    const AllReduceCost& bucket = stage().buckets[k];
    const Duration start = std::max(done, stage().bucket_ready[k]);
    done = start + bucket.time;
    Duration elapsed = std::max(Duration{}, stage().backward - start);
    for (std::size_t i = 0; i < bucket.phases.size(); ++i) {
      const AllReducePhase& phase = bucket.phases[i];
      const Bytes size{
          divide_down(Wide{size_through(phase.ports, port).count} * phases_[k][i].moved, kWhole)};
      const Left of_phase = left_of(phase, size, elapsed);
      left.size += of_phase.size;
      left.waiting += of_phase.waiting;
      elapsed = std::max(Duration{}, elapsed - length_of(phase));
    }
  }
  return left;
}

/// From the last byte through the port to the end of the last all-reduce.
Duration LastFlows::after_port(PortIndex port) const {
  Duration time;
  const std::vector<AllReducePhase>& phases = stage().buckets.back().phases;
  for (std::size_t i = phases.size(); i-- > 0;) {
    if (size_through(phases[i].ports, port).count > 0) return time + phases[i].latency;
    time += length_of(phases[i]);
  }
  return time;
}

/// How long rounds through the port pause at most within so much time.
Duration LastFlows::pauses(PortIndex port, Duration window) const {
  Duration latency;
  Duration shortest = window + Duration{1};
  std::int64_t all = 0;
  for (const AllReduceCost& bucket : stage().buckets) {
    for (const AllReducePhase& phase : bucket.phases) {
      if (size_through(phase.ports, port).count == 0) continue;
      all += phase.rounds;
      latency = std::max(latency, phase.latency);
      shortest = std::min(shortest, round_down({phase.busy.count / phase.rounds}));
    }
  }
  const std::int64_t ends = std::min(all, 1 + window.ns / std::max<std::int64_t>(1, shortest.ns));
  // A round is over with the tick in which its last byte passes.
  return ends * latency + Duration{ends / kTicksPerNanosecond};
}

/// How long phases that do not go through the port take at most within so much time: between two
/// stretches of them lies all that a bucket sends through it.
Duration LastFlows::time_elsewhere(PortIndex port, Duration window) const {
  Duration longest;
  Duration shortest_here = window + Duration{1};
  for (std::size_t k = 0; k < stage().buckets.size(); ++k) {
    Duration elsewhere;
    Duration here;
    const std::vector<AllReducePhase>& phases = stage().buckets[k].phases;
    for (std::size_t i = 0; i < phases.size(); ++i) {
      if (size_through(phases[i].ports, port).count > 0) {
        here = std::max(here, round_down(phases[i].busy));
        continue;
      }
      elsewhere += Duration{divide_up(Wide{busiest_size(phases[i]).count} * kNanosecondsPerSecond,
                                      phases_[k][i].rate.bytes_per_second)} +
                   phases[i].rounds * (phases[i].latency + kRounding);
    }
    longest = std::max(longest, elsewhere);
    shortest_here = std::min(shortest_here, here);
  }
  // Of two buckets one after another, the end of one and the beginning of the next.
  const std::int64_t stretches = 2 + window.ns / std::max<std::int64_t>(1, shortest_here.ns);
  const auto most = static_cast<std::int64_t>(stage().buckets.size());
  return 2 * std::min(stretches, most) * longest;
}

std::optional<LastSending> LastFlows::at(const PortLoad& load) const {
  if (!is_alike_for_all(load.port)) return std::nullopt;
  const std::int64_t for_reduction = reduction_share(load.port);
  const std::int64_t for_gradients = gradient_share(load.port);
  if (for_reduction >= kWhole || for_gradients >= kWhole) return std::nullopt;
  const Left reduction = reduction_left(load.port);
  const Duration left = time_at(reduction.size, bandwidth(load.port));
  if (left == Duration{}) return std::nullopt;
  const Duration sent = time_at(load.size, bandwidth(load.port));
  const Duration both = left + sent;
  const Duration window{divide_up(Wide{sent.ns} * kWhole, kWhole - for_reduction)};
  const Duration slowed_gradient =
      window - pauses(load.port, window) - time_elsewhere(load.port, window);
  const Duration slowed_reduction{divide_down(Wide{left.ns} * kWhole, kWhole - for_gradients)};
  // Once the gradients are through, nothing is in the reduction's way; while they are not, they
  // have their share, and the reduction waits besides.
  const Duration after_both = std::max(both + after_port(load.port), left + reduction.waiting);
  return LastSending{.gradient = std::min(both, slowed_gradient) + load.latency - kRounding,
                     .after_backward = std::min(after_both, slowed_reduction + reduction.waiting) +
                                       last_step() - kRounding};
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
