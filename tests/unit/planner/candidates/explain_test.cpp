#include "dapple/planner/candidates/explain.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "../../../support/random_pipeline.h"

using namespace dapple;

namespace {

TimeParts parts_of(const small::Pipeline& pipeline, Contention contention = Contention::Shared) {
  const Duration without_transfers =
      pipeline.run({.contention = contention, .free_transfers = true}).iteration;
  const Duration alone =
      pipeline.run({.contention = contention, .free_transfers = true, .free_all_reduce = true})
          .iteration;
  return planner::time_parts({.costs = pipeline.costs,
                              .schedule = pipeline.schedule,
                              .iteration = pipeline.run(contention).iteration,
                              .without_transfers = without_transfers,
                              .alone = alone},
                             pipeline.topology);
}

}  // namespace

TEST_CASE("uniform stages fill and drain, and wait for what is sent") {
  // F = 10, B = 20, M = 3 on 2 stages, policy A: (M + 1) * 30 = 120, of which a stage works 90.
  // Transfers of 4 each way: 10 + 4 + 30 + 4 + 20 round trip, and two slots. Stage 0 has F0 F1,
  // then B0 from 48, F2 from 68, B1 from 78; stage 1 gets F2 at 82, after B1 ended at 74: 8 late.
  const small::Pipeline pipeline = small::straight(
      {{.forward = 10, .backward = 20, .output = 4}, {.forward = 10, .backward = 20}},
      {.num_micro_batches = 3, .depths = {2, 1}});
  const TimeParts parts = parts_of(pipeline);
  CHECK(parts.compute == Duration{90});
  CHECK(parts.imbalance == Duration{0});
  CHECK(parts.bubble == Duration{30});
  // The third gradient leaves stage 1 at 82 + 30 and ends at 112 + 4 + 20.
  CHECK(parts.transfers == Duration{136 - 120});
  CHECK(parts.total() == Duration{136});
}

TEST_CASE("an idle device and an uneven cut are imbalance") {
  // Stages of 30 and 10 on two of four devices: 4 * 40 / 4 = 40 of work each, the busiest has 120.
  const small::Pipeline pipeline(
      small::model_of({{.forward = 10, .backward = 20}, {.forward = 5, .backward = 5}}),
      small::cluster({.servers = 1, .devices = 4}),
      {.num_micro_batches = 4,
       .depths = {4, 4},
       .stages = {{.layers = 1, .devices = {0}}, {.layers = 1, .devices = {1}}}});
  const TimeParts parts = parts_of(pipeline);
  CHECK(parts.compute == Duration{40});
  CHECK(parts.imbalance == Duration{80});
  CHECK(parts.total() == pipeline.run().iteration);
}

TEST_CASE("recomputation, all-reduce and optimizer step are told apart") {
  ModelProfile model = small::model_of({{.forward = 10, .backward = 20, .parameters = 100}});
  model.optimizer.step_ns_per_parameter_byte = kOne;
  // Two replicas of one sample each, twice: 2 * (10 + 10 + 20). 100 bytes around a ring of two at
  // 1 byte/ns take 100, the step 100.
  const small::Pipeline pipeline(model, small::cluster({.servers = 1, .devices = 2}),
                                 {.micro_batch_size = 2,
                                  .num_micro_batches = 2,
                                  .depths = {1},
                                  .stages = {{.layers = 1, .devices = {0, 1}, .recompute = true}}});
  CHECK(parts_of(pipeline) == TimeParts{.compute = {60},
                                        .recomputation = {20},
                                        .imbalance = {},
                                        .bubble = {},
                                        .transfers = {},
                                        .all_reduce = {100},
                                        .optimizer_step = {100}});
}

TEST_CASE("collectives of groups are a part of their own, those of recomputation are not") {
  ModelProfile model = small::model_of({{.forward = 10, .backward = 20}});
  model.group.rings[0] = {.members = 2, .bandwidth = small::bytes_per_ns(1), .latency = {}};
  model.layers.front().forward_collectives = {{.size_per_sample = {3}}};
  model.layers.front().backward_collectives = {{.size_per_sample = {4}, .count = 2}};
  // Two samples, one after the other, on one of two devices: forwards of 10 + 3, backwards of 20 +
  // 8 after another forward.
  const small::Pipeline pipeline(model, small::cluster({.servers = 1, .devices = 2}),
                                 {.micro_batch_size = 1,
                                  .num_micro_batches = 2,
                                  .depths = {1},
                                  .stages = {{.layers = 1, .devices = {0}, .recompute = true}}});
  CHECK(parts_of(pipeline) == TimeParts{.compute = {30},
                                        .collectives = {11},
                                        .recomputation = {13},
                                        .imbalance = {54},
                                        .bubble = {},
                                        .transfers = {},
                                        .all_reduce = {},
                                        .optimizer_step = {}});
}

TEST_CASE("the parts of any plan add up to its iteration, and none is negative") {
  small::Dice dice(7);
  for (int i = 0; i < small::scaled(1500); ++i) {
    const small::Pipeline pipeline =
        small::random_pipeline(dice, {.slowdown = true, .deal = dice.chance(30)});
    for (const Contention contention : {Contention::Shared, Contention::Off}) {
      INFO(text_of(pipeline));
      const TimeParts parts = parts_of(pipeline, contention);
      CHECK(parts.total() == pipeline.run(contention).iteration);
      for (const TimePart& part : kTimeParts) {
        INFO(part.name);
        CHECK(parts.*part.part >= Duration{});
      }
    }
  }
}
