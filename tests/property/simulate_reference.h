// A second simulator, for runs without contention and stages that split: no events, only the
// equations that start and end times must meet, iterated from zero until nothing changes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "../support/random_pipeline.h"

namespace dapple::small {

struct Interval {
  std::int64_t start = 0;
  std::int64_t end = 0;

  friend bool operator==(const Interval&, const Interval&) = default;
};

/// Times in ns, by stage (or boundary) and micro-batch (or bucket).
struct ReferenceTimes {
  std::vector<std::vector<Interval>> forward;
  std::vector<std::vector<Interval>> backward;
  std::vector<std::vector<Interval>> activation;  // by boundary
  std::vector<std::vector<Interval>> gradient;
  std::vector<std::vector<Interval>> reduction;
  std::vector<Interval> step;

  friend bool operator==(const ReferenceTimes&, const ReferenceTimes&) = default;
};

class Reference {
 public:
  explicit Reference(const Pipeline& pipeline) : pipeline_(pipeline) {
    const auto count = static_cast<std::size_t>(pipeline.plan.num_micro_batches);
    const std::size_t stages = pipeline.plan.stages.size();
    const std::vector<Interval> none(count);
    times_ = {.forward = {stages, none},
              .backward = {stages, none},
              .activation = {stages - 1, none},
              .gradient = {stages - 1, none},
              .reduction = std::vector<std::vector<Interval>>(stages),
              .step = std::vector<Interval>(stages)};
  }

  ReferenceTimes run() && {
    ReferenceTimes before;
    do {
      before = times_;
      for (std::size_t s = 0; s < times_.forward.size(); ++s) compute(s);
      for (std::size_t b = 0; b < times_.activation.size(); ++b) {
        const BoundaryCost& cost = pipeline_.costs.boundaries[b];
        transfer(cost.forward.front(), times_.forward[b], times_.activation[b]);
        transfer(cost.backward.front(), times_.backward[b + 1], times_.gradient[b]);
      }
    } while (times_ != before);
    return std::move(times_);
  }

 private:
  /// Forwards as long as the depth allows, else backwards.
  void compute(std::size_t s) {
    const std::size_t count = times_.forward[s].size();
    const auto depth = static_cast<std::size_t>(pipeline_.plan.warmup_depths[s]);
    const bool is_last = s + 1 == times_.forward.size();
    const StageCost& cost = pipeline_.costs.stages[s];
    std::size_t forwards = 0;
    std::size_t backwards = 0;
    std::int64_t now = 0;
    while (backwards < count) {
      if (forwards < count && forwards - backwards < depth) {
        const std::int64_t input = s == 0 ? 0 : times_.activation[s - 1][forwards].end;
        const std::int64_t start = std::max(now, input);
        now = start + cost.forward.ns;
        times_.forward[s][forwards++] = {start, now};
        continue;
      }
      const std::int64_t input = is_last ? 0 : times_.gradient[s][backwards].end;
      const std::int64_t start = std::max(now, input);
      now = backwards + 1 < count ? start + cost.backward.ns : last_backward(s, start);
      times_.backward[s][backwards++] = {start, now};
    }
    if (!times_.reduction[s].empty()) now = std::max(now, times_.reduction[s].back().end);
    times_.step[s] = {now, now + cost.optimizer_step.ns};
  }

  /// From bucket to bucket: slowed down until the reductions of what is ready are over.
  std::int64_t last_backward(std::size_t s, std::int64_t start) {
    const StageCost& cost = pipeline_.costs.stages[s];
    const std::int64_t fast = pipeline_.costs.overlap_slowdown.billionths;
    const std::int64_t slow = 1'000'000'000;
    times_.reduction[s].clear();
    std::int64_t now = start;
    std::int64_t done = 0;
    std::int64_t reducing_until = 0;
    for (std::size_t k = 0; k <= cost.buckets.size(); ++k) {
      const bool is_end = k == cost.buckets.size();
      const std::int64_t moment = is_end ? cost.backward.ns : cost.bucket_ready[k].ns;
      std::int64_t work = (moment - done) * fast;
      done = moment;
      const std::int64_t slowed = std::max<std::int64_t>(0, reducing_until - now);
      if (work > slowed * slow) {
        work -= slowed * slow;
        now += slowed + (work + fast - 1) / fast;
      } else {
        now += (work + slow - 1) / slow;
      }
      if (is_end) break;
      const std::int64_t begin = std::max(now, reducing_until);
      reducing_until = begin + cost.buckets[k].time.ns;
      times_.reduction[s].push_back({begin, reducing_until});
    }
    return now;
  }

  /// What a port is busy for one transfer, in ticks, and the longest latency through it.
  std::map<PortIndex, std::pair<std::int64_t, std::int64_t>> loads_of(
      const TransferCost& cost) const {
    std::map<PortIndex, std::int64_t> bytes;
    std::map<PortIndex, std::pair<std::int64_t, std::int64_t>> loads;
    for (const PairFlow& flow : cost.flows) {
      const Route route = pipeline_.topology.route(flow.from, flow.to);
      for (const PortIndex port : route.ports) {
        bytes[port] += flow.size.count;
        loads[port].second = std::max(loads[port].second, route.latency.ns);
      }
    }
    for (const auto& [port, size] : bytes) {
      const std::int64_t bandwidth =
          pipeline_.topology.ports()[port.position()].bandwidth.bytes_per_second;
      loads[port].first = (size * 1'024'000'000'000 + bandwidth - 1) / bandwidth;
    }
    return loads;
  }

  void transfer(const TransferCost& cost, const std::vector<Interval>& made,
                std::vector<Interval>& sent) const {
    const auto loads = loads_of(cost);
    std::map<PortIndex, std::int64_t> free_from;
    for (std::size_t m = 0; m < made.size(); ++m) {
      const std::int64_t ready = made[m].end;
      std::int64_t first = ready * 1024;
      std::int64_t arrival = ready;
      for (const auto& [port, load] : loads) {
        const std::int64_t start = std::max(ready * 1024, free_from[port]);
        first = port == loads.begin()->first ? start : std::min(first, start);
        free_from[port] = start + load.first;
        arrival = std::max(arrival, (free_from[port] + 1023) / 1024 + load.second);
      }
      sent[m] = {(first + 1023) / 1024, arrival};
    }
  }

  const Pipeline& pipeline_;
  ReferenceTimes times_;
};

/// A simulated timeline in the same form. Requires: no stage deals.
inline ReferenceTimes times_of(const Pipeline& pipeline, const SimulationResult& result) {
  const auto count = static_cast<std::size_t>(pipeline.plan.num_micro_batches);
  const std::size_t stages = pipeline.plan.stages.size();
  const std::vector<Interval> none(count, {-1, -1});
  ReferenceTimes times{.forward = {stages, none},
                       .backward = {stages, none},
                       .activation = {stages - 1, none},
                       .gradient = {stages - 1, none},
                       .reduction = {},
                       .step = std::vector<Interval>(stages, {-1, -1})};
  for (const StageCost& stage : pipeline.costs.stages) {
    times.reduction.emplace_back(stage.buckets.size(), Interval{-1, -1});
  }
  for (const TimedAction& timed : result.timeline.actions) {
    const auto stage = timed.lane.position();
    const auto index = static_cast<std::size_t>(timed.action.index);
    const Interval interval{timed.start.ns, timed.end.ns};
    switch (timed.action.kind) {
      case ActionKind::Forward: times.forward[stage][index] = interval; break;
      case ActionKind::Backward: times.backward[stage][index] = interval; break;
      case ActionKind::SendActivation: times.activation[stage][index] = interval; break;
      case ActionKind::SendGradient: times.gradient[stage - 1][index] = interval; break;
      case ActionKind::AllReduce: times.reduction[stage][index] = interval; break;
      default: times.step[stage] = interval; break;
    }
  }
  return times;
}

}  // namespace dapple::small
