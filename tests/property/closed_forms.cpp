// Bubbles and memory where theory has a formula, for S = 2 to 32 stages and M = S to 256
// micro-batches: all of them in the long tests, some of them else.

#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

#include "../support/pipeline.h"
#include "../support/random_problem.h"

#include "dapple/cost/cost_model.h"

namespace dapple {
namespace {

using namespace small;

constexpr std::int32_t kMostGroups = 32;
constexpr std::int64_t kMostMicroBatches = 256;

/// From one number of micro-batches to the next that is tried.
std::int64_t stride() {
  return std::max(1, 90 / scaled(10));
}

/// Layers alike, one for each chunk of each of so many devices; nothing is sent.
class Uniform {
 public:
  Uniform(std::int32_t groups, std::int32_t chunks, Dice& dice)
      : groups_(groups),
        chunks_(chunks),
        layer_{.forward = dice.roll(1, 1000), .backward = dice.roll(1, 1000)},
        model_(
            model_of(std::vector<LayerFigures>(static_cast<std::size_t>(groups * chunks), layer_))),
        topology_(cluster({.devices = groups})) {}

  /// Idle time of each device: the iteration less its own work.
  std::int64_t bubble(ScheduleFamily family, std::int64_t micro_batches) {
    PlanShape shape{.num_micro_batches = micro_batches};
    for (std::int32_t s = 0; s < groups_ * chunks_; ++s) {
      shape.stages.push_back({.devices = {s % groups_}});
      shape.depths.push_back(std::min<std::int64_t>(groups_ - s % groups_, micro_batches));
    }
    plan_ = plan_of(model_, shape);
    plan_.family = family;
    plan_.chunks_per_device = chunks_;
    if (family != ScheduleFamily::OneFOneB) fill_depths(plan_);
    const PlanCost costs = CostModel(model_, topology_).plan_cost(plan_);
    const simulate::SimulationResult result =
        simulate::simulate(generate(plan_), costs, topology_, {.record = false});
    return result.iteration.ns - micro_batches * chunks_ * layer_both();
  }

  std::int64_t layer_both() const { return layer_.forward + layer_.backward; }
  std::vector<std::int64_t> in_flight() const {
    return most_in_flight(generate(plan_), plan_.stages.size());
  }

 private:
  std::int32_t groups_;
  std::int32_t chunks_;
  LayerFigures layer_;
  ModelProfile model_;
  Topology topology_;
  Plan plan_;  // the last one
};

TEST_CASE("GPipe and 1F1B idle for (S-1)(F+B), one with M in flight, the other with S-s") {
  Dice dice(4201);
  for (std::int32_t stages = 2; stages <= kMostGroups; ++stages) {
    Uniform uniform(stages, 1, dice);
    const std::int64_t expected = (stages - 1) * uniform.layer_both();
    for (std::int64_t m = stages; m <= kMostMicroBatches; m += stride()) {
      CAPTURE(stages, m);
      REQUIRE(uniform.bubble(ScheduleFamily::GPipe, m) == expected);
      REQUIRE(uniform.in_flight() ==
              std::vector<std::int64_t>(static_cast<std::size_t>(stages), m));
      REQUIRE(uniform.bubble(ScheduleFamily::OneFOneB, m) == expected);
      const std::vector<std::int64_t> in_flight = uniform.in_flight();
      for (std::int32_t s = 0; s < stages; ++s) {
        REQUIRE(in_flight[static_cast<std::size_t>(s)] == stages - s);
      }
    }
  }
}

TEST_CASE("interleaving over v chunks leaves a v-th of the bubble") {
  Dice dice(4202);
  for (std::int32_t groups = 2; groups <= kMostGroups; ++groups) {
    for (std::int32_t chunks = 2; chunks <= 4; ++chunks) {
      Uniform uniform(groups, chunks, dice);
      // Of a device's times F and B a chunk has a v-th.
      const std::int64_t expected = (groups - 1) * uniform.layer_both();
      const std::int64_t rounds = (stride() + 3) / 4;
      for (std::int64_t m = groups; m <= kMostMicroBatches; m += rounds * groups) {
        CAPTURE(groups, chunks, m);
        REQUIRE(uniform.bubble(ScheduleFamily::Interleaved, m) == expected);
      }
    }
  }
}

}  // namespace
}  // namespace dapple
