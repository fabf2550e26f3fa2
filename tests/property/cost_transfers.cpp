// Bytes of transfers, counted sample by sample.

#include <catch2/catch.hpp>

#include <map>
#include <utility>

#include "../support/random_pipeline.h"

namespace dapple {
namespace {

using namespace small;

using Traffic = std::map<std::pair<std::int32_t, std::int32_t>, std::int64_t>;  // from, to

/// Which device has each sample of a micro-batch: stages hand out samples one by one.
std::vector<std::int32_t> holders(const Pipeline& pipeline, std::size_t stage,
                                  std::int64_t micro_batch) {
  const StagePlan& plan = pipeline.plan.stages[stage];
  const std::int64_t samples = pipeline.plan.micro_batch_size;
  const auto replicas = static_cast<std::int64_t>(plan.devices.size());
  std::vector<std::int32_t> result;
  for (std::int64_t r = 0; r < replicas; ++r) {
    const bool is_dealt = plan.replication == Replication::Deal;
    std::int64_t share = 0;
    for (std::int64_t sample = r; sample < samples; sample += replicas) ++share;
    if (is_dealt) share = micro_batch % replicas == r ? samples : 0;
    if (!plan.samples.empty()) share = plan.samples[static_cast<std::size_t>(r)];
    result.insert(result.end(), static_cast<std::size_t>(share),
                  plan.devices[static_cast<std::size_t>(r)].value);
  }
  return result;
}

/// Bytes of so many samples of every tensor that is made before layer `cut` and used from it on.
std::int64_t crossing_bytes(const ModelProfile& profile, std::int32_t cut, std::int64_t samples) {
  std::int64_t bytes = 0;
  for (std::int32_t made = 0; made < cut; ++made) {
    bool is_used = false;
    for (auto user = static_cast<std::size_t>(cut); user < profile.layers.size(); ++user) {
      for (const LayerIndex input : profile.layers[user].inputs) {
        is_used = is_used || input.value == made;
      }
    }
    if (!is_used) continue;
    const Measurement& largest = profile.layers[static_cast<std::size_t>(made)].measurements.back();
    const std::int64_t product = largest.output.count * samples;
    bytes += (product + largest.batch_size - 1) / largest.batch_size;
  }
  return bytes;
}

Traffic expected_traffic(const Pipeline& pipeline, std::size_t boundary, std::int64_t micro_batch) {
  const std::vector<std::int32_t> from = holders(pipeline, boundary, micro_batch);
  const std::vector<std::int32_t> to = holders(pipeline, boundary + 1, micro_batch);
  Traffic samples;
  for (std::size_t i = 0; i < from.size(); ++i) ++samples[{from[i], to[i]}];
  Traffic bytes;
  for (const auto& [pair, count] : samples) {
    const std::int64_t size =
        crossing_bytes(pipeline.profile, pipeline.plan.stages[boundary].layers.end, count);
    if (size > 0) bytes[pair] = size;
  }
  return bytes;
}

Traffic traffic_of(const TransferCost& cost, bool reversed) {
  Traffic bytes;
  for (const PairFlow& flow : cost.flows) {
    const std::pair pair = reversed ? std::pair{flow.to.value, flow.from.value}
                                    : std::pair{flow.from.value, flow.to.value};
    bytes[pair] += flow.size.count;
  }
  return bytes;
}

TEST_CASE("each pair of devices sends the samples that it has in common, there and back") {
  Dice dice(31);
  for (int i = 0; i < scaled(1000); ++i) {
    const Pipeline pipeline = random_pipeline(dice, {.deal = dice.chance(50)});
    INFO("instance " << i << ": " << text_of(pipeline));
    for (std::size_t b = 0; b < pipeline.costs.boundaries.size(); ++b) {
      const BoundaryCost& boundary = pipeline.costs.boundaries[b];
      for (std::int64_t m = 0; m < pipeline.plan.num_micro_batches; ++m) {
        const auto index = static_cast<std::size_t>(m);
        const TransferCost& forward = boundary.forward[index % boundary.forward.size()];
        const TransferCost& backward = boundary.backward[index % boundary.backward.size()];
        const Traffic expected = expected_traffic(pipeline, b, m);
        REQUIRE((traffic_of(forward, false) == expected));
        REQUIRE((traffic_of(backward, true) == expected));
        std::int64_t total = 0;
        for (const auto& [pair, bytes] : expected) total += bytes;
        REQUIRE(forward.size.count == total);
        REQUIRE(backward.size.count == total);
      }
    }
  }
}

TEST_CASE("over an iteration a boundary carries each micro-batch once, and as much back") {
  Dice dice(32);
  for (int i = 0; i < scaled(300); ++i) {
    const Pipeline pipeline = random_pipeline(dice, {.slowdown = true});
    INFO("instance " << i << ": " << text_of(pipeline));
    for (const Contention contention : {Contention::Shared, Contention::Off}) {
      const std::size_t boundaries = pipeline.costs.boundaries.size();
      std::vector<std::int64_t> there(boundaries, 0);
      std::vector<std::int64_t> back(boundaries, 0);
      for (const TimedAction& timed : pipeline.run(contention).timeline.actions) {
        const std::size_t stage = timed.lane.position();
        if (timed.action.kind == ActionKind::SendActivation) there[stage] += timed.size.count;
        if (timed.action.kind == ActionKind::SendGradient) back[stage - 1] += timed.size.count;
      }
      for (std::size_t b = 0; b < boundaries; ++b) {
        std::int64_t transfer = 0;
        for (const auto& [pair, bytes] : expected_traffic(pipeline, b, 0)) transfer += bytes;
        REQUIRE(there[b] == pipeline.plan.num_micro_batches * transfer);
        REQUIRE(back[b] == there[b]);
      }
    }
  }
}

TEST_CASE("a port's load is what the flows through it carry") {
  Dice dice(33);
  for (int i = 0; i < scaled(500); ++i) {
    const Pipeline pipeline = random_pipeline(dice);
    INFO("instance " << i << ": " << text_of(pipeline));
    for (const BoundaryCost& boundary : pipeline.costs.boundaries) {
      const TransferCost& cost = boundary.forward.front();
      std::map<PortIndex, std::int64_t> bytes;
      for (const PairFlow& flow : cost.flows) {
        for (const PortIndex port : pipeline.topology.route(flow.from, flow.to).ports) {
          bytes[port] += flow.size.count;
        }
      }
      REQUIRE(cost.ports.size() == bytes.size());
      Duration longest;
      for (const PortLoad& load : cost.ports) {
        REQUIRE(load.size.count == bytes[load.port]);
        const Link link{pipeline.topology.ports()[load.port.position()].bandwidth, load.latency};
        longest = std::max(longest, transfer_time(load.size, link));
      }
      REQUIRE(cost.time == longest);
    }
  }
}

}  // namespace
}  // namespace dapple
