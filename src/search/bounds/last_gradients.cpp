#include "search/bounds/last_gradients.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "dapple/core/indexed_vector.h"
#include "dapple/search/bounds/bound.h"

namespace dapple::search {
namespace {

/// The whole of a port: shares are counted in units of 2^-20, rounded down.
constexpr std::int64_t kWhole = std::int64_t{1} << 20;
/// Larger than the effect of the simulator's rounding of rates, which is down, over any length of
/// time.
constexpr Duration kRounding{2};

/// Returns the bytes that pass a port in all phases, rounded down.
Bytes size_through(const AllReduceCost& reduction, PortIndex port) {
  ByteParts sum;
  for (const AllReducePhase& phase : reduction.phases) sum.count += phase.ports.through(port).count;
  return round_down(sum);
}

ByteParts busiest_size(const AllReducePhase& phase) {
  ByteParts busiest;
  for (const ByteParts size : phase.ports.sizes()) busiest = std::max(busiest, size);
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

/// The time of a phase on idle links, its rounds and the pauses between them, rounded down.
Duration length_of(const AllReducePhase& phase) {
  return round_down(phase.busy) + phase.rounds * phase.latency;
}

/// Lower bounds on what is left of an all-reduce some time after its start. They assume idle links;
/// on shared links it has not progressed further.
struct RemainingReduction {
  // Bytes still to pass a port.
  Bytes size;
  // Pauses, and phases that do not use the port.
  Duration waiting;
};

/// What is left of a phase that sends `size` through a port, `elapsed` after its start.
RemainingReduction left_of(const AllReducePhase& phase, Bytes size, Duration elapsed) {
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

/// Lower bound on the share of a phase's stated sizes that its flow moves, in units of 1 / kWhole.
/// It may be less than the whole, because the rounded time of half a phase may be half a tick too
/// short for half of what the phase carries.
std::int64_t moved_share(const AllReducePhase& phase, const Topology& topology) {
  std::int64_t least = kWhole;
  for (const auto& [port, size] : phase.ports) {
    const Wide room =
        Wide{topology.ports()[port.position()].bandwidth.bytes_per_second} * phase.busy.count;
    const Wide wanted = size.count * kNanosecondsPerSecond * kTicksPerNanosecond / kPartsPerByte;
    if (room < wanted) least = std::min(least, divide_down(room * kWhole, wanted + 1));
  }
  return least;
}

/// Upper bounds on the number of flows through each port after a stage's last backward. Stages are
/// visited one after another, the last one first.
class FlowCounts {
 public:
  /// Constructs the counts before the last stage is visited. O(flows and ports of all transfers).
  FlowCounts(const PlanCost& costs, const Topology& topology)
      : costs_(costs), counts_(topology.ports().size()), counted_for_(counts_.size(), kNoStage) {
    for (std::size_t before = 0; before < costs.boundaries.size(); ++before) add(before, 1);
  }

  /// Moves to the moment after the last backward of `stage`.
  /// O(ports of its reductions and flows of the boundary behind it).
  /// Requires: it is called once per stage, in falling order from the last stage on.
  void move_to(std::size_t stage) {
    if (stage + 1 < costs_.stages.size()) add(stage, -1);
    for (const AllReduceCost& bucket : costs_.stages[stage].buckets) {
      for (const AllReducePhase& phase : bucket.phases) {
        for (const auto& [port, size] : phase.ports) count_once(port, index_at<StageIndex>(stage));
      }
    }
    // Tied gradients to which a stage in front adds are reduced only after it has received its last
    // gradients.
    for (const TiedCost& tie : costs_.ties) {
      if (tie.stages.front().position() != stage) continue;
      for (const auto& [port, size] : tie.reduction.ports()) ++counts_[port];
    }
  }

  std::int64_t at(PortIndex port) const { return counts_[port]; }

 private:
  /// Counts the reductions of a stage as one flow through a port.
  void count_once(PortIndex port, StageIndex stage) {
    if (counted_for_[port] == stage) return;
    counted_for_[port] = stage;
    ++counts_[port];
  }
  void add(std::size_t boundary, std::int64_t change) {
    for (const PairFlow& flow : costs_.boundaries[boundary].backward.front().flows) {
      for (const PortIndex port : flow.route.ports) counts_[port] += change;
    }
  }

  const PlanCost& costs_;
  static constexpr StageIndex kNoStage{-1};
  IndexedVector<PortIndex, std::int64_t> counts_;
  // The last stage whose reductions were counted.
  IndexedVector<PortIndex, StageIndex> counted_for_;
};

/// The last gradients and the reductions of one stage.
class LastFlows {
 public:
  /// `counts` is of the moment after the last backward of this stage.
  /// O(flows and ports of the stage's gradients and reductions, times log flows).
  LastFlows(const PlanCost& costs, std::size_t stage, const Topology& topology,
            const FlowCounts& counts);

  /// Returns the largest bounds over the ports of the gradients.
  LastSending sending() const;

 private:
  /// A port that gradients pass.
  struct PortFlows {
    const PortLoad& load;
    // Positions among the flows of the gradients, ascending.
    std::vector<std::size_t> flows;
  };
  const StageCost& stage() const { return costs_.stages[stage_]; }
  const TransferCost& gradients() const { return costs_.boundaries[stage_ - 1].backward.front(); }
  Bandwidth bandwidth(PortIndex port) const { return topology_.ports()[port.position()].bandwidth; }
  void index_flows();
  std::optional<LastSending> at(const PortFlows& here) const;
  bool is_alike_for_all(const PortFlows& here) const;
  Bandwidth rate_of(const AllReducePhase& phase, ByteParts busiest) const;
  /// Lower bound on the fair share of every flow through a port after the stage's last backward.
  Bandwidth fair_part(PortIndex port) const {
    return {bandwidth(port).bytes_per_second / std::max<std::int64_t>(1, counts_.at(port))};
  }
  std::int64_t reduction_share(PortIndex port) const;
  std::int64_t gradient_share(const PortFlows& here) const;
  RemainingReduction reduction_left(PortIndex port) const;
  Duration after_port(PortIndex port) const;
  Duration pauses(PortIndex port, Duration window) const;
  Duration time_elsewhere(PortIndex port, Duration window) const;
  /// The time from the end of the last bucket's reduction to the end of the last optimizer step.
  Duration last_step() const;

  const PlanCost& costs_;
  std::size_t stage_;
  const Topology& topology_;
  const FlowCounts& counts_;
  struct PhaseFlow {
    // Lower bound on the rate through the busiest port of the phase.
    Bandwidth rate;
    // See moved_share().
    std::int64_t moved = 0;
    // The size that passes the busiest port.
    ByteParts busiest;
  };
  // Indexed by bucket and phase.
  std::vector<std::vector<PhaseFlow>> phases_;
  // Whether no phase has a rate of zero.
  bool are_all_moving_ = true;
  // In the order of the ports of the gradients.
  std::vector<PortFlows> ports_;
  // Indexed by flow of the gradients: the number of flows of its sender.
  std::vector<std::size_t> flows_of_sender_;
};

LastFlows::LastFlows(const PlanCost& costs, std::size_t stage, const Topology& topology,
                     const FlowCounts& counts)
    : costs_(costs), stage_(stage), topology_(topology), counts_(counts) {
  for (const AllReduceCost& bucket : this->stage().buckets) {
    std::vector<PhaseFlow>& phases = phases_.emplace_back();
    for (const AllReducePhase& phase : bucket.phases) {
      const ByteParts busiest = busiest_size(phase);
      phases.push_back({.rate = rate_of(phase, busiest),
                        .moved = moved_share(phase, topology),
                        .busiest = busiest});
      are_all_moving_ = are_all_moving_ && phases.back().rate.bytes_per_second > 0;
    }
  }
  index_flows();
}

void LastFlows::index_flows() {
  const std::vector<PairFlow>& flows = gradients().flows;
  for (const PortLoad& load : gradients().ports) ports_.push_back({.load = load, .flows = {}});
  for (std::size_t i = 0; i < flows.size(); ++i) {
    for (const PortIndex port : flows[i].route.ports) {
      const auto found = std::lower_bound(
          ports_.begin(), ports_.end(), port,
          [](const PortFlows& here, PortIndex wanted) { return here.load.port < wanted; });
      if (found == ports_.end() || found->load.port != port) continue;
      if (found->flows.empty() || found->flows.back() != i) found->flows.push_back(i);
    }
  }
  flows_of_sender_.resize(flows.size());
  // Flows are sorted by sender.
  for (std::size_t first = 0; first < flows.size();) {
    std::size_t end = first;
    while (end < flows.size() && flows[end].from == flows[first].from) ++end;
    for (std::size_t i = first; i < end; ++i) flows_of_sender_[i] = end - first;
    first = end;
  }
}

Duration LastFlows::last_step() const {
  const StageCost& cost = stage();
  if (cost.bucket_steps.empty()) return cost.tied_reduction_from_here + cost.optimizer_step;
  const Duration of_bucket = cost.bucket_steps[cost.buckets.size() - 1];
  if (!cost.has_tied_step()) return of_bucket;
  return std::max(of_bucket, cost.tied_reduction_from_here) + cost.bucket_steps.back();
}

/// Lower bound on the rate of a phase's flow through its busiest port; its rates through other
/// ports are in proportion to their sizes.
Bandwidth LastFlows::rate_of(const AllReducePhase& phase, ByteParts busiest) const {
  if (phase.busy.count == 0) return {};
  Bandwidth rate{divide_down(busiest.count * kNanosecondsPerSecond * kTicksPerNanosecond,
                             Wide{phase.busy.count} * kPartsPerByte)};
  for (const auto& [port, size] : phase.ports) rate = std::min(rate, fair_part(port));
  return rate;
}

/// Whether (B12) may be claimed for a port: every bucket passes it, and so do all flows of every
/// sender that has one through it, because a sender that waits for a flow elsewhere would leave the
/// port to others meanwhile. Besides, no phase may be so small, or share its links with so many
/// flows, that no positive rate is certain.
bool LastFlows::is_alike_for_all(const PortFlows& here) const {
  if (!are_all_moving_) return false;
  for (const AllReduceCost& bucket : stage().buckets) {
    if (size_through(bucket, here.load.port).count == 0) return false;
  }
  const std::vector<PairFlow>& flows = gradients().flows;
  for (std::size_t first = 0; first < here.flows.size();) {
    const std::size_t flow = here.flows[first];
    std::size_t end = first;
    while (end < here.flows.size() && flows[here.flows[end]].from == flows[flow].from) ++end;
    if (end - first < flows_of_sender_[flow]) return false;
    first = end;
  }
  return true;
}

/// Lower bound on the share of the port that a reduction has while one of its rounds uses it.
std::int64_t LastFlows::reduction_share(PortIndex port) const {
  std::int64_t least = kWhole;
  for (std::size_t k = 0; k < stage().buckets.size(); ++k) {
    const std::vector<AllReducePhase>& phases = stage().buckets[k].phases;
    for (std::size_t i = 0; i < phases.size(); ++i) {
      const ByteParts size = phases[i].ports.through(port);
      if (size.count == 0) continue;
      const std::int64_t share = share_of(phases_[k][i].rate, bandwidth(port));
      least = std::min(least, divide_down(Wide{share} * size.count, phases_[k][i].busiest.count));
    }
  }
  return least;
}

/// Lower bound on the share of the port that the gradients have while they use it.
std::int64_t LastFlows::gradient_share(const PortFlows& here) const {
  std::int64_t least = kWhole;
  for (const std::size_t i : here.flows) {
    const Route& route = gradients().flows[i].route;
    Bandwidth rate = route.bandwidth;
    for (const PortIndex other : route.ports) rate = std::min(rate, fair_part(other));
    least = std::min(least, share_of(rate, bandwidth(here.load.port)));
  }
  return least;
}

/// Lower bounds on what is left of the reductions when the last backward ends.
RemainingReduction LastFlows::reduction_left(PortIndex port) const {
  RemainingReduction left;
  Duration done;
  for (std::size_t k = 0; k < stage().buckets.size(); ++k) {
    const AllReduceCost& bucket = stage().buckets[k];
    const Duration start = std::max(done, stage().bucket_ready[k]);
    done = start + bucket.time;
    Duration elapsed = std::max(Duration{}, stage().backward - start);
    for (std::size_t i = 0; i < bucket.phases.size(); ++i) {
      const AllReducePhase& phase = bucket.phases[i];
      const Bytes size{divide_down(phase.ports.through(port).count * phases_[k][i].moved,
                                   Wide{kWhole} * kPartsPerByte)};
      const RemainingReduction of_phase = left_of(phase, size, elapsed);
      left.size += of_phase.size;
      left.waiting += of_phase.waiting;
      elapsed = std::max(Duration{}, elapsed - length_of(phase));
    }
  }
  return left;
}

/// Lower bound on the time from the last byte through the port to the end of the last all-reduce.
Duration LastFlows::after_port(PortIndex port) const {
  Duration time;
  const std::vector<AllReducePhase>& phases = stage().buckets.back().phases;
  for (std::size_t i = phases.size(); i-- > 0;) {
    if (phases[i].ports.through(port).count > 0) return time + phases[i].latency;
    time += length_of(phases[i]);
  }
  return time;
}

/// Upper bound on the time within `window` for which phases that use the port pause between rounds.
Duration LastFlows::pauses(PortIndex port, Duration window) const {
  Duration latency;
  Duration shortest = window + Duration{1};
  std::int64_t all = 0;
  for (const AllReduceCost& bucket : stage().buckets) {
    for (const AllReducePhase& phase : bucket.phases) {
      if (phase.ports.through(port).count == 0) continue;
      all += phase.rounds;
      latency = std::max(latency, phase.latency);
      shortest = std::min(shortest, round_down({phase.busy.count / phase.rounds}));
    }
  }
  const std::int64_t ends = std::min(all, 1 + window.ns / std::max<std::int64_t>(1, shortest.ns));
  // A round ends with the tick in which its last byte passes.
  return ends * latency + Duration{ends / kTicksPerNanosecond};
}

/// Upper bound on the time within `window` that is taken by phases that do not use the port.
/// Between two consecutive runs of such phases, a bucket sends all of its bytes through the port.
Duration LastFlows::time_elsewhere(PortIndex port, Duration window) const {
  Duration longest;
  Duration shortest_here = window + Duration{1};
  for (std::size_t k = 0; k < stage().buckets.size(); ++k) {
    Duration elsewhere;
    Duration here;
    const std::vector<AllReducePhase>& phases = stage().buckets[k].phases;
    for (std::size_t i = 0; i < phases.size(); ++i) {
      if (phases[i].ports.through(port).count > 0) {
        here = std::max(here, round_down(phases[i].busy));
        continue;
      }
      elsewhere += Duration{divide_up(phases_[k][i].busiest.count * kNanosecondsPerSecond,
                                      Wide{phases_[k][i].rate.bytes_per_second} * kPartsPerByte)} +
                   phases[i].rounds * (phases[i].latency + kRounding);
    }
    longest = std::max(longest, elsewhere);
    shortest_here = std::min(shortest_here, here);
  }
  // A run may consist of the end of one bucket and the beginning of the next.
  const std::int64_t stretches = 2 + window.ns / std::max<std::int64_t>(1, shortest_here.ns);
  const auto most = static_cast<std::int64_t>(stage().buckets.size());
  return 2 * std::min(stretches, most) * longest;
}

std::optional<LastSending> LastFlows::at(const PortFlows& here) const {
  if (!is_alike_for_all(here)) return std::nullopt;
  const PortLoad& load = here.load;
  const std::int64_t for_reduction = reduction_share(load.port);
  const std::int64_t for_gradients = gradient_share(here);
  if (for_reduction >= kWhole || for_gradients >= kWhole) return std::nullopt;
  const RemainingReduction reduction = reduction_left(load.port);
  const Duration left = time_at(reduction.size, bandwidth(load.port));
  if (left == Duration{}) return std::nullopt;
  const Duration sent = time_at(load.size, bandwidth(load.port));
  const Duration both = left + sent;
  const Duration window{divide_up(Wide{sent.ns} * kWhole, kWhole - for_reduction)};
  const Duration slowed_gradient =
      window - pauses(load.port, window) - time_elsewhere(load.port, window);
  const Duration slowed_reduction{divide_down(Wide{left.ns} * kWhole, kWhole - for_gradients)};
  // Either the gradients are done first, and nothing slows the reduction from then on; or they have
  // their share all the time, and the reduction has to wait for its pauses besides.
  const Duration after_both = std::max(both + after_port(load.port), left + reduction.waiting);
  return LastSending{.gradient = std::min(both, slowed_gradient) + load.latency - kRounding,
                     .after_backward = std::min(after_both, slowed_reduction + reduction.waiting) +
                                       last_step() - kRounding};
}

LastSending LastFlows::sending() const {
  LastSending sending{.gradient = gradients().time,
                      .after_backward = time_after_last_backward(stage())};
  for (const PortFlows& port : ports_) {
    const std::optional<LastSending> here = at(port);
    if (!here) continue;
    sending.gradient = std::max(sending.gradient, here->gradient);
    sending.after_backward = std::max(sending.after_backward, here->after_backward);
  }
  return sending;
}

}  // namespace

bool are_last_flows_known(Contention contention, const PlanCost& costs) {
  return contention == Contention::Shared ||
         (contention == Contention::SharedWithCollectives && !has_traffic(costs));
}

std::vector<LastSending> last_sendings(const PlanCost& costs, const Topology& topology) {
  std::vector<LastSending> sendings(costs.stages.size());
  FlowCounts counts(costs, topology);
  for (std::size_t stage = costs.stages.size(); stage-- > 1;) {
    counts.move_to(stage);
    const StageCost& cost = costs.stages[stage];
    if (!cost.buckets.empty() && costs.overlap_slowdown == kOne) {
      sendings[stage] = LastFlows(costs, stage, topology, counts).sending();
    } else {
      sendings[stage] = {.gradient = costs.boundaries[stage - 1].backward.front().time,
                         .after_backward = time_after_last_backward(cost)};
    }
  }
  return sendings;
}

}  // namespace dapple::search
