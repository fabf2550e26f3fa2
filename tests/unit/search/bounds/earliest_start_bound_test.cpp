#include "dapple/search/bounds/earliest_start_bound.h"

#include <catch2/catch.hpp>

#include "../../../support/plans.h"
#include "dapple/search/bounds/bound.h"

using namespace dapple;

namespace {

Duration bound_within(const small::CostedPlan& pipeline, const search::DepthBox& box) {
  return search::EarliestStartBound(
             {pipeline.plan, pipeline.costs, pipeline.topology, {Contention::Off}})
      .bound(box);
}

}  // namespace

TEST_CASE("uniform stages without transfers take (M + S - 1)(F + B), whatever their depths") {
  // 6 micro-batches on 3 stages of 2 + 3: 8 * 5 = 40. No depths are faster than the last stage,
  // which starts after 2 * 2, works 6 * 5, and has 2 * 3 behind it.
  const auto pipeline = small::straight_plan(
      {{.forward = 2, .backward = 3}, {.forward = 2, .backward = 3}, {.forward = 2, .backward = 3}},
      {.num_micro_batches = 6, .depths = {3, 2, 1}});
  CHECK(bound_within(pipeline, {{3, 2, 1}, {3, 2, 1}}) == Duration{40});
  CHECK(bound_within(pipeline, {{1, 1, 1}, {6, 6, 6}}) == Duration{40});
}

TEST_CASE("a box is no slower than its fastest depths, and its parts are") {
  // A trip of one micro-batch, 1 + 4 + 1 + 1 + 4 + 1 = 12, keeps a first stage of depth 1 waiting:
  // 4 * 12 = 48. With all 4 in flight, the boundary takes one each 4: the last forward arrives at
  // 1 + 4 * 4 = 17, its backward ends at 19, and 4 + 1 later all is done: 24.
  const auto pipeline = small::straight_plan(
      {{.forward = 1, .backward = 1, .output = 4}, {.forward = 1, .backward = 1}},
      {.num_micro_batches = 4, .depths = {1, 1}});
  CHECK(bound_within(pipeline, {{1, 1}, {1, 1}}) == Duration{48});
  CHECK(bound_within(pipeline, {{4, 1}, {4, 1}}) == Duration{24});
  CHECK(bound_within(pipeline, {{1, 1}, {4, 1}}) == Duration{24});
}

TEST_CASE("the last gradients and the all-reduce of who sends them share a port") {
  // Forwards of two samples end at 20 and arrive 200 later. The replicas work 10 + 10 on a sample
  // each, until 240; then each sends a gradient of 100 and reduces 1000 over 2 devices, which are
  // 2 * 1/2 * 1000 through its port: 1100 together, until 1340; alone, the all-reduce ends at 1240.
  // Bounds leave 2 for the rounding of shares.
  const small::CostedPlan pipeline(
      small::model_of({{.forward = 10, .backward = 10, .output = 100},
                       {.forward = 10, .backward = 10, .parameters = 1000}}),
      small::cluster({.servers = 3}),
      {.micro_batch_size = 2, .depths = {1, 1}, .stages = {{.devices = {0}}, {.devices = {1, 2}}}});
  CHECK(search::lower_bound(pipeline.plan, pipeline.costs, pipeline.topology) == Duration{1240});
  CHECK(search::lower_bound_with_contention(pipeline.plan, pipeline.costs, pipeline.topology) ==
        Duration{1338});
  const search::DepthBox box{{1, 1}, {1, 1}};
  CHECK(search::EarliestStartBound(
            {pipeline.plan, pipeline.costs, pipeline.topology, {Contention::Off}})
            .bound(box) == Duration{1240});
  CHECK(search::EarliestStartBound({pipeline.plan, pipeline.costs, pipeline.topology, {}})
            .bound(box) == Duration{1338});
}

TEST_CASE("what shares a port with the last gradients is not known beside collectives of passes") {
  small::CostedPlan pipeline(
      small::model_of({{.forward = 10, .backward = 10, .output = 100},
                       {.forward = 10, .backward = 10, .parameters = 1000}}),
      small::cluster({.servers = 3}),
      {.micro_batch_size = 2, .depths = {1, 1}, .stages = {{.devices = {0}}, {.devices = {1, 2}}}});
  const auto bound = [&] {
    return search::lower_bound({pipeline.plan,
                                pipeline.costs,
                                pipeline.topology,
                                {.contention = Contention::SharedWithCollectives}});
  };
  CHECK(bound() == Duration{1338});
  pipeline.costs.stages[0].replicas[0].traffic.forward.in_turn = {{5}, {5}};
  CHECK(bound() == Duration{1240});
}

TEST_CASE("what shares a port with the last gradients is left out where groups have other sizes") {
  // As above, with the second stage as one replica of two devices.
  small::CostedPlan pipeline(
      small::model_of({{.forward = 10, .backward = 10, .output = 100},
                       {.forward = 10, .backward = 10, .parameters = 1000}}),
      small::cluster({.servers = 3}),
      {.micro_batch_size = 2, .depths = {1, 1}, .stages = {{.devices = {0}}, {.devices = {1, 2}}}});
  pipeline.plan.stages[1].devices_per_replica = 2;
  const search::DepthBox box{{1, 1}, {1, 1}};
  CHECK(search::EarliestStartBound({pipeline.plan, pipeline.costs, pipeline.topology, {}})
            .bound(box) == Duration{1240});
}
