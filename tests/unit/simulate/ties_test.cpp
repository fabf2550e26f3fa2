// Timelines worked by hand in which stages share parameters: what is tied is reduced over all of
// their devices, once all of them have made their gradients and reduced their buckets.

#include <catch2/catch.hpp>

#include "../../support/pipeline.h"
#include "both_modes.h"

namespace dapple::simulate {
namespace {

using namespace small;

ModelProfile tied(const std::vector<LayerFigures>& layers, std::int32_t owner, std::int32_t user) {
  ModelProfile profile = model_of(layers);
  profile.ties = {{{owner}, {{user}}}};
  profile.optimizer.step_ns_per_parameter_byte = kOne;
  return profile;
}

TEST_CASE("two stages of one device each reduce what is tied behind the last backward") {
  // 2 bytes of activations take 2 ns; 6 bytes over two devices 2 * 1/2 * 6 = 6 ns, on both at once;
  // both hold the 6 bytes and update them.
  const ModelProfile profile = tied(
      {{.forward = 2, .backward = 4, .output = 2, .parameters = 6}, {.forward = 3, .backward = 5}},
      0, 1);
  const Pipeline pipeline(profile, full_mesh(2, {bytes_per_ns(1), {}}),
                          PlanShape{.num_micro_batches = 1,
                                    .depths = {1, 1},
                                    .stages = {{.devices = {0}}, {.devices = {1}}}});
  for (const SimulationOptions& options : kBothModes) {
    const SimulationResult result = pipeline.run(options);
    CHECK(compute(result, 0) == "F0[0,2] B0[14,18] S[24,30]");
    CHECK(compute(result, 1) == "F0[4,7] B0[7,12] S[24,30]");
    CHECK(reductions(result, 0) == "T0[18,24]");
    CHECK(reductions(result, 1) == "T0[18,24]");
    CHECK(result.iteration.ns == 30);
  }
}

TEST_CASE("a layer beside the one that it is tied to adds to one gradient") {
  const ModelProfile profile =
      tied({{.forward = 2, .backward = 4, .parameters = 6}, {.forward = 3, .backward = 5}}, 0, 1);
  const Pipeline pipeline(
      profile, full_mesh(1, {bytes_per_ns(1), {}}),
      PlanShape{.num_micro_batches = 1, .depths = {1}, .stages = {{.layers = 2, .devices = {0}}}});
  const SimulationResult result = pipeline.run();
  CHECK(compute(result, 0) == "F0[0,5] B0[5,14] S[14,20]");
  CHECK(reductions(result, 0).empty());
}

TEST_CASE("buckets go first, and where each has its step, what is tied has one more") {
  // Bucket 0 is of layer 1 alone: ready at 10, over two devices 4 ns. What is tied waits for it,
  // and takes 2 * 2/3 * 6 = 8 ns over three.
  const ModelProfile profile = tied({{.forward = 1, .backward = 2, .parameters = 6},
                                     {.forward = 1, .backward = 2, .parameters = 4},
                                     {.forward = 1, .backward = 2}},
                                    0, 2);
  const Pipeline pipeline(
      profile, cluster({.servers = 1, .devices = 3, .inside = {bytes_per_ns(1), {}}}),
      PlanShape{.micro_batch_size = 2,
                .num_micro_batches = 1,
                .depths = {1, 1},
                .stages = {{.layers = 2, .devices = {0, 1}}, {.layers = 1, .devices = {2}}},
                .optimizer = OptimizerTiming::PerBucket});
  for (const SimulationOptions& options : kBothModes) {
    const SimulationResult result = pipeline.run(options);
    CHECK(compute(result, 0) == "F0[0,2] B0[8,12] S[14,18] S1[22,28]");
    CHECK(reductions(result, 0) == "R0[10,14] T0[14,22]");
    CHECK(compute(result, 1) == "F0[2,4] B0[4,8] S[8,8] S1[22,28]");
    CHECK(reductions(result, 1) == "T0[14,22]");
  }
}

TEST_CASE("ties of different stages wait for each other where they share one") {
  // Stages 0 and 2 share 4 bytes, 1 and 2 share 2: stage 2 reduces them in the order of the
  // holders.
  ModelProfile profile = model_of({{.forward = 1, .backward = 3, .parameters = 4},
                                   {.forward = 1, .backward = 3, .parameters = 2},
                                   {.forward = 1, .backward = 3},
                                   {.forward = 1, .backward = 0}});
  profile.ties = {{{0}, {{2}}}, {{1}, {{3}}}};
  const Pipeline pipeline(
      profile, full_mesh(3, {bytes_per_ns(1), {}}),
      PlanShape{.num_micro_batches = 1,
                .depths = {1, 1, 1},
                .stages = {{.devices = {0}}, {.devices = {1}}, {.layers = 2, .devices = {2}}}});
  const SimulationResult result = pipeline.run();
  CHECK(compute(result, 0) == "F0[0,1] B0[10,13] S[17,17]");
  CHECK(compute(result, 1) == "F0[1,2] B0[7,10] S[19,19]");
  CHECK(compute(result, 2) == "F0[2,4] B0[4,7] S[19,19]");
  CHECK(reductions(result, 0) == "T0[13,17]");
  CHECK(reductions(result, 1) == "T1[17,19]");
  CHECK(reductions(result, 2) == "T0[13,17] T1[17,19]");
}

}  // namespace
}  // namespace dapple::simulate
