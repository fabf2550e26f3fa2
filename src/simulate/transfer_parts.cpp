#include "simulate/transfer_parts.h"

#include <algorithm>
#include <numeric>

#include "dapple/core/error.h"

namespace dapple::simulate {
namespace {

/// The two stages of a pair in one direction.
struct Sides {
  const StageLanes& from;
  const StageLanes& to;
};

class PartsMaker {
 public:
  PartsMaker(const Schedule& schedule, const Sides& sides) : schedule_(schedule), sides_(sides) {}

  DirectionParts make(const std::vector<TransferCost>& costs) const {
    const std::int64_t period = std::lcm(sides_.from.dealt_to, sides_.to.dealt_to);
    DirectionParts transfers;
    for (std::int64_t m = 0; m < std::min(period, schedule_.num_micro_batches); ++m) {
      const auto number = static_cast<std::size_t>(m);
      transfers.push_back(make_one(costs[number % costs.size()], m));
    }
    return transfers;
  }

 private:
  /// The lanes that process a micro-batch: all that share it, or the one to which it is dealt.
  struct Span {
    std::int32_t first = 0;
    std::int32_t count = 0;
  };
  static Span span_of(const StageLanes& stage, std::int64_t micro_batch) {
    if (stage.dealt_to == 1) return {stage.first, stage.count};
    return {stage.first + static_cast<std::int32_t>(micro_batch % stage.dealt_to), 1};
  }
  const Lane& lane(std::int32_t number) const {
    return schedule_.lanes[static_cast<std::size_t>(number)];
  }

  TransferParts make_one(const TransferCost& cost, std::int64_t micro_batch) const {
    const Span from = span_of(sides_.from, micro_batch);
    const Span to = span_of(sides_.to, micro_batch);
    TransferParts parts;
    parts.cost = &cost;
    parts.sizes.resize(static_cast<std::size_t>(from.count));
    for (std::int32_t j = 0; j < to.count; ++j) {
      parts.receivers.push_back(sides_.to.first_inbox + to.first - sides_.to.first + j);
    }
    if (parts.is_whole()) {
      parts.sizes.front() = cost.size;
      parts.flows.resize(cost.flows.size());
      if (cost.flows.empty()) parts.in_place.emplace_back();
    } else {
      match_flows(parts, from, to);
    }
    return parts;
  }

  /// Assigns flows to pairs of lanes with samples in common. The pairs come in the order of the
  /// flows, but not every pair has a flow.
  void match_flows(TransferParts& parts, const Span& from, const Span& to) const {
    const std::vector<PairFlow>& flows = parts.cost->flows;
    std::int32_t first = 0;  // first receiver whose samples end after the sender's begin
    for (std::int32_t i = 0; i < from.count; ++i) {
      const Lane& sender = lane(from.first + i);
      while (lane(to.first + first).samples.end <= sender.samples.begin) ++first;
      for (std::int32_t j = first; j < to.count; ++j) {
        const Lane& receiver = lane(to.first + j);
        if (receiver.samples.begin >= sender.samples.end) break;
        const std::size_t next = parts.flows.size();
        const bool has_flow = next < flows.size() && flows[next].from == sender.devices.front() &&
                              flows[next].to == receiver.devices.front();
        (has_flow ? parts.flows : parts.in_place).push_back({.part = i, .receiver = j});
        if (has_flow) parts.sizes[static_cast<std::size_t>(i)] += flows[next].size;
      }
    }
    check(parts.flows.size() == flows.size(), "a flow of a transfer belongs to no pair of lanes");
  }

  const Schedule& schedule_;
  Sides sides_;
};

}  // namespace

std::span<const TransferParts::Flow> TransferParts::in_place_of(std::int32_t part) const {
  const auto first =
      std::lower_bound(in_place.begin(), in_place.end(), part,
                       [](const Flow& flow, std::int32_t p) { return flow.part < p; });
  const auto last = std::upper_bound(
      first, in_place.end(), part, [](std::int32_t p, const Flow& flow) { return p < flow.part; });
  return {first, last};
}

std::vector<PairParts> transfer_parts(const Schedule& schedule,
                                      const std::vector<StageLanes>& stages,
                                      const PlanCost& costs) {
  std::vector<PairParts> pairs;
  const auto add = [&](StageIndex from, StageIndex to, const BoundaryCost& transfers) {
    const StageLanes& here = stages[from.position()];
    const StageLanes& there = stages[to.position()];
    pairs.push_back({.from = from,
                     .to = to,
                     .forward = PartsMaker(schedule, {here, there}).make(transfers.forward),
                     .backward = PartsMaker(schedule, {there, here}).make(transfers.backward)});
  };
  for (std::size_t b = 0; b < costs.boundaries.size(); ++b) {
    add(index_at<StageIndex>(b), index_at<StageIndex>(b + 1), costs.boundaries[b]);
  }
  for (const SkipCost& skip : costs.skips) add(skip.from, skip.to, skip.transfers);
  return pairs;
}

}  // namespace dapple::simulate
