#include "dapple/search/bounds/bound.h"

#include <catch2/catch.hpp>
#include <utility>

#include "../../../support/plans.h"

using namespace dapple;

namespace {

search::StageBound stage(std::int64_t forward, std::int64_t backward, std::int64_t depth,
                         std::int64_t after = 0) {
  return {.forward = {forward},
          .backward = {backward},
          .after_backward = {after},
          .depth_limit = depth};
}

const search::BoundaryBound kNoBoundary{};

}  // namespace

TEST_CASE("the bound of one stage is its own work and what follows it") {
  const search::BoundLabel label = search::initial_label(stage(3, 5, 1, 7), 4);
  CHECK(label.round_trip == Duration{8});
  CHECK(label.span == Duration{32});  // 4 * (3 + 5)
  CHECK(label.end == Duration{39});
}

TEST_CASE("two equal stages at depth 2 are bound by fill, work and drain") {
  const search::BoundLabel last = search::initial_label(stage(2, 4, 1), 5);
  const search::BoundLabel both = search::extend_label(stage(2, 4, 2), kNoBoundary, last, 5);
  CHECK(both.round_trip == Duration{12});
  CHECK(both.span == Duration{36});  // (M + S - 1)(F + B) = 6 * 6
  CHECK(both.end == Duration{36});
}

TEST_CASE("a single slot makes every micro-batch wait for its round trip") {
  const search::BoundLabel last = search::initial_label(stage(2, 4, 1), 5);
  const search::BoundLabel both = search::extend_label(stage(2, 4, 1), kNoBoundary, last, 5);
  CHECK(both.span == Duration{60});  // 5 round trips of 12
}

TEST_CASE("a port is never faster than its own work, in each direction on its own") {
  search::BoundaryBound boundary;
  boundary.forward = {100};
  boundary.backward = {100};
  boundary.forward_queue =
      search::longest_queue({{.size = {100}, .bandwidth = {1'000'000'000}, .time = {100}}}, 10);
  const search::BoundLabel last = search::initial_label(stage(1, 1, 1), 10);
  const search::BoundLabel both = search::extend_label(stage(1, 1, 10), boundary, last, 10);
  // F + 9 transfers of 100 behind each other, the last one's 100, there F + B, back 100, B.
  CHECK(both.span == Duration{1 + 900 + 100 + 2 + 100 + 1});
}

TEST_CASE("a later stage's reduction may end the iteration") {
  const search::BoundLabel last = search::initial_label(stage(2, 4, 1, 1000), 5);
  const search::BoundLabel both = search::extend_label(stage(2, 4, 2, 3), kNoBoundary, last, 5);
  CHECK(both.end == Duration{2 + 30 + 1000});  // F of the first, 5 * 6, the reduction
}

TEST_CASE("reductions stick out by what does not fit beside the backward") {
  StageCost cost;
  cost.backward = {100};
  cost.bucket_ready = {{40}, {100}};
  cost.buckets.resize(2);
  cost.buckets[0].time = {80};
  cost.buckets[1].time = {30};
  // The first runs from 40 to 120, the second waits for it and ends at 150.
  CHECK(search::exposed_all_reduce(cost) == Duration{50});
  cost.buckets[0].time = {10};
  CHECK(search::exposed_all_reduce(cost) == Duration{30});
}

TEST_CASE("the least path is of the quickest replica, the quickest pair, what no replica hides") {
  // Three samples on two devices: two and one. 10 and 20 ns per sample, 4 bytes each to the other
  // stage's same share, over 1 byte per ns and 3 ns of latency; 6 bytes of gradients.
  const small::CostedPlan pipeline{
      small::model_of({{.forward = 10, .backward = 20, .output = 4, .parameters = 6},
                       {.forward = 5, .backward = 5}}),
      small::full_mesh(4, {small::bytes_per_ns(1), {3}}),
      small::PlanShape{
          .micro_batch_size = 3,
          .num_micro_batches = 4,
          .depths = {2, 1},
          .stages = {{.layers = 1, .devices = {0, 1}}, {.layers = 1, .devices = {2, 3}}}}};
  const PlanCost least = search::least_path(pipeline.costs);
  CHECK(least.stages[0].forward == Duration{10});
  CHECK(least.stages[0].backward == Duration{20});
  CHECK(least.stages[1].forward == Duration{5});
  // Of the last layer's gradients nothing is hidden on either replica.
  CHECK(search::exposed_all_reduce(least.stages[0]) == pipeline.costs.stages[0].buckets[0].time);
  for (const std::vector<TransferCost>* way :
       {&least.boundaries[0].forward, &least.boundaries[0].backward}) {
    CHECK(way->front().time == Duration{4 + 3});
    REQUIRE(way->front().ports.size() == 1);
    CHECK(way->front().ports[0].latency == Duration{3});
  }
  // The work of the slow replica, four times 20 + 40, is more than any quick path; then the
  // reduction.
  const search::BoundedPlan apart{
      pipeline.plan, pipeline.costs, pipeline.topology, {Contention::Off, Replicas::Independent}};
  CHECK(search::lower_bound(apart) == Duration{4 * 60} + pipeline.costs.stages[0].buckets[0].time);
}

TEST_CASE("the bound of uniform stages under policy A is (M + S - 1)(F + B)") {
  for (std::int64_t stages = 2; stages <= 5; ++stages) {
    small::PlanShape shape{.micro_batch_size = 1, .num_micro_batches = 7};
    for (std::int64_t s = 0; s < stages; ++s) shape.depths.push_back(stages - s);
    const small::CostedPlan pipeline =
        small::straight_plan(std::vector<small::LayerFigures>(static_cast<std::size_t>(stages),
                                                              {.forward = 3, .backward = 5}),
                             shape);
    CHECK(search::lower_bound(pipeline.plan, pipeline.costs, pipeline.topology) ==
          (7 + stages - 1) * Duration{8});
  }
}

TEST_CASE("a NIC carries both boundaries of a stage and the collectives of its passes") {
  // Three devices, a NIC of 1 B/ns each, and tensors of 4 us.
  const small::LayerFigures layer{.forward = 3000, .backward = 2000, .output = 4000};
  small::CostedPlan plan(small::model_of({layer, layer, layer}), small::cluster({.servers = 3}),
                         {.num_micro_batches = 4,
                          .stages = {{.devices = {0}}, {.devices = {1}}, {.devices = {2}}},
                          .gpipe = true});
  const auto bound = [&](Contention contention) {
    return search::lower_bound({plan.plan, plan.costs, plan.topology, {.contention = contention}})
        .ns;
  };
  const std::int64_t without = bound(Contention::Shared);
  CHECK(bound(Contention::SharedWithCollectives) == without);
  StageTraffic& traffic = plan.costs.stages[1].replicas[0].traffic;
  // An all-reduce of 2 us is part of each forward of the second stage, 1,999 ns without what the
  // rounding of rates may take. Into its NIC come those of four forwards and four tensors from both
  // sides, after F here and before B there, d and B here.
  traffic.forward.in_turn = {{2000}, {2000}};
  CHECK(bound(Contention::Shared) == without);
  CHECK(bound(Contention::SharedWithCollectives) ==
        3000 + (2000 + 8 * 4000 + 4 * 1999) + 4000 + 2000);
  // As part of each backward it counts three times: out of the NIC, after F and c here and F there,
  // and before B here.
  traffic.backward.in_turn = std::exchange(traffic.forward.in_turn, {});
  CHECK(bound(Contention::SharedWithCollectives) ==
        3000 + 4000 + (3000 + 8 * 4000 + 3 * 1999) + 2000);
  // Beside computation there is no room for more than that leaves.
  traffic.backward = {{{1500}, {1500}}, {{2000}, {2000}}};
  CHECK(bound(Contention::SharedWithCollectives) ==
        3000 + 4000 + (3000 + 8 * 4000 + 3 * 1999) + 2000);
}
