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

EarliestStartBound::Way EarliestStartBound::way_of(const TransferCost& transfer,
                                                   const Topology* topology) {
  Way way{.time = transfer.time, .queues = {}};
  for (const PortLoad& load : transfer.ports) {
    Queue queue{.busy = {load.busy.count / kTicksPerNanosecond},
                .time = round_up(load.busy) + load.latency,
                .anchor = kNever};
    if (topology != nullptr) queue.busy = time_to_pass(load, *topology);
    const bool is_known = std::any_of(way.queues.begin(), way.queues.end(), [&](const Queue& q) {
      return q.busy >= queue.busy && q.time >= queue.time;
    });
    if (!is_known) way.queues.push_back(queue);
  }
  return way;
}

EarliestStartBound::EarliestStartBound(const BoundedPlan& bounded)
    : EarliestStartBound(follows_least_path(bounded) ? least_path(bounded.costs) : bounded.costs,
                         bounded,
                         bounded.mode.contention == Contention::Shared &&
                             !follows_least_path(bounded) && !bounded.mode.blocks()) {}

EarliestStartBound::EarliestStartBound(const PlanCost& costs, const BoundedPlan& bounded,
                                       bool counts_on_sharing)
    : micro_batches_(bounded.plan.num_micro_batches), gradient_here_(costs.stages.size()) {
  const std::vector<LastSending> last =
      counts_on_sharing ? last_sendings(costs, bounded.topology) : std::vector<LastSending>{};
  const Topology* shared = counts_on_sharing ? &bounded.topology : nullptr;
  for (std::size_t s = 0; s < costs.stages.size(); ++s) {
    const StageCost& cost = costs.stages[s];
    Stage& stage = stages_.emplace_back();
    stage.forward = cost.forward;
    stage.backward = cost.backward;
    stage.after_backward = time_after_last_backward(cost);
    gradient_here_[s].resize(static_cast<std::size_t>(micro_batches_));
    if (s == 0) continue;
    stage.activations = way_of(costs.boundaries[s - 1].forward.front(), shared);
    stage.gradients = way_of(costs.boundaries[s - 1].backward.front(), shared);
    stage.last_gradient = stage.gradients.time;
    if (!counts_on_sharing) continue;
    stage.last_gradient = last[s].gradient;
    stage.after_backward = last[s].after_backward;
  }
}

std::int64_t EarliestStartBound::steps() const {
  return 2 * static_cast<std::int64_t>(stages_.size()) * micro_batches_;
}

/// Computes (T3).
Duration EarliestStartBound::Way::arrival(Duration ready, std::int64_t micro_batch) {
  Duration arrival = ready + time;
  for (Queue& queue : queues) {
    queue.anchor = std::max(queue.anchor, ready - micro_batch * queue.busy);
    arrival = std::max(arrival, queue.anchor + micro_batch * queue.busy + queue.time);
  }
  return arrival;
}

void EarliestStartBound::reset(const DepthBox& box) {
  for (std::size_t s = 0; s < stages_.size(); ++s) {
    Stage& stage = stages_[s];
    stage.least = box.least[s];
    stage.most = box.most[s];
    stage.from_forwards = kNever;
    stage.from_backwards = kNever;
    stage.from_old_backwards = kNever;
    stage.old_backwards = 0;
    stage.backwards = 0;
    stage.last_forward_end = Duration{};
    stage.backward_end.clear();
    for (Queue& queue : stage.activations.queues) queue.anchor = kNever;
    for (Queue& queue : stage.gradients.queues) queue.anchor = kNever;
  }
}

/// Returns the earliest end of a forward (T1). Requires: all earlier forwards, and the backwards
/// that precede this one at every depth of the box, have been visited.
Duration EarliestStartBound::forward(Stage& stage, std::int64_t micro_batch, Duration earliest) {
  const std::int64_t before = std::max<std::int64_t>(0, micro_batch - stage.most + 1);
  Duration start = std::max(earliest, stage.last_forward_end);
  if (before > 0) {
    start = std::max(start, stage.backward_end[static_cast<std::size_t>(before - 1)]);
    for (; stage.old_backwards < before; ++stage.old_backwards) {
      const std::int64_t h = stage.old_backwards;
      const Duration began = stage.backward_end[static_cast<std::size_t>(h)] - stage.backward;
      const std::int64_t forwards = std::min(micro_batches_, h + stage.most);
      stage.from_old_backwards =
          std::max(stage.from_old_backwards, began - forwards * stage.forward - h * stage.backward);
    }
    const Duration work = micro_batch * stage.forward + before * stage.backward;
    start = std::max(start, work + std::max(stage.from_forwards, stage.from_old_backwards));
  }
  const std::int64_t backwards = std::max<std::int64_t>(0, micro_batch - stage.least + 1);
  stage.from_forwards = std::max(stage.from_forwards,
                                 start - micro_batch * stage.forward - backwards * stage.backward);
  stage.last_forward_end = start + stage.forward;
  return stage.last_forward_end;
}

/// Returns the earliest end of a backward (T2). Requires: exactly the forwards that precede it at
/// every depth of the box have been visited.
Duration EarliestStartBound::backward(Stage& stage, std::int64_t micro_batch, Duration earliest) {
  const std::int64_t forwards = std::min(micro_batches_, micro_batch + stage.least);
  Duration start = std::max(earliest, stage.last_forward_end);
  if (micro_batch > 0) start = std::max(start, stage.backward_end.back());
  const Duration work = forwards * stage.forward + micro_batch * stage.backward;
  start = std::max(start, work + std::max(stage.from_forwards, stage.from_backwards));
  const std::int64_t at_most = std::min(micro_batches_, micro_batch + stage.most);
  stage.from_backwards = std::max(stage.from_backwards,
                                  start - at_most * stage.forward - micro_batch * stage.backward);
  stage.backward_end.push_back(start + stage.backward);
  return start + stage.backward;
}

/// Visits all backwards that precede the next forward of their stage at the least depths. It begins
/// with the last stage: a stage is no deeper than the one in front of it, so the gradients that a
/// backward needs have been visited.
void EarliestStartBound::run_backwards(std::int64_t forwards) {
  const bool is_end = forwards == micro_batches_;
  for (std::size_t s = stages_.size(); s-- > 0;) {
    Stage& stage = stages_[s];
    const std::int64_t until = is_end ? micro_batches_ : forwards - stage.least + 1;
    for (; stage.backwards < until; ++stage.backwards) {
      const std::int64_t m = stage.backwards;
      const auto position = static_cast<std::size_t>(m);
      Duration earliest = gradient_here_[s][position];
      if (known_ != nullptr) earliest = std::max(earliest, known_->backwards[s][position]);
      const Duration end = backward(stage, m, earliest);
      if (s == 0) continue;
      Duration& arrival = gradient_here_[s - 1][position];
      arrival = stage.gradients.arrival(end, m);
      if (m + 1 == micro_batches_) arrival = std::max(arrival, end + stage.last_gradient);
    }
  }
}

void EarliestStartBound::run_forwards(std::int64_t micro_batch) {
  const auto position = static_cast<std::size_t>(micro_batch);
  Duration end;
  for (std::size_t s = 0; s < stages_.size(); ++s) {
    Stage& stage = stages_[s];
    Duration earliest = s == 0 ? Duration{} : stage.activations.arrival(end, micro_batch);
    if (known_ != nullptr) earliest = std::max(earliest, known_->forwards[s][position]);
    end = forward(stage, micro_batch, earliest);
  }
}

/// Computes (T4) after all computations have been visited.
Duration EarliestStartBound::bound(const DepthBox& box, const EarliestStarts* known) {
  reset(box);
  known_ = known;
  for (std::int64_t m = 0; m < micro_batches_; ++m) {
    run_forwards(m);
    run_backwards(m + 1);
  }
  Duration end;
  for (const Stage& stage : stages_) {
    end = std::max(end, stage.backward_end.back() + stage.after_backward);
  }
  return end;
}

}  // namespace dapple::search
