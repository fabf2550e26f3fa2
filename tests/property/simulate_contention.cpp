// Shared ports: what they carry, and what sharing and faster links do to the whole.

#include <catch2/catch.hpp>

#include <map>

#include "../support/random_pipeline.h"
#include "dapple/simulate/max_min.h"

namespace dapple {
namespace {

using namespace small;

/// Bytes that passed a port between two moments, no earlier and no later.
struct Passage {
  std::int64_t start = 0;
  std::int64_t end = 0;
  std::int64_t bytes = 0;
};
using Passages = std::map<PortIndex, std::vector<Passage>>;

void add_transfer(Passages& passages, const TransferCost& cost, const TimedAction& timed,
                  const Topology& topology) {
  std::map<PortIndex, std::int64_t> latency;
  std::map<PortIndex, std::int64_t> bytes;
  for (const PairFlow& flow : cost.flows) {
    const Route route = topology.route(flow.from, flow.to);
    for (const PortIndex port : route.ports) {
      latency[port] = std::max(latency[port], route.latency.ns);
      bytes[port] += flow.size.count;
    }
  }
  for (const auto& [port, count] : bytes) {
    passages[port].push_back({timed.start.ns, timed.end.ns - latency[port], count});
  }
}

/// Phases follow each other, each no quicker than on idle links; so what passes in one does so
/// after the least time of those before it, and before the least time of those behind it.
void add_reduction(Passages& passages, const AllReduceCost& bucket, const TimedAction& timed) {
  const auto least = [](const AllReducePhase& phase) {
    return phase.busy.count / kTicksPerNanosecond + phase.rounds * phase.latency.ns;
  };
  std::int64_t behind = 0;
  for (const AllReducePhase& phase : bucket.phases) behind += least(phase);
  std::int64_t before = 0;
  for (const AllReducePhase& phase : bucket.phases) {
    behind -= least(phase);
    for (const auto& [port, size] : phase.ports) {
      passages[port].push_back({timed.start.ns + before, timed.end.ns - behind - phase.latency.ns,
                                round_down(size).count});
    }
    before += least(phase);
  }
}

/// All passages of a timeline; of the stage's lanes only the first, as they reduce together.
Passages passages_of(const Pipeline& pipeline, const Timeline& timeline) {
  Passages passages;
  std::vector<std::size_t> first_lane(pipeline.plan.stages.size(), timeline.lanes.size());
  for (std::size_t lane = timeline.lanes.size(); lane-- > 0;) {
    first_lane[timeline.lanes[lane].stages.front().position()] = lane;
  }
  for (const TimedAction& timed : timeline.actions) {
    const std::size_t stage = timed.action.stage.position();
    const auto index = static_cast<std::size_t>(timed.action.index);
    if (timed.action.kind == ActionKind::SendActivation) {
      const auto& patterns = pipeline.costs.boundaries[stage].forward;
      add_transfer(passages, patterns[index % patterns.size()], timed, pipeline.topology);
    } else if (timed.action.kind == ActionKind::SendGradient) {
      const auto& patterns = pipeline.costs.boundaries[stage - 1].backward;
      add_transfer(passages, patterns[index % patterns.size()], timed, pipeline.topology);
    } else if (timed.action.kind == ActionKind::AllReduce &&
               timed.lane.position() == first_lane[stage]) {
      const AllReduceCost& bucket = pipeline.costs.stages[stage].buckets[index];
      add_reduction(passages, bucket, timed);
    } else if (timed.action.kind == ActionKind::ReduceTied) {
      const TiedCost& tie = pipeline.costs.ties[index];
      if (timed.lane.position() != first_lane[tie.stages.front().position()]) continue;
      add_reduction(passages, tie.reduction, timed);
    }
  }
  return passages;
}

/// The bytes that must have passed within each window from a start to an end fit into it. A start
/// was rounded up, so a window is a nanosecond longer than it looks.
void check_capacity(const std::vector<Passage>& passages, Bandwidth bandwidth) {
  for (const Passage& first : passages) {
    std::map<std::int64_t, std::int64_t> bytes_by_end;
    for (const Passage& passage : passages) {
      if (passage.start >= first.start) bytes_by_end[passage.end] += passage.bytes;
    }
    std::int64_t bytes = 0;
    for (const auto& [end, count] : bytes_by_end) {
      bytes += count;
      const std::int64_t window = end - first.start + 1;
      REQUIRE((Wide{bytes} * kNanosecondsPerSecond <= Wide{bandwidth.bytes_per_second} * window));
    }
  }
}

TEST_CASE("no port carries more than its bandwidth in any window of a timeline") {
  Dice dice(11);
  for (int i = 0; i < scaled(500); ++i) {
    const Pipeline pipeline =
        random_pipeline(dice, {.slowdown = true, .deal = dice.chance(30), .crowded = i % 2 == 1});
    INFO("instance " << i << ": " << text_of(pipeline));
    const Timeline timeline = pipeline.run(Contention::Shared).timeline;
    for (const auto& [port, passages] : passages_of(pipeline, timeline)) {
      INFO(pipeline.topology.ports()[port.position()].name);
      check_capacity(passages, pipeline.topology.ports()[port.position()].bandwidth);
    }
  }
}

TEST_CASE("contention never makes a plan faster") {
  Dice dice(12);
  for (int i = 0; i < scaled(2000); ++i) {
    const Pipeline pipeline = random_pipeline(dice);
    INFO("instance " << i << ": " << text_of(pipeline));
    const Duration shared =
        pipeline.run({.contention = Contention::Shared, .record = false}).iteration;
    const Duration off = pipeline.run({.contention = Contention::Off, .record = false}).iteration;
    REQUIRE(off <= shared);
  }
}

/// Stages of `replicas` devices each, every ordered pair of devices with a link of its own: a
/// replica sends to one other, and reduces over links that no transfer takes.
Pipeline apart(Dice& dice) {
  const Ranges ranges = random_ranges(dice);
  const ModelProfile model = random_model(dice, ranges);
  const std::int64_t replicas = dice.roll(1, 3);
  PlanShape shape{.micro_batch_size = replicas * dice.roll(1, 3),
                  .num_micro_batches = dice.roll(1, 7),
                  .gpipe = dice.chance(15),
                  .bucket_size = {dice.roll(1, 2 * ranges.bytes)}};
  std::int32_t device = 0;
  for (std::size_t s = 0; s < model.layers.size(); ++s) {
    StageShape stage;
    for (std::int64_t r = 0; r < replicas; ++r) stage.devices.push_back(device++);
    shape.stages.push_back(std::move(stage));
  }
  shape.depths = random_depths(dice, shape.stages.size(), shape.num_micro_batches);
  TopologyDescription description =
      full_mesh(static_cast<std::size_t>(device), random_link(dice, ranges));
  description.overlap_slowdown = Factor{dice.roll(1'000'000'000, 2'000'000'000)};
  return {model, description, shape};
}

TEST_CASE("where no port is shared, contention changes nothing") {
  Dice dice(13);
  for (int i = 0; i < scaled(400); ++i) {
    const Pipeline pipeline = apart(dice);
    INFO("instance " << i << ": " << text_of(pipeline));
    const simulate::SimulationResult shared = pipeline.run(Contention::Shared);
    const simulate::SimulationResult off = pipeline.run(Contention::Off);
    REQUIRE(shared.iteration == off.iteration);
    REQUIRE(shared.timeline.actions.size() == off.timeline.actions.size());
    for (std::size_t a = 0; a < shared.timeline.actions.size(); ++a) {
      const TimedAction& one = shared.timeline.actions[a];
      const TimedAction& other = off.timeline.actions[a];
      REQUIRE(one.lane == other.lane);
      REQUIRE(one.action == other.action);
      REQUIRE(one.start == other.start);
      REQUIRE(one.end == other.end);
    }
  }
}

void widen(Dice& dice, Link& link) {
  link.bandwidth.bytes_per_second += dice.roll(0, 2 * link.bandwidth.bytes_per_second);
  link.latency.ns = dice.roll(0, link.latency.ns);
}

/// Every link at least as wide and as quick. Direct links of a matrix all grow by one factor, as a
/// wider one among them may draw a ring over a slower one.
TopologyDescription improved(Dice& dice, TopologyDescription description) {
  for (ServerGroup& group : description.servers) {
    widen(dice, group.links.port);
    if (group.links.host_path) widen(dice, *group.links.host_path);
    const std::int64_t factor = dice.roll(1, 3);
    for (LinkKind& kind : group.links.kinds) {
      kind.link.bandwidth.bytes_per_second *= factor;
      kind.link.latency.ns = dice.roll(0, kind.link.latency.ns);
    }
    for (Nic& nic : group.nics) widen(dice, nic.link);
  }
  widen(dice, *description.network);
  return description;
}

TEST_CASE("without contention and slowdown, better links never make a plan slower") {
  Dice dice(14);
  for (int i = 0; i < scaled(1500); ++i) {
    const Pipeline before = random_pipeline(dice);
    TopologyDescription description = before.topology.description();
    if (description.network->bandwidth.bytes_per_second > kMaxCount / 4) {
      description.network->bandwidth.bytes_per_second /= 4;
    }
    const Pipeline narrow(before.profile, description, before.plan);
    const Pipeline wide(before.profile, improved(dice, description), before.plan);
    INFO("instance " << i << ": " << text_of(narrow));
    INFO("improved: " << text_of(wide));
    const simulate::SimulationOptions options{.contention = Contention::Off, .record = false};
    REQUIRE(wide.run(options).iteration <= narrow.run(options).iteration);
  }
}

std::vector<simulate::FlowDemand> random_flows(Dice& dice, std::int64_t ports) {
  std::vector<simulate::FlowDemand> flows;
  const std::int64_t count = dice.roll(1, 12);
  for (std::int64_t f = 0; f < count; ++f) {
    simulate::FlowDemand flow{dice.roll(1, dice.chance(30) ? 20 : 1'000'000), {}};
    for (std::int64_t p = 0; p < ports; ++p) {
      if (!dice.chance(35)) continue;
      const std::int64_t weight =
          dice.chance(50) ? simulate::kFullWeight : dice.roll(1, simulate::kFullWeight);
      flow.ports.emplace_back(PortIndex{static_cast<std::int32_t>(p)}, weight);
    }
    flows.push_back(std::move(flow));
  }
  return flows;
}

/// Rates are max-min fair just if no port is over its capacity and each flow below its cap has a
/// bottleneck: a full port on which nobody has more. Full: not a unit more for each flow on it.
TEST_CASE("each flow has its cap or a full port on which no flow has more") {
  Dice dice(15);
  for (int i = 0; i < scaled(4000); ++i) {
    const std::int64_t ports = dice.roll(1, 6);
    std::vector<simulate::Rate> capacities;
    for (std::int64_t p = 0; p < ports; ++p) {
      capacities.push_back(dice.roll(1, dice.chance(30) ? 50 : 2'000'000));
    }
    const std::vector<simulate::FlowDemand> flows = random_flows(dice, ports);
    std::vector<const simulate::FlowDemand*> pointers;
    for (const simulate::FlowDemand& flow : flows) pointers.push_back(&flow);
    const std::vector<simulate::Rate> rates = simulate::max_min_rates(pointers, capacities);
    REQUIRE(rates.size() == flows.size());
    std::vector<Wide> carried(capacities.size(), 0);
    std::vector<Wide> weights(capacities.size(), 0);
    std::vector<simulate::Rate> most(capacities.size(), 0);
    for (std::size_t f = 0; f < flows.size(); ++f) {
      for (const auto& [port, weight] : flows[f].ports) {
        carried[port.position()] += Wide{rates[f]} * weight;
        weights[port.position()] += weight;
        most[port.position()] = std::max(most[port.position()], rates[f]);
      }
    }
    for (std::size_t p = 0; p < capacities.size(); ++p) {
      REQUIRE((carried[p] <= Wide{capacities[p]} * simulate::kFullWeight));
    }
    for (std::size_t f = 0; f < flows.size(); ++f) {
      REQUIRE(rates[f] >= 0);
      REQUIRE(rates[f] <= flows[f].cap);
      if (rates[f] == flows[f].cap) continue;
      const bool has_bottleneck =
          std::any_of(flows[f].ports.begin(), flows[f].ports.end(), [&](const auto& use) {
            const std::size_t p = use.first.position();
            return Wide{capacities[p]} * simulate::kFullWeight - carried[p] < weights[p] &&
                   most[p] == rates[f];
          });
      REQUIRE(has_bottleneck);
    }
  }
}

}  // namespace
}  // namespace dapple
