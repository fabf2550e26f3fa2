// What stages hold and reduce of parameters that several layers use.

#include <catch2/catch.hpp>

#include "../../support/plans.h"

#include "dapple/cost/cost_model.h"

namespace dapple {
namespace {

using namespace small;

/// Layers of 1, 2, 4, 8 and 16 bytes of parameters; the last two use those of layer 1 too.
ModelProfile five_layers() {
  ModelProfile profile = model_of({{.forward = 1, .backward = 1, .parameters = 1},
                                   {.forward = 1, .backward = 1, .parameters = 2},
                                   {.forward = 1, .backward = 1, .parameters = 4},
                                   {.forward = 1, .backward = 1, .parameters = 8},
                                   {.forward = 1, .backward = 1, .parameters = 16}});
  profile.ties = {{{1}, {{3}, {4}}}};
  profile.optimizer.step_ns_per_parameter_byte = kOne;
  return profile;
}

TEST_CASE("a range of layers holds each tensor once, and a copy of what it uses of others") {
  const ModelProfile profile = five_layers();
  const Topology topology(cluster({}));
  const CostModel costs(profile, topology);
  CHECK(costs.parameters({0, 5}).count == 31);
  CHECK(costs.parameters({1, 4}).count == 2 + 4 + 8);
  CHECK(costs.parameters({2, 5}).count == 4 + 8 + 16 + 2);
  CHECK(costs.parameters({4, 5}).count == 16 + 2);
  CHECK(costs.parameters({2, 3}).count == 4);
  CHECK(costs.parameters({0, 2}).count == 3);
  CHECK(costs.optimizer_step({2, 5}).ns == 30);
}

TEST_CASE("buckets leave out what other stages add to") {
  const ModelProfile profile = five_layers();
  const auto sizes = [&](LayerRange layers) {
    std::vector<std::int64_t> counts;
    for (const Bytes size : gradient_buckets(profile, layers, Bytes{1}).sizes) {
      counts.push_back(size.count);
    }
    return counts;
  };
  CHECK(sizes({0, 5}) == std::vector<std::int64_t>{16, 8, 4, 2, 1});
  CHECK(sizes({0, 4}) == std::vector<std::int64_t>{8, 4, 1});
  CHECK(sizes({0, 3}) == std::vector<std::int64_t>{4, 1});
  CHECK(sizes({4, 5}) == std::vector<std::int64_t>{16});
  CHECK(sizes({1, 2}).empty());
}

TEST_CASE("what is tied is reduced over the devices of all stages that hold it") {
  const ModelProfile profile = five_layers();
  const Topology topology(cluster({.servers = 1, .devices = 4}));
  const Plan plan = plan_of(profile, {.micro_batch_size = 2,
                                      .num_micro_batches = 1,
                                      .depths = {1, 1, 1},
                                      .stages = {{.layers = 2, .devices = {0, 1}},
                                                 {.layers = 2, .devices = {2}},
                                                 {.layers = 1, .devices = {3}}},
                                      .optimizer = OptimizerTiming::PerBucket});
  const std::vector<TiedGradients> expected{{{1}, {{0}, {1}, {2}}}};
  CHECK(plan.tied_gradients == expected);
  const PlanCost costs = CostModel(profile, topology).plan_cost(plan);
  REQUIRE(costs.ties.size() == 1);
  const AllReduceModel over_all({{0}, {1}, {2}, {3}}, topology);
  CHECK(costs.ties.front().reduction.time == over_all.time(Bytes{2}));
  // Of its bucket or all of its own, and then of the two bytes that are tied.
  const std::vector<Duration> steps[] = {{{1}, {2}}, {{12}, {2}}, {{16}, {2}}};
  for (std::size_t s = 0; s < 3; ++s) {
    CHECK(costs.stages[s].bucket_steps == steps[s]);
    CHECK(costs.stages[s].has_tied_step());
    CHECK(costs.stages[s].tied_reduction == over_all.time(Bytes{2}));
    const Duration from_here = s == 0 ? over_all.time(Bytes{2}) : Duration{};
    CHECK(costs.stages[s].tied_reduction_from_here == from_here);
  }
}

TEST_CASE("the ring of a tie does not depend on the numbers of interchangeable devices") {
  const ModelProfile profile = five_layers();
  const Topology topology(cluster({.servers = 2, .devices = 3}));
  const auto ring = [&](const std::vector<StageShape>& stages) {
    const Plan plan = plan_of(
        profile,
        {.micro_batch_size = 2, .num_micro_batches = 1, .depths = {1, 1, 1}, .stages = stages});
    const std::vector<DeviceIndex> devices =
        CostModel(profile, topology).plan_cost(plan).ties.front().devices;
    std::vector<std::int32_t> numbers;
    for (const DeviceIndex device : devices) numbers.push_back(device.value);
    return numbers;
  };
  // Servers stay in their order, as they are not interchangeable.
  CHECK(ring({{.layers = 2, .devices = {1, 4}},
              {.layers = 2, .devices = {2}},
              {.layers = 1, .devices = {3}}}) == std::vector<std::int32_t>{1, 2, 4, 3});
  // The last device of the first server sends to the second, whatever its number.
  CHECK(ring({{.layers = 2, .devices = {2, 3}},
              {.layers = 2, .devices = {0}},
              {.layers = 1, .devices = {1}}}) == std::vector<std::int32_t>{2, 0, 1, 3});
}

TEST_CASE("a tie inside a stage is none of the plan's") {
  const ModelProfile profile = five_layers();
  const Plan plan =
      plan_of(profile, {.num_micro_batches = 1,
                        .depths = {1, 1},
                        .stages = {{.layers = 1, .devices = {0}}, {.layers = 4, .devices = {1}}}});
  CHECK(plan.tied_gradients.empty());
}

TEST_CASE("half of a backward that uses another layer's parameters makes their gradient") {
  ModelProfile profile =
      model_of({{.forward = 1, .backward = 1, .parameters = 8}, {.forward = 1, .backward = 10}});
  const auto of_input = [&] { return input_gradient_time(profile, LayerIndex{1}, 1, kOne).ns; };
  CHECK(of_input() == 10);
  profile.ties = {{{0}, {{1}}}};
  CHECK(of_input() == 5);
}

}  // namespace
}  // namespace dapple
