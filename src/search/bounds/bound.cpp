#include "dapple/search/bounds/bound.h"

#include <algorithm>
#include <map>

#include "dapple/core/error.h"
#include "search/bounds/last_gradients.h"
#include "search/bounds/pass_traffic.h"

namespace dapple::search {
namespace {

/// Computes (B3): at most `depth_limit` micro-batches are between the start of their forward and
/// the end of their backward. `waves` is (B3a), `drained` is (B3b) and `filled` is (B3c).
Duration bound_by_depth(const StageBound& stage, const BoundLabel& trips,
                        std::int64_t num_micro_batches) {
  const std::int64_t depth = std::min(stage.depth_limit, num_micro_batches);
  const std::int64_t rest = num_micro_batches - 1;
  const Duration waves = (rest / depth + 1) * trips.round_trip +
                         (rest % depth) * std::max(stage.forward, stage.backward);
  const Duration drained =
      trips.round_trip + rest * stage.backward + (num_micro_batches - depth) * stage.forward;
  const Duration filled =
      trips.last_trip + rest * stage.forward + (num_micro_batches - depth) * stage.backward;
  return std::max({waves, drained, filled});
}

/// Computes (B4): all transfers but one queue at a port, and the last one is followed by the rest
/// of a round trip.
Duration bound_by_ports(const StageBound& stage, const BoundaryBound& boundary,
                        const BoundLabel& behind) {
  return stage.forward + behind.round_trip + stage.backward +
         std::max(boundary.forward_queue + boundary.backward,
                  boundary.forward + boundary.backward_queue);
}

/// Computes (B6): the last tensor that the next stage sends, and the last one that it receives, is
/// a gradient.
Duration bound_by_next_stage(const StageBound& stage, const BoundaryBound& boundary) {
  return std::max(stage.forward + boundary.forward + boundary.sent_by_next + stage.backward,
                  stage.forward + boundary.received_by_next + boundary.backward + stage.backward);
}

/// Returns the work that precedes the start of the last forward (B9): all other forwards, and all
/// backwards except those of the micro-batches that may be in flight together with it.
Duration before_last_forward(const StageBound& stage, std::int64_t num_micro_batches) {
  const std::int64_t depth = std::min(stage.depth_limit, num_micro_batches);
  return (num_micro_batches - 1) * stage.forward + (num_micro_batches - depth) * stage.backward;
}

/// Computes (B9) from the other components of the label.
Duration bound_of_end(const StageBound& stage, const BoundaryBound& boundary,
                      const BoundLabel& behind, const BoundLabel& label,
                      std::int64_t num_micro_batches) {
  const Duration arrival = stage.forward + boundary.forward;
  return std::max({arrival + behind.end, label.span + stage.after_backward,
                   arrival + behind.span + boundary.next_after_backward,
                   before_last_forward(stage, num_micro_batches) + label.tail,
                   stage.forward + boundary.forward_queue + behind.tail});
}

std::vector<PortBound> ports_of(const TransferCost& cost, const Topology& topology) {
  std::vector<PortBound> ports;
  for (const PortLoad& load : cost.ports) {
    ports.push_back({.size = load.size,
                     .bandwidth = topology.ports()[load.port.position()].bandwidth,
                     .time = round_up(load.busy) + load.latency});
  }
  return ports;
}

}  // namespace

Duration queue_at(const PortBound& port, std::int64_t num_micro_batches) {
  return {divide_down(Wide{num_micro_batches - 1} * port.size.count * kNanosecondsPerSecond,
                      port.bandwidth.bytes_per_second)};
}

Duration longest_queue(const std::vector<PortBound>& ports, std::int64_t num_micro_batches) {
  Duration longest;
  for (const PortBound& port : ports) {
    longest = std::max(longest, queue_at(port, num_micro_batches) + port.time);
  }
  return longest;
}

bool is_no_larger(const BoundLabel& a, const BoundLabel& b) {
  return a.round_trip <= b.round_trip && a.last_trip <= b.last_trip && a.span <= b.span &&
         a.end <= b.end && a.tail <= b.tail && a.occupied <= b.occupied;
}

BoundLabel componentwise_minimum(const BoundLabel& a, const BoundLabel& b) {
  return {.round_trip = std::min(a.round_trip, b.round_trip),
          .last_trip = std::min(a.last_trip, b.last_trip),
          .span = std::min(a.span, b.span),
          .end = std::min(a.end, b.end),
          .tail = std::min(a.tail, b.tail),
          .occupied = std::min(a.occupied, b.occupied)};
}

Duration occupied_by(Transfers transfers, Duration forward, Duration backward) {
  switch (transfers) {
    case Transfers::Overlapped:
      return {};
    case Transfers::Blocking:
      return std::max(forward, backward);
    case Transfers::Serial:
      return forward + backward;
  }
  throw Bug("a treatment of transfers without a bound");
}

BoundLabel initial_label(const StageBound& stage, std::int64_t num_micro_batches) {
  BoundLabel label;
  label.round_trip = stage.forward + stage.backward;
  label.last_trip = label.round_trip;
  label.span = stage.work(num_micro_batches);
  label.end = label.span + stage.after_backward;
  label.tail = label.round_trip + stage.after_backward;
  label.occupied = label.span;
  return label;
}

BoundLabel extend_label(const StageBound& stage, const BoundaryBound& boundary,
                        const BoundLabel& next, std::int64_t num_micro_batches,
                        Duration least_span) {
  BoundLabel behind = next;
  // All transfers over the boundary but the first of activations and the last of gradients are
  // between the computations of the stage behind (B13).
  behind.span = std::max(next.span, next.occupied + (num_micro_batches - 1) * boundary.occupied);
  const Duration arrival = stage.forward + boundary.forward;
  const Duration last_back = std::max(boundary.backward, boundary.last_backward) + stage.backward;
  BoundLabel label;
  // The round trips are those of (B7).
  label.round_trip = arrival + behind.round_trip + boundary.backward + stage.backward;
  label.last_trip = arrival + behind.last_trip + last_back;
  label.occupied = stage.work(num_micro_batches) + num_micro_batches * boundary.occupied;
  label.span = std::max({label.occupied,                     // (B1), (B13)
                         arrival + behind.span + last_back,  // (B2)
                         bound_by_depth(stage, label, num_micro_batches),
                         bound_by_ports(stage, boundary, behind),
                         bound_by_next_stage(stage, boundary), least_span});
  // The tail is that of (B8).
  label.tail = std::max({arrival + behind.tail, label.last_trip + stage.after_backward,
                         arrival + behind.last_trip + boundary.next_after_backward});
  label.end = bound_of_end(stage, boundary, behind, label, num_micro_batches);
  return label;
}

Duration exposed_all_reduce(const StageCost& stage) {
  Duration done;
  for (std::size_t k = 0; k < stage.buckets.size(); ++k) {
    done = std::max(done, stage.bucket_ready[k]) + stage.buckets[k].time;
  }
  return std::max(Duration{}, done - stage.backward);
}

Duration time_after_last_backward(const StageCost& stage) {
  if (stage.bucket_steps.empty()) {
    return exposed_all_reduce(stage) + stage.tied_reduction_from_here + stage.optimizer_step;
  }
  Duration reduced;
  Duration stepped = stage.backward;
  for (std::size_t k = 0; k < stage.buckets.size(); ++k) {
    reduced = std::max(reduced, stage.bucket_ready[k]) + stage.buckets[k].time;
    stepped = std::max(stepped, reduced) + stage.bucket_steps[k];
  }
  if (stage.buckets.empty()) stepped += stage.bucket_steps.front();
  if (stage.has_tied_step()) {
    reduced = std::max(reduced, stage.backward) + stage.tied_reduction_from_here;
    stepped = std::max(stepped, reduced) + stage.bucket_steps.back();
  }
  return stepped - stage.backward;
}

namespace {

/// Returns the longest time, latency included, for which a port that both transfers use carries
/// those of all micro-batches (B6), rounded down; zero if they have no port in common.
Duration busiest_of_both(const TransferCost& one, const TransferCost& other,
                         std::int64_t num_micro_batches, const Topology& topology) {
  Duration longest;
  auto same = other.ports.begin();
  for (const PortLoad& load : one.ports) {
    // Both lists are sorted by port.
    while (same != other.ports.end() && same->port < load.port) ++same;
    if (same == other.ports.end()) break;
    if (same->port != load.port) continue;
    const PortBound both{.size = load.size + same->size,
                         .bandwidth = topology.ports()[load.port.position()].bandwidth,
                         .time = std::min(load.latency, same->latency)};
    longest = std::max(longest, queue_at(both, num_micro_batches + 1) + both.time);
  }
  return longest;
}

/// Returns the largest sum of forward and backward of one replica (R2).
Duration slowest_replica(const StageCost& stage) {
  Duration slowest;
  for (const ReplicaCost& replica : stage.replicas) {
    slowest = std::max(slowest, replica.forward + replica.backward);
  }
  return slowest;
}

/// What passes each port: all bytes of the iteration, and the least latency.
using PortTotals = std::map<PortIndex, PortBound>;

/// Adds the transfers of a boundary in one direction: micro-batch m uses entry m modulo their
/// number.
void add_transfers(const std::vector<TransferCost>& transfers, std::int64_t num_micro_batches,
                   const Topology& topology, PortTotals& totals) {
  const std::int64_t entries = std::ssize(transfers);
  for (std::int64_t e = 0; e < entries; ++e) {
    const std::int64_t times = divide_up(num_micro_batches - e, entries);
    for (const PortLoad& load : transfers[static_cast<std::size_t>(e)].ports) {
      const auto [entry, is_new] = totals.try_emplace(load.port);
      PortBound& port = entry->second;
      port.bandwidth = topology.ports()[load.port.position()].bandwidth;
      port.size += times * load.size;
      port.time = is_new ? load.latency : std::min(port.time, load.latency);
    }
  }
}

/// Returns the longest time, latency included, for which a port carries all that passes it, rounded
/// down.
Duration longest_of(const PortTotals& totals) {
  Duration longest;
  for (const auto& [index, port] : totals) {
    longest = std::max(longest, queue_at(port, 2) + port.time);
  }
  return longest;
}

/// Returns the largest queue of a boundary's transfers, latency included. Where micro-batches are
/// dealt, it is that of all bytes that pass a port, whichever entries these are of (L2).
Duration longest_queue_of(const std::vector<TransferCost>& transfers,
                          std::int64_t num_micro_batches, const Topology& topology) {
  if (transfers.size() == 1) {
    return longest_queue(ports_of(transfers.front(), topology), num_micro_batches);
  }
  PortTotals totals;
  add_transfers(transfers, num_micro_batches, topology, totals);
  return longest_of(totals);
}

/// Returns the longest time, latency included, for which a port carries the transfers of all
/// micro-batches over two boundaries (B6), rounded down.
Duration busy_with_both(const std::vector<TransferCost>& one,
                        const std::vector<TransferCost>& other, std::int64_t num_micro_batches,
                        const Topology& topology) {
  if (one.size() == 1 && other.size() == 1) {
    return busiest_of_both(one.front(), other.front(), num_micro_batches, topology);
  }
  PortTotals totals;
  add_transfers(one, num_micro_batches, topology, totals);
  add_transfers(other, num_micro_batches, topology, totals);
  return longest_of(totals);
}

/// Raises what the stage behind stage `i` sends and receives to that of its NICs, with the
/// collectives of its passes (B6).
void add_passes(const BoundedPlan& bounded, const PlanCost& path, std::size_t i,
                BoundaryBound& boundary) {
  const StageCost& stage = bounded.costs.stages[i + 1];
  const BoundaryCost& own = bounded.costs.boundaries[i];
  const BoundaryCost& next = bounded.costs.boundaries[i + 1];
  if (!has_traffic(stage) || own.forward.size() > 1 || next.forward.size() > 1) return;
  const std::int64_t all = bounded.plan.num_micro_batches;
  const TrafficBound traffic = traffic_bound(stage, bounded.topology);
  const Duration sent = busiest_nic(stage, next.forward.front(), own.backward.front(), all,
                                    /*is_out=*/true, bounded.topology);
  const Duration received = busiest_nic(stage, own.forward.front(), next.backward.front(), all,
                                        /*is_out=*/false, bounded.topology);
  boundary.sent_by_next =
      std::max(boundary.sent_by_next, path.stages[i + 1].forward + sent + traffic.sent(all));
  boundary.received_by_next = std::max(
      boundary.received_by_next, path.stages[i + 1].backward + received + traffic.received(all));
}

/// Returns the bounds of the boundary behind stage `i`. Times are taken from `path` (R1), and the
/// loads of ports from the costs of all replicas (R3). `last` is of the stage behind the boundary,
/// or null if unknown.
BoundaryBound boundary_of(const BoundedPlan& bounded, const PlanCost& path, std::size_t i,
                          const LastSending* last) {
  const PlanCost& costs = bounded.costs;
  const BoundaryCost& own = costs.boundaries[i];
  BoundaryBound boundary;
  boundary.forward = path.boundaries[i].forward.front().time;
  boundary.backward = path.boundaries[i].backward.front().time;
  boundary.occupied = occupied_by(bounded.mode.transfers, boundary.forward, boundary.backward);
  const std::int64_t all = bounded.plan.num_micro_batches;
  boundary.forward_queue = longest_queue_of(own.forward, all, bounded.topology);
  boundary.backward_queue = longest_queue_of(own.backward, all, bounded.topology);
  if (bounded.mode.contention == Contention::Off) return boundary;
  if (last != nullptr) {
    boundary.last_backward = last->gradient;
    boundary.next_after_backward = last->after_backward;
  }
  if (i + 1 == costs.boundaries.size()) return boundary;
  const BoundaryCost& next = costs.boundaries[i + 1];
  boundary.sent_by_next = path.stages[i + 1].forward +
                          busy_with_both(next.forward, own.backward, all, bounded.topology);
  boundary.received_by_next = path.stages[i + 1].backward +
                              busy_with_both(own.forward, next.backward, all, bounded.topology);
  if (bounded.mode.contention == Contention::SharedWithCollectives) {
    add_passes(bounded, path, i, boundary);
  }
  return boundary;
}

/// Computes (B10) from the times of `path`.
Duration bound_along(const BoundedPlan& bounded, const PlanCost& path) {
  const std::int64_t all = bounded.plan.num_micro_batches;
  const bool counts_on_sharing = are_last_flows_known(bounded.mode.contention, bounded.costs) &&
                                 !follows_least_path(bounded) && !bounded.mode.blocks() &&
                                 !deals_micro_batches(bounded.plan) &&
                                 !has_larger_groups(bounded.plan);
  const std::vector<LastSending> last = counts_on_sharing
                                            ? last_sendings(bounded.costs, bounded.topology)
                                            : std::vector<LastSending>{};
  BoundLabel label;
  for (std::size_t i = path.stages.size(); i-- > 0;) {
    const StageCost& cost = path.stages[i];
    StageBound stage{.forward = cost.forward,
                     .backward = cost.backward,
                     .after_backward = time_after_last_backward(cost),
                     .depth_limit = bounded.plan.warmup_depths[i]};
    if (follows_least_path(bounded)) stage.slowest = slowest_replica(bounded.costs.stages[i]);
    const std::int64_t own = divide_up(all, dealt_to(bounded.plan.stages[i]));
    label =
        i + 1 == path.stages.size()
            ? initial_label(stage, own)
            : extend_label(
                  stage, boundary_of(bounded, path, i, counts_on_sharing ? &last[i + 1] : nullptr),
                  label, own);
  }
  return label.end;
}

}  // namespace

bool follows_least_path(const BoundedPlan& bounded) {
  return bounded.mode.replicas == Replicas::Independent && splits_micro_batches(bounded.plan);
}

Duration lower_bound(const BoundedPlan& bounded) {
  if (deals_micro_batches(bounded.plan)) {
    return bound_along(bounded, least_path_of_dealt(bounded.plan, bounded.costs));
  }
  return follows_least_path(bounded) ? bound_along(bounded, least_path(bounded.costs))
                                     : bound_along(bounded, bounded.costs);
}

Duration lower_bound_of_order(const BoundedPlan& bounded) {
  return follows_least_path(bounded) ? lower_bound_of_order(bounded.plan, least_path(bounded.costs))
                                     : lower_bound_of_order(bounded.plan, bounded.costs);
}

Duration lower_bound(const Plan& plan, const PlanCost& costs, const Topology& topology) {
  return lower_bound({plan, costs, topology, {.contention = Contention::Off}});
}

Duration lower_bound_with_contention(const Plan& plan, const PlanCost& costs,
                                     const Topology& topology) {
  return lower_bound({plan, costs, topology, {.contention = Contention::Shared}});
}

Duration lower_bound_of_order(const Plan& plan, const PlanCost& costs) {
  if (deals_micro_batches(plan)) return {};
  const std::size_t stages = costs.stages.size();
  const std::int64_t all = plan.num_micro_batches;
  std::vector<Duration> round_trip(stages);
  std::vector<Duration> there_and_back(stages);  // over the boundary behind the stage
  for (std::size_t s = stages; s-- > 0;) {
    round_trip[s] = costs.stages[s].forward + costs.stages[s].backward;
    if (s + 1 == stages) continue;
    there_and_back[s] =
        costs.boundaries[s].forward.front().time + costs.boundaries[s].backward.front().time;
    round_trip[s] += there_and_back[s] + round_trip[s + 1];
  }
  Duration bound;
  Duration start;    // earliest start of the stage's first forward, start_s of (B5c)
  Duration finish;   // from the end of its last backward to that of the iteration, finish_s
  Duration slowest;  // slowest forward or port occupation in front of it
  for (std::size_t s = 0; s < stages; ++s) {
    const StageCost& stage = costs.stages[s];
    const std::int64_t depth = plan.warmup_depths[s];
    finish = std::max(finish, time_after_last_backward(stage));
    // (B5b): K forwards arrive before the first backward; all other work follows.
    const Duration wait = std::max(Duration{}, slowest - stage.forward);
    Duration span = (depth - 1) * wait + all * (stage.forward + stage.backward);
    Duration trip;
    for (std::size_t t = s; t < stages; ++t) {
      if (t > s) trip += there_and_back[t - 1];
      trip += costs.stages[t].forward + costs.stages[t].backward;
      const std::int64_t other = plan.warmup_depths[t];
      const std::int64_t wave = depth - other + 1;
      // This term is (B5a).
      span = std::max(span, (other - 1) * stage.forward + ((all - other) / wave) * trip +
                                round_trip[s] +
                                ((all - other) % wave) * std::max(stage.forward, stage.backward));
    }
    bound = std::max(bound, start + span + finish);  // (B5c)
    if (s + 1 == stages) break;
    start += stage.forward + costs.boundaries[s].forward.front().time;
    finish += costs.boundaries[s].backward.front().time + stage.backward;
    slowest = std::max(slowest, stage.forward);
    // Only ports that decide the transfer's time count, because the time of one port and the
    // occupation of another are no bound together.
    const TransferCost& transfer = costs.boundaries[s].forward.front();
    for (const PortLoad& load : transfer.ports) {
      if (round_up(load.busy) + load.latency < transfer.time) continue;
      const std::int64_t busy = std::max<std::int64_t>(0, load.busy.count - 1);
      slowest = std::max(slowest, Duration{busy / kTicksPerNanosecond});
    }
  }
  return bound;
}

}  // namespace dapple::search
