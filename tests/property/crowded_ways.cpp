// PCIe roots, racks and pods: simulations, bounds and plans of random clusters that have them.

#include <catch2/catch.hpp>

#include <map>
#include <numeric>
#include <tuple>

#include "../oracle/simulation_reference.h"
#include "../support/random_pipeline.h"
#include "dapple/search/bounds/bound.h"
#include "dapple/search/bounds/earliest_start_bound.h"
#include "exact_planner_checks.h"

namespace dapple {
namespace {

using namespace small;

TEST_CASE("with crowded ways and measured reductions a timeline is what its equations say") {
  Dice dice(71);
  int several_hops = 0;
  int measured = 0;
  for (int i = 0; i < scaled(400); ++i) {
    const Pipeline pipeline =
        random_pipeline(dice, {.slowdown = true, .crowded = true, .measured = i % 2 == 1});
    INFO("instance " << i << ": " << text_of(pipeline));
    for (const BoundaryCost& boundary : pipeline.costs.boundaries) {
      for (const PairFlow& flow : boundary.forward.front().flows) {
        several_hops += flow.route.ports.size() > 2 ? 1 : 0;
      }
    }
    for (const StageCost& stage : pipeline.costs.stages) {
      for (const AllReduceCost& bucket : stage.buckets) measured += is_measured(bucket) ? 1 : 0;
    }
    for (const Contention contention : {Contention::Shared, Contention::Off}) {
      const ReferenceTimes expected = Reference(pipeline, contention).run();
      REQUIRE(times_of(pipeline, pipeline.run(contention)) == expected);
    }
  }
  CHECK(several_hops > scaled(60));
  CHECK(measured > scaled(20));
}

TEST_CASE("with crowded ways and measured reductions no simulation ends before the plan's bounds") {
  Dice dice(72);
  int tight = 0;
  for (int i = 0; i < scaled(4000); ++i) {
    const Pipeline pipeline = random_pipeline(
        dice, {.slowdown = dice.chance(30), .crowded = true, .measured = i % 2 == 1});
    INFO("instance " << i << ": " << text_of(pipeline));
    const auto run = [&](Contention contention) {
      return pipeline.run({.contention = contention, .record = false}).iteration;
    };
    const Duration off = run(Contention::Off);
    const Duration shared = run(Contention::Shared);
    REQUIRE(off <= shared);
    REQUIRE(search::lower_bound(pipeline.plan, pipeline.costs, pipeline.topology) <= off);
    const Duration bound =
        search::lower_bound_with_contention(pipeline.plan, pipeline.costs, pipeline.topology);
    REQUIRE(bound <= shared);
    REQUIRE(search::lower_bound_of_order(pipeline.plan, pipeline.costs) <= off);
    const std::vector<std::int64_t>& depths = pipeline.plan.warmup_depths;
    for (const Contention contention : {Contention::Shared, Contention::Off}) {
      search::EarliestStartBound earliest_start_bound(
          {pipeline.plan, pipeline.costs, pipeline.topology, {contention}});
      REQUIRE(earliest_start_bound.bound({.least = depths, .most = depths}) <=
              (contention == Contention::Shared ? shared : off));
    }
    tight += bound == shared ? 1 : 0;
  }
  CHECK(tight > scaled(400));
}

// Several devices send through a port that takes less than whole nanoseconds for a micro-batch, by
// less than a tick. What one device sends is rounded up to the tick each time, and what several
// send together is not.
TEST_CASE(
    "over thousands of micro-batches through a shared port no simulation ends before a bound") {
  Dice dice(75);
  int tight = 0;
  for (int i = 0; i < scaled(60); ++i) {
    const std::int64_t samples = dice.roll(3, 5);
    const std::int64_t bytes = dice.roll(100, 2000);
    // 1 + e bytes of each sample in a nanosecond, where e nanoseconds for each byte are less than
    // 1/1024 together.
    const Bandwidth bandwidth{samples *
                              (kNanosecondsPerSecond + dice.roll(500'000, 976'000) / bytes)};
    std::vector<std::int32_t> senders(static_cast<std::size_t>(dice.roll(2, samples)));
    std::iota(senders.begin(), senders.end(), 0);
    const std::int64_t micro_batches = dice.roll(4000, 6000);
    const Pipeline pipeline(
        model_of({{.forward = 1, .backward = 1, .output = bytes}, {.forward = 1, .backward = 1}}),
        cluster({.servers = 2,
                 .devices = 5,
                 .inside = {bytes_per_ns(1'000'000), {}},
                 .nics = {{bandwidth, {dice.roll(0, 10)}}}}),
        {.micro_batch_size = samples,
         .num_micro_batches = micro_batches,
         .depths = {micro_batches, micro_batches},
         .stages = {{.devices = senders}, {.devices = {5}}}});
    CAPTURE(i, samples, bytes, bandwidth.bytes_per_second, senders, micro_batches);
    const Duration shared =
        pipeline.run({.contention = Contention::Shared, .record = false}).iteration;
    const std::vector<std::int64_t>& depths = pipeline.plan.warmup_depths;
    search::EarliestStartBound earliest_start_bound(
        {pipeline.plan, pipeline.costs, pipeline.topology, {}});
    const Duration bound = earliest_start_bound.bound({.least = depths, .most = depths});
    CHECK(bound <= shared);
    CHECK(search::lower_bound_with_contention(pipeline.plan, pipeline.costs, pipeline.topology) <=
          shared);
    // Either way loses less than a nanosecond for each micro-batch.
    tight += shared - bound < Duration{2 * micro_batches + 20} ? 1 : 0;
  }
  CHECK(tight >= scaled(20));
}

TEST_CASE("with crowded ways and measured reductions the exact planner's plan is the fastest") {
  ProblemMaker maker(73, {.crowded = true});
  ProblemMaker measured(79, {.crowded = true, .measured = true});
  ProblemMaker wide(
      78, {.layers = 3, .devices = 6, .global_batch = 4, .crowded = true, .measured = true});
  std::map<std::string, int> seen;
  int with_racks = 0;
  for (int round = 0; round < scaled(1200); ++round) {
    CAPTURE(round);
    const Question question(round % 10 == 9  ? wide.next()
                            : round % 3 == 0 ? measured.next()
                                             : maker.next());
    const TopologyDescription& cluster = question.made.problem.topology;
    const Made answer = question.answer();
    require_fastest(question, answer);
    if (!cluster.racks.empty() && question.topology.server_count() > 1) ++with_racks;
    const PlanDocument* document = document_of(answer);
    if (document == nullptr || document->plan.stages.size() < 2) continue;
    if (!cluster.racks.empty()) ++seen["racks"];
    if (!cluster.pods.empty()) ++seen["pods"];
    if (std::any_of(cluster.servers.begin(), cluster.servers.end(),
                    [](const ServerGroup& group) { return group.pcie_roots.size() > 1; })) {
      ++seen["roots"];
    }
  }
  CHECK(with_racks >= scaled(400));
  for (const char* what : {"racks", "pods", "roots"}) {
    CAPTURE(what);
    CHECK(seen[what] >= scaled(60));
  }
}

/// Bytes through the outgoing and through the incoming ports of hops.
struct Balance {
  Wide sent = 0;
  Wide received = 0;
};

TEST_CASE("in every phase of an all-reduce as many bytes are sent as received") {
  Dice dice(74);
  int phases = 0;
  for (int i = 0; i < scaled(2000); ++i) {
    const Ranges ranges = random_ranges(dice);
    TopologyDescription description = random_cluster(dice, ranges);
    crowd_ways(
        dice, [&] { return random_link(dice, ranges); }, description);
    const Topology topology(description);
    std::vector<DeviceIndex> members;
    for (std::int32_t d = 0; d < topology.device_count(); ++d) {
      if (dice.chance(60)) members.push_back({d});
    }
    const AllReduceModel model(members, topology);
    const AllReduceCost cost = model.cost({dice.roll(0, ranges.bytes)});
    REQUIRE(cost.time == model.time(cost.size));
    Ticks busy;
    Duration latency;
    std::map<PortIndex, ByteParts> together;
    for (const AllReducePhase& phase : cost.phases) {
      ++phases;
      busy = busy + phase.busy;
      latency += phase.rounds * phase.latency;
      Balance balance;
      std::int64_t ports = 0;
      for (const auto& [port, size] : phase.ports) {
        together[port].count += size.count;
        const std::string& name = topology.ports()[port.position()].name;
        const Bandwidth bandwidth = topology.ports()[port.position()].bandwidth;
        // All of it passes while the phase is busy; half of a phase may be half a tick short, and
        // carry half a part of a byte more, which takes several ticks on a slow link.
        const Wide needed = Wide{2 * size.count - 1} * kNanosecondsPerSecond * kTicksPerNanosecond;
        const Wide available =
            Wide{2 * phase.busy.count + 1} * bandwidth.bytes_per_second * kPartsPerByte;
        REQUIRE(needed <= available);
        if (name.find('>') != std::string::npos) continue;  // both ends in one
        ++ports;
        (name.ends_with(" out") ? balance.sent : balance.received) += size.count;
      }
      // Each port's part is rounded down on its own.
      const Wide difference = balance.sent - balance.received;
      REQUIRE((-ports <= difference && difference <= ports));
    }
    REQUIRE(busy == cost.busy);
    REQUIRE(latency == cost.latency);
    std::vector<std::pair<PortIndex, Bytes>> whole;
    for (const auto& [port, size] : together) whole.emplace_back(port, round_down(size));
    REQUIRE(whole == cost.ports());
  }
  CHECK(phases > scaled(1000));
}

TEST_CASE("in every transfer as many bytes are sent as received, and each way carries its own") {
  Dice dice(76);
  for (int i = 0; i < scaled(500); ++i) {
    const Pipeline pipeline = random_pipeline(dice, {.deal = dice.chance(30), .crowded = true});
    INFO("instance " << i << ": " << text_of(pipeline));
    for (const BoundaryCost& boundary : pipeline.costs.boundaries) {
      for (const TransferCost& cost : boundary.forward) {
        std::map<PortIndex, std::int64_t> carried;
        std::map<DeviceIndex, std::int64_t> sent;
        std::map<DeviceIndex, std::int64_t> received;
        for (const PairFlow& flow : cost.flows) {
          sent[flow.from] += flow.size.count;
          received[flow.to] += flow.size.count;
          for (const PortIndex port : pipeline.topology.route(flow.from, flow.to).ports) {
            carried[port] += flow.size.count;
          }
        }
        std::int64_t out = 0;
        std::int64_t in = 0;
        for (const auto& [device, bytes] : sent) out += bytes;
        for (const auto& [device, bytes] : received) in += bytes;
        REQUIRE(out == cost.size.count);
        REQUIRE(in == cost.size.count);
        REQUIRE(cost.ports.size() == carried.size());
        for (const PortLoad& load : cost.ports) REQUIRE(load.size.count == carried[load.port]);
      }
    }
  }
}

bool is_transfer(const TimedAction& timed) {
  return timed.action.kind == ActionKind::SendActivation ||
         timed.action.kind == ActionKind::SendGradient;
}

/// By lane and what it does, not by when: starts of transfers may differ.
std::vector<TimedAction> in_order(const Timeline& timeline) {
  std::vector<TimedAction> actions = timeline.actions;
  const auto key = [](const TimedAction& timed) {
    return std::tuple(timed.lane, timed.action.kind, timed.action.stage, timed.action.index);
  };
  std::sort(actions.begin(), actions.end(),
            [&](const TimedAction& a, const TimedAction& b) { return key(a) < key(b); });
  return actions;
}

void require_same_times(const Pipeline& pipeline) {
  const std::vector<TimedAction> shared = in_order(pipeline.run(Contention::Shared).timeline);
  const std::vector<TimedAction> off = in_order(pipeline.run(Contention::Off).timeline);
  REQUIRE(shared.size() == off.size());
  for (std::size_t a = 0; a < shared.size(); ++a) {
    REQUIRE(shared[a].lane == off[a].lane);
    REQUIRE(shared[a].action == off[a].action);
    // Without contention a transfer begins on its widest port while another still holds up the
    // last.
    if (!is_transfer(shared[a])) REQUIRE(shared[a].start == off[a].start);
    REQUIRE(shared[a].end == off[a].end);
  }
}

TEST_CASE("where a way is used by one thing at a time, contention changes nothing") {
  Dice dice(77);
  for (int i = 0; i < scaled(800); ++i) {
    const Ranges ranges = random_ranges(dice);
    ModelProfile model = random_model(dice, ranges);
    const auto layers = static_cast<std::int32_t>(model.layers.size());
    TopologyDescription description = random_cluster(dice, ranges);
    crowd_ways(
        dice, [&] { return random_link(dice, ranges); }, description);
    const std::int32_t devices = Topology(description).device_count();
    PlanShape shape{.micro_batch_size = devices,
                    .num_micro_batches = dice.roll(1, 5),
                    .bucket_size = {dice.roll(1, 2 * ranges.bytes)}};
    if (layers > 1 && devices > 1 && dice.chance(50)) {
      // Two devices: activations go one way, gradients the other, and nothing is reduced.
      const auto first = static_cast<std::int32_t>(dice.roll(0, devices - 2));
      const auto cut = static_cast<std::int32_t>(dice.roll(1, layers - 1));
      shape.stages = {{.layers = cut, .devices = {first}},
                      {.layers = layers - cut, .devices = {first + 1}}};
    } else {
      // One stage: all-reduces, one after another.
      StageShape stage{.layers = layers, .devices = {}};
      for (std::int32_t d = 0; d < devices; ++d) {
        if (d == 0 || dice.chance(70)) stage.devices.push_back(d);
      }
      shape.stages = {stage};
    }
    shape.depths = random_depths(dice, shape.stages.size(), shape.num_micro_batches);
    const Pipeline pipeline(model, description, shape);
    INFO("instance " << i << ": " << text_of(pipeline));
    require_same_times(pipeline);
  }
}

TEST_CASE("roots, racks and pods never make an all-reduce or a transfer quicker") {
  Dice dice(75);
  for (int i = 0; i < scaled(1500); ++i) {
    const Pipeline crowded = random_pipeline(dice, {.crowded = true});
    TopologyDescription description = crowded.topology.description();
    description.racks.clear();
    description.pods.clear();
    for (ServerGroup& group : description.servers) group.pcie_roots.clear();
    const Pipeline open(crowded.profile, description, crowded.plan);
    INFO("instance " << i << ": " << text_of(crowded));
    REQUIRE(open.run({.contention = Contention::Off, .record = false}).iteration <=
            crowded.run({.contention = Contention::Off, .record = false}).iteration);
    for (std::size_t s = 0; s < open.costs.stages.size(); ++s) {
      for (std::size_t k = 0; k < open.costs.stages[s].buckets.size(); ++k) {
        REQUIRE(open.costs.stages[s].buckets[k].time <= crowded.costs.stages[s].buckets[k].time);
      }
      if (s == 0) continue;
      REQUIRE(open.costs.boundaries[s - 1].forward.front().time <=
              crowded.costs.boundaries[s - 1].forward.front().time);
    }
  }
}

}  // namespace
}  // namespace dapple
