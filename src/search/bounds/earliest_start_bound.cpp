#include "dapple/search/bounds/earliest_start_bound.h"

#include <algorithm>

#include "dapple/search/bounds/bound.h"
#include "search/bounds/last_gradients.h"

namespace dapple::search {
namespace {

/// Precedes every moment, and is far enough from the limits that sums do not overflow.
constexpr Duration kNever{INT64_MIN / 4};

/// Lower bound on the time for which one transfer occupies a port, rounded down.
Duration time_to_pass(const PortLoad& load, const Topology& topology) {
  return {divide_down(Wide{load.size.count} * kNanosecondsPerSecond,
                      topology.ports()[load.port.position()].bandwidth.bytes_per_second)};
}

}  // namespace

void EarliestStartBound::Queue::reset() {
  passed = 0;
  anchor = kNever;
}

/// Computes (T3) for one port.
Duration EarliestStartBound::Queue::arrival(Duration ready) {
  anchor = std::max(anchor, ready - passed * busy);
  return anchor + passed++ * busy + time;
}

EarliestStartBound::Ways::Ways(const std::vector<TransferCost>& transfers, std::int64_t senders,
                               std::int64_t receivers, const Topology* topology)
    : senders_(senders), recent_(static_cast<std::size_t>(senders)) {
  for (const TransferCost& transfer : transfers) {
    Way& way = ways_.emplace_back(Way{.time = transfer.time, .queues = {}});
    const std::size_t first = senders == 1 ? 0 : queues_.size();
    for (const PortLoad& load : transfer.ports) {
      Queue queue{.port = load.port,
                  .busy = {load.busy.count / kTicksPerNanosecond},
                  .time = round_up(load.busy) + load.latency,
                  .anchor = kNever};
      if (topology != nullptr) queue.busy = time_to_pass(load, *topology);
      // One port stands for another that the same transfers pass if it is slower in both figures.
      const bool is_alone = transfers.size() == 1;
      const auto known = std::find_if(
          queues_.begin() + static_cast<std::ptrdiff_t>(first), queues_.end(), [&](const Queue& q) {
            return is_alone ? q.busy >= queue.busy && q.time >= queue.time : q.port == queue.port;
          });
      if (known == queues_.end()) {
        way.queues.push_back(queues_.size());
        queues_.push_back(queue);
      } else if (!is_alone) {
        known->busy = std::min(known->busy, queue.busy);
        known->time = std::min(known->time, queue.time);
        way.queues.push_back(static_cast<std::size_t>(known - queues_.begin()));
      }
    }
  }
  if (senders > 1 && receivers == 1) find_common_ports();
}

/// Finds the ports that the transfers of all senders pass.
void EarliestStartBound::Ways::find_common_ports() {
  for (const std::size_t of_first : ways_.front().queues) {
    Queue common = queues_[of_first];
    const bool is_common = std::all_of(ways_.begin(), ways_.end(), [&](const Way& way) {
      return std::any_of(way.queues.begin(), way.queues.end(), [&](std::size_t position) {
        const Queue& queue = queues_[position];
        if (queue.port != common.port) return false;
        common.busy = std::min(common.busy, queue.busy);
        common.time = std::min(common.time, queue.time);
        return true;
      });
    });
    if (is_common) common_.push_back(common);
  }
}

void EarliestStartBound::Ways::reset() {
  for (Queue& queue : queues_) queue.reset();
  for (Queue& queue : common_) queue.reset();
  micro_batches_ = 0;
}

/// Computes (T3).
Duration EarliestStartBound::Ways::arrival(Duration ready) {
  const std::int64_t count = std::ssize(ways_);
  const Way& way = ways_[static_cast<std::size_t>(count == 1 ? 0 : micro_batches_ % count)];
  Duration arrival = ready + way.time;
  for (const std::size_t position : way.queues) {
    arrival = std::max(arrival, queues_[position].arrival(ready));
  }
  const std::int64_t micro_batch = micro_batches_++;
  if (common_.empty()) return arrival;
  recent_[static_cast<std::size_t>(micro_batch % senders_)] = ready;
  if (micro_batches_ < senders_) return arrival;
  // No micro-batch from the first of the recent ones on is sent before the earliest of them.
  const Duration earliest = *std::min_element(recent_.begin(), recent_.end());
  for (Queue& queue : common_) {
    // The recent ones behind the first pass the port as well.
    arrival = std::max(arrival, queue.arrival(earliest) + (senders_ - 1) * queue.busy);
  }
  return arrival;
}

Duration EarliestStartBound::Ways::least_time() const {
  Duration least = ways_.empty() ? Duration{} : ways_.front().time;
  for (const Way& way : ways_) least = std::min(least, way.time);
  return least;
}

void EarliestStartBound::RunningMaximum::reset() {
  count_ = 0;
  largest_ = kNever;
}

namespace {

/// Returns the costs that hold on every path of a micro-batch through the plan.
PlanCost path_of(const BoundedPlan& bounded) {
  if (deals_micro_batches(bounded.plan)) return least_path_of_dealt(bounded.plan, bounded.costs);
  return follows_least_path(bounded) ? least_path(bounded.costs) : bounded.costs;
}

}  // namespace

EarliestStartBound::EarliestStartBound(const BoundedPlan& bounded)
    : EarliestStartBound(path_of(bounded), bounded,
                         shares_links(bounded.mode.contention) && !follows_least_path(bounded) &&
                             !bounded.mode.blocks() && !deals_micro_batches(bounded.plan)) {}

EarliestStartBound::EarliestStartBound(const PlanCost& costs, const BoundedPlan& bounded,
                                       bool counts_on_sharing)
    : micro_batches_(bounded.plan.num_micro_batches), gradient_here_(costs.stages.size()) {
  const bool counts_on_last_flows = counts_on_sharing &&
                                    are_last_flows_known(bounded.mode.contention, bounded.costs) &&
                                    !has_larger_groups(bounded.plan);
  const std::vector<LastSending> last =
      counts_on_last_flows ? last_sendings(costs, bounded.topology) : std::vector<LastSending>{};
  const bool deals = deals_micro_batches(bounded.plan);
  const bool are_links_shared =
      counts_on_sharing || (deals && shares_links(bounded.mode.contention));
  const Topology* shared = are_links_shared ? &bounded.topology : nullptr;
  for (std::size_t s = 0; s < costs.stages.size(); ++s) {
    const StageCost& cost = costs.stages[s];
    Stage& stage = stages_.emplace_back();
    stage.lanes = lanes_of(bounded.plan.stages[s], cost, bounded.costs.stages[s]);
    stage.after_backward = time_after_last_backward(cost);
    gradient_here_[s].resize(static_cast<std::size_t>(micro_batches_));
    if (s == 0) continue;
    // Where micro-batches are dealt, each way has its own time.
    const BoundaryCost& boundary =
        deals ? bounded.costs.boundaries[s - 1] : costs.boundaries[s - 1];
    const std::int64_t front = dealt_to(bounded.plan.stages[s - 1]);
    const std::int64_t back = dealt_to(bounded.plan.stages[s]);
    stage.activations = Ways(boundary.forward, front, back, shared);
    stage.gradients = Ways(boundary.backward, back, front, shared);
    if (!counts_on_last_flows) continue;
    stage.last_gradient = last[s].gradient;
    stage.after_backward = last[s].after_backward;
  }
  for (std::size_t s = 0; s < stages_.size(); ++s) {
    Stage& stage = stages_[s];
    stage.after_all = stage.after_backward;
    if (s == 0) continue;
    // The stage in front still waits for the last gradient, and runs its own last backward.
    const Stage& front = stages_[s - 1];
    Duration backward = front.lanes.front().backward;
    for (const Lane& lane : front.lanes) backward = std::min(backward, lane.backward);
    stage.after_all =
        std::max(stage.after_all, stage.gradients.least_time() + backward + front.after_all);
  }
  if (counts_on_sharing) find_shared_ports(costs, bounded.topology);
}

/// Finds the ports that the activations of some stage and the gradients of the same one, or of one
/// in front of it, pass in the same direction: for each stage those of the next one with such
/// ports.
void EarliestStartBound::find_shared_ports(const PlanCost& costs, const Topology& topology) {
  const std::size_t last = stages_.size() - 1;
  for (std::size_t s = 1; s < last; ++s) {
    const BoundaryCost& front = costs.boundaries[s - 1];
    bool sends = false;
    bool receives = false;
    for (std::size_t t = s; t < last && !(sends && receives); ++t) {
      const BoundaryCost& behind = costs.boundaries[t];
      sends = sends || share(behind.forward.front(), front.backward.front(),
                             {.forwards_of = t,
                              .backwards_of = s,
                              .front = s - 1,
                              .behind = t + 1,
                              .least_of = t,
                              .most_of = s,
                              .activation = {},
                              .gradient = {}},
                             topology);
      receives = receives || share(front.forward.front(), behind.backward.front(),
                                   {.forwards_of = s - 1,
                                    .backwards_of = t + 1,
                                    .front = s - 1,
                                    .behind = t + 1,
                                    .least_of = t + 1,
                                    .most_of = s - 1,
                                    .activation = {},
                                    .gradient = {}},
                                   topology);
    }
  }
}

/// Adds the ports that both transfers pass, unless another one of them is slower for both. Returns
/// whether there are any.
bool EarliestStartBound::share(const TransferCost& activations, const TransferCost& gradients,
                               SharedPort ways, const Topology& topology) {
  const std::size_t before = shared_ports_.size();
  for (const PortLoad& activation : activations.ports) {
    for (const PortLoad& gradient : gradients.ports) {
      if (gradient.port != activation.port) continue;
      ways.activation = time_to_pass(activation, topology);
      ways.gradient = time_to_pass(gradient, topology);
      const bool is_slower_known = std::any_of(
          shared_ports_.begin() + static_cast<std::ptrdiff_t>(before), shared_ports_.end(),
          [&](const SharedPort& known) {
            return known.activation >= ways.activation && known.gradient >= ways.gradient;
          });
      if (!is_slower_known) shared_ports_.push_back(ways);
    }
  }
  for (std::size_t p = before; p < shared_ports_.size(); ++p) {
    stages_[ways.forwards_of + 1].shared_by_activations.push_back(p);
    stages_[ways.backwards_of - 1].shared_by_gradients.push_back(p);
  }
  return shared_ports_.size() > before;
}

/// Returns the lanes of a stage: the replicas to which it deals its micro-batches, whose own costs
/// are `own`, or one with the times of `cost`.
std::vector<EarliestStartBound::Lane> EarliestStartBound::lanes_of(const StagePlan& stage,
                                                                   const StageCost& cost,
                                                                   const StageCost& own) const {
  const std::int64_t count = dealt_to(stage);
  std::vector<Lane> lanes(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    const auto position = static_cast<std::size_t>(i);
    lanes[position].forward = count > 1 ? own.replicas[position].forward : cost.forward;
    lanes[position].backward = count > 1 ? own.replicas[position].backward : cost.backward;
    lanes[position].micro_batches = divide_up(micro_batches_ - i, count);
    const auto micro_batches = static_cast<std::size_t>(lanes[position].micro_batches);
    lanes[position].from_forwards.resize(micro_batches);
    lanes[position].forward_end.resize(micro_batches);
    lanes[position].backward_end.resize(micro_batches);
  }
  return lanes;
}

std::int64_t EarliestStartBound::steps() const {
  return 2 * static_cast<std::int64_t>(stages_.size()) * micro_batches_;
}

void EarliestStartBound::reset(const DepthBox& box) {
  for (std::size_t s = 0; s < stages_.size(); ++s) {
    Stage& stage = stages_[s];
    const std::int64_t lanes = std::ssize(stage.lanes);
    stage.backwards = 0;
    for (Lane& lane : stage.lanes) {
      lane.least = divide_up(box.least[s], lanes);
      lane.most = divide_up(box.most[s], lanes);
      lane.from_backwards = kNever;
      lane.from_old_backwards = kNever;
      lane.old_backwards = 0;
    }
    stage.activations.reset();
    stage.gradients.reset();
  }
  for (SharedPort& port : shared_ports_) {
    port.until_activation_from_forwards.reset();
    port.until_activation_from_backwards.reset();
    port.until_gradient_from_forwards.reset();
    port.until_gradient_from_backwards.reset();
  }
}

/// Returns the earliest end of a forward (T1). Requires: all earlier forwards of the lane, and the
/// backwards that precede this one at every depth of the box, have been visited.
Duration EarliestStartBound::forward(Lane& lane, std::int64_t number, Duration earliest) {
  const std::int64_t before = std::max<std::int64_t>(0, number - lane.most + 1);
  const auto position = static_cast<std::size_t>(number);
  const Duration from_forwards = number == 0 ? kNever : lane.from_forwards[position - 1];
  Duration start = number == 0 ? earliest : std::max(earliest, lane.forward_end[position - 1]);
  if (before > 0) {
    start = std::max(start, lane.backward_end[static_cast<std::size_t>(before - 1)]);
    for (; lane.old_backwards < before; ++lane.old_backwards) {
      const std::int64_t h = lane.old_backwards;
      const Duration began = lane.backward_end[static_cast<std::size_t>(h)] - lane.backward;
      const std::int64_t forwards = std::min(lane.micro_batches, h + lane.most);
      lane.from_old_backwards =
          std::max(lane.from_old_backwards, began - forwards * lane.forward - h * lane.backward);
    }
    const Duration work = number * lane.forward + before * lane.backward;
    start = std::max(start, work + std::max(from_forwards, lane.from_old_backwards));
  }
  const std::int64_t backwards = std::max<std::int64_t>(0, number - lane.least + 1);
  lane.from_forwards[position] =
      std::max(from_forwards, start - number * lane.forward - backwards * lane.backward);
  lane.forward_end[position] = start + lane.forward;
  return start + lane.forward;
}

/// Returns the earliest end of a backward (T2). Requires: the forwards that precede it at every
/// depth of the box have been visited.
Duration EarliestStartBound::backward(Lane& lane, std::int64_t number, Duration earliest) {
  const std::int64_t forwards = std::min(lane.micro_batches, number + lane.least);
  const auto last = static_cast<std::size_t>(forwards - 1);
  Duration start = std::max(earliest, lane.forward_end[last]);
  const auto position = static_cast<std::size_t>(number);
  if (number > 0) start = std::max(start, lane.backward_end[position - 1]);
  const Duration work = forwards * lane.forward + number * lane.backward;
  start = std::max(start, work + std::max(lane.from_forwards[last], lane.from_backwards));
  const std::int64_t at_most = std::min(lane.micro_batches, number + lane.most);
  lane.from_backwards =
      std::max(lane.from_backwards, start - at_most * lane.forward - number * lane.backward);
  lane.backward_end[position] = start + lane.backward;
  return start + lane.backward;
}

/// Whether what a backward needs has been visited, where all stages have visited so many forwards:
/// those that precede it at the least depths, and its gradients.
bool EarliestStartBound::may_run_backward(std::size_t s, std::int64_t micro_batch,
                                          std::int64_t forwards) const {
  if (s + 1 < stages_.size() && stages_[s + 1].backwards <= micro_batch) return false;
  const Stage& stage = stages_[s];
  const Lane& lane = stage.lanes[stage.lane_of(micro_batch)];
  const std::int64_t number = stage.number_of(micro_batch);
  const std::int64_t last = std::min(lane.micro_batches, number + lane.least) - 1;
  return micro_batch + (last - number) * std::ssize(stage.lanes) < forwards;
}

/// Returns the end of a forward less what may have passed the port before its activations do.
Duration EarliestStartBound::ready_after_forward(const SharedPort& port,
                                                 std::int64_t number) const {
  const std::int64_t least = stages_[port.least_of].lanes.front().least;
  const std::int64_t gradients = std::max<std::int64_t>(0, number - least + 1);
  return stages_[port.forwards_of].lanes.front().forward_end[static_cast<std::size_t>(number)] -
         number * port.activation - gradients * port.gradient;
}

/// Returns the end of a backward less what may have passed the port before its gradients do.
Duration EarliestStartBound::ready_after_backward(const SharedPort& port,
                                                  std::int64_t number) const {
  const std::int64_t most = stages_[port.most_of].lanes.front().most;
  return stages_[port.backwards_of].lanes.front().backward_end[static_cast<std::size_t>(number)] -
         (number + most) * port.activation - number * port.gradient;
}

/// Lower bound on the moment at which an activation has passed a shared port (T5).
Duration EarliestStartBound::activation_through(SharedPort& port, std::int64_t micro_batch) {
  const std::int64_t gradients = micro_batch - stages_[port.front].lanes.front().most + 1;
  if (gradients <= 0) return kNever;
  const std::int64_t least = stages_[port.least_of].lanes.front().least;
  const Duration anchor =
      std::max(port.until_activation_from_forwards.of_first(
                   std::min(micro_batch + 1, gradients + least),
                   [&](std::int64_t h) { return ready_after_forward(port, h); }),
               port.until_activation_from_backwards.of_first(
                   gradients, [&](std::int64_t h) { return ready_after_backward(port, h); }));
  return anchor + (micro_batch + 1) * port.activation + gradients * port.gradient;
}

/// Lower bound on the moment at which a gradient has passed a shared port (T5).
Duration EarliestStartBound::gradient_through(SharedPort& port, std::int64_t micro_batch) {
  const std::int64_t activations =
      std::min(micro_batches_, micro_batch + stages_[port.behind].lanes.front().least);
  const std::int64_t most = stages_[port.most_of].lanes.front().most;
  const Duration anchor =
      std::max(port.until_gradient_from_forwards.of_first(
                   activations, [&](std::int64_t h) { return ready_after_forward(port, h); }),
               port.until_gradient_from_backwards.of_first(
                   std::clamp<std::int64_t>(activations - most, 0, micro_batch + 1),
                   [&](std::int64_t h) { return ready_after_backward(port, h); }));
  return anchor + activations * port.activation + (micro_batch + 1) * port.gradient;
}

/// Visits all backwards that precede the next forward of their stage at the least depths, in the
/// order of their micro-batches. It begins with the last stage, on whose gradients the others wait.
/// As depths do not rise from stage to stage, the backwards that the next forward needs are
/// visited.
void EarliestStartBound::run_backwards(std::int64_t forwards) {
  for (std::size_t s = stages_.size(); s-- > 0;) {
    Stage& stage = stages_[s];
    for (; stage.backwards < micro_batches_ && may_run_backward(s, stage.backwards, forwards);
         ++stage.backwards) {
      const std::int64_t m = stage.backwards;
      const auto position = static_cast<std::size_t>(m);
      Duration earliest = gradient_here_[s][position];
      if (known_ != nullptr) earliest = std::max(earliest, known_->backwards[s][position]);
      const Duration end = backward(stage.lanes[stage.lane_of(m)], stage.number_of(m), earliest);
      if (s == 0) continue;
      Duration& arrival = gradient_here_[s - 1][position];
      arrival = stage.gradients.arrival(end);
      for (const std::size_t port : stages_[s - 1].shared_by_gradients) {
        arrival = std::max(arrival, gradient_through(shared_ports_[port], m));
      }
      if (m + 1 == micro_batches_) arrival = std::max(arrival, end + stage.last_gradient);
    }
  }
}

void EarliestStartBound::run_forwards(std::int64_t micro_batch) {
  const auto position = static_cast<std::size_t>(micro_batch);
  Duration end;
  for (std::size_t s = 0; s < stages_.size(); ++s) {
    Stage& stage = stages_[s];
    Duration earliest = s == 0 ? Duration{} : stage.activations.arrival(end);
    for (const std::size_t port : stage.shared_by_activations) {
      earliest = std::max(earliest, activation_through(shared_ports_[port], micro_batch));
    }
    if (known_ != nullptr) earliest = std::max(earliest, known_->forwards[s][position]);
    end = forward(stage.lanes[stage.lane_of(micro_batch)], stage.number_of(micro_batch), earliest);
  }
}

/// Lower bound on the end of the iteration by what each stage has still to do after the last of so
/// many forwards, which have been visited (T6). The complete bound is at least as large.
Duration EarliestStartBound::bound_of_rest(std::int64_t forwards) const {
  Duration end;
  for (const Stage& stage : stages_) {
    if (stage.lanes.size() > 1) continue;
    const Lane& lane = stage.lanes.front();
    const Duration last = lane.forward_end[static_cast<std::size_t>(forwards - 1)];
    // The most backwards that precede that forward at any depth of the box.
    const std::int64_t before = std::max<std::int64_t>(0, forwards - lane.least);
    const Duration rest = (micro_batches_ - forwards) * lane.forward +
                          (micro_batches_ - before) * lane.backward + stage.after_all;
    end = std::max(end, last + rest);
  }
  return end;
}

/// Computes (T4) after all computations have been visited.
Duration EarliestStartBound::bound(const DepthBox& box, const EarliestStarts* known,
                                   Duration enough) {
  // After so many micro-batches the rest is looked at, which takes less time than one of them.
  constexpr std::int64_t kVisits = 4;
  reset(box);
  known_ = known;
  for (std::int64_t m = 0; m < micro_batches_; ++m) {
    run_forwards(m);
    run_backwards(m + 1);
    if (enough.is_infinite() || (m + 1) % kVisits != 0) continue;
    if (const Duration least = bound_of_rest(m + 1); least >= enough) return least;
  }
  Duration end;
  for (const Stage& stage : stages_) {
    for (const Lane& lane : stage.lanes) {
      end = std::max(end, lane.backward_end.back() + stage.after_backward);
    }
  }
  return end;
}

}  // namespace dapple::search
