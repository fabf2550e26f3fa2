// What stages send each other where tensors skip stages directly, and what memory that takes,
// added up layer by layer and pair by pair.

#include <algorithm>
#include <catch2/catch.hpp>

#include "../support/random_pipeline.h"

namespace dapple {
namespace {

using namespace small;

/// The layers of `from` of which some layer of `to` is a consumer.
std::vector<Layer> consumed(const ModelProfile& profile, LayerRange from, LayerRange to) {
  std::vector<Layer> found;
  for (std::int32_t l = from.begin; l < from.end; ++l) {
    bool is_consumed = false;
    for (std::int32_t m = to.begin; m < to.end; ++m) {
      for (const LayerIndex input : profile.layers[static_cast<std::size_t>(m)].inputs) {
        is_consumed = is_consumed || input.value == l;
      }
    }
    if (is_consumed) found.push_back(profile.layers[static_cast<std::size_t>(l)]);
  }
  return found;
}

std::int64_t bytes_of(const std::vector<Layer>& layers, std::int64_t samples) {
  std::int64_t bytes = 0;
  for (const Layer& layer : layers) bytes += output_size(layer, samples).count;
  return bytes;
}

const BoundaryCost* transfers_between(const PlanCost& costs, std::size_t from, std::size_t to) {
  if (to == from + 1) return &costs.boundaries[from];
  for (const SkipCost& skip : costs.skips) {
    if (skip.from.position() == from && skip.to.position() == to) return &skip.transfers;
  }
  return nullptr;
}

TEST_CASE("stages send each other what they consume of each other") {
  Dice dice(41);
  int skipping = 0;
  for (int i = 0; i < scaled(1500); ++i) {
    const Pipeline pipeline = random_pipeline(dice, {.direct = true});
    const std::vector<StagePlan>& stages = pipeline.plan.stages;
    INFO("instance " << i << ": " << text_of(pipeline));
    for (std::size_t to = 1; to < stages.size(); ++to) {
      for (std::size_t from = 0; from < to; ++from) {
        const std::vector<Layer> layers =
            consumed(pipeline.profile, stages[from].layers, stages[to].layers);
        const BoundaryCost* transfers = transfers_between(pipeline.costs, from, to);
        REQUIRE((transfers != nullptr) == (to == from + 1 || !layers.empty()));
        if (transfers == nullptr) continue;
        if (to > from + 1) ++skipping;
        for (const auto* direction : {&transfers->forward, &transfers->backward}) {
          REQUIRE(direction->size() == 1);
          for (const PairFlow& flow : direction->front().flows) {
            REQUIRE(flow.size.count == bytes_of(layers, flow.samples.size()));
          }
        }
      }
    }
  }
  CHECK(skipping >= scaled(300));
}

TEST_CASE("every stage has room for what it exchanges with each other one") {
  Dice dice(42);
  for (int i = 0; i < scaled(1500); ++i) {
    const Pipeline pipeline = random_pipeline(dice, {.direct = true});
    const Plan& plan = pipeline.plan;
    INFO("instance " << i << ": " << text_of(pipeline));
    for (std::size_t s = 0; s < plan.stages.size(); ++s) {
      const StagePlan& stage = plan.stages[s];
      Bytes bucket;
      for (const Bytes size : stage.gradient_buckets) bucket = std::max(bucket, size);
      for (const ReplicaCost& replica : pipeline.costs.stages[s].replicas) {
        std::int64_t buffers = bucket.count;
        std::int64_t received = 0;
        for (std::size_t other = 0; other < plan.stages.size(); ++other) {
          if (other == s) continue;
          const std::size_t first = std::min(s, other);
          const std::size_t last = std::max(s, other);
          const std::int64_t bytes = bytes_of(
              consumed(pipeline.profile, plan.stages[first].layers, plan.stages[last].layers),
              replica.samples);
          const std::int64_t waiting = plan.warmup_depths[first] - plan.warmup_depths[last];
          buffers += (4 + waiting) * bytes;
          if (other < s) received += bytes;
        }
        REQUIRE(replica.memory.communication_buffers.count == buffers);
        if (stage.recompute && s > 0) REQUIRE(replica.memory.per_micro_batch.count == received);
      }
    }
  }
}

}  // namespace
}  // namespace dapple
