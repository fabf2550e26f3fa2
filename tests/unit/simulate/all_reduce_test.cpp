// Timelines worked by hand in which gradients are reduced beside the last backward. Two replicas on
// links of one byte per nanosecond: a bucket of n bytes keeps each hop busy for 2 * 1/2 * n = n ns,
// and takes two hops' latency.

#include <catch2/catch.hpp>

#include "../../support/pipeline.h"
#include "both_modes.h"

namespace dapple::simulate {
namespace {

using namespace small;

/// Two replicas, a sample each, of three layers: backward 10, 6 and 4 from the last to the first,
/// with gradients of 4, 8 and 10 bytes; latency 1.
Pipeline three_layers(Bytes bucket_size, Factor slowdown, std::int64_t first_backward = 4,
                      std::int64_t micro_batches = 1) {
  TopologyDescription description =
      cluster({.servers = 1, .devices = 2, .inside = {bytes_per_ns(1), {1}}});
  description.overlap_slowdown = slowdown;
  return {model_of({{.forward = 1, .backward = first_backward, .parameters = 10},
                    {.forward = 1, .backward = 6, .parameters = 8},
                    {.forward = 1, .backward = 10, .parameters = 4}}),
          description,
          PlanShape{.micro_batch_size = 2,
                    .num_micro_batches = micro_batches,
                    .depths = {1},
                    .stages = {{.layers = 3, .devices = {0, 1}}},
                    .bucket_size = bucket_size}};
}

TEST_CASE("three buckets are reduced as the last backward leaves them") {
  // Ready at 3 + 10, + 6, + 4 = 13, 19, 23. R0: 13 + 4 + 2 = 19; R1: 19 + 8 + 2 = 29; R2 waits for
  // R1: 29 + 10 + 2 = 41. Exposed: 41 - 23 = 18.
  const Pipeline pipeline = three_layers({1}, kOne);
  for (const SimulationOptions& options : kBothModes) {
    const SimulationResult result = pipeline.run(options);
    CHECK(compute(result, 0) == "F0[0,3] B0[3,23] S[41,41]");
    CHECK(reductions(result, 0) == "R0[13,19] R1[19,29] R2[29,41]");
    CHECK(result.iteration.ns == 41);
  }
}

TEST_CASE("a bucket of two layers waits for both") {
  // 4 + 8 = 12 bytes, ready at 19: 19 + 12 + 2 = 33; then 10: 33 + 12 = 45.
  const Pipeline pipeline = three_layers({10}, kOne);
  for (const SimulationOptions& options : kBothModes) {
    const SimulationResult result = pipeline.run(options);
    CHECK(reductions(result, 0) == "R0[19,33] R1[33,45]");
    CHECK(compute(result, 0) == "F0[0,3] B0[3,23] S[45,45]");
  }
}

TEST_CASE("gradients are reduced in the last backward only") {
  // Micro-batch 1 starts at 23: its backward runs over [26, 46], 23 later than above.
  const Pipeline pipeline = three_layers({1}, kOne, 4, 2);
  const SimulationResult result = pipeline.run();
  CHECK(compute(result, 0) == "F0[0,3] B0[3,23] F1[23,26] B1[26,46] S[64,64]");
  CHECK(reductions(result, 0) == "R0[36,42] R1[42,52] R2[52,64]");
}

TEST_CASE("an optimizer that steps by bucket does so beside the next reductions") {
  // As above, R0 to 19, R1 to 29, R2 to 41; the parts take 4, 8 and 10 (at 1 ns per byte). The
  // first waits for the backward to end at 23, the others for their buckets.
  const Pipeline at_end = three_layers({1}, kOne);
  ModelProfile model = at_end.profile;
  model.optimizer.step_ns_per_parameter_byte = kOne;
  Plan plan = at_end.plan;
  CHECK(Pipeline(model, at_end.topology.description(), plan).run().iteration.ns == 41 + 22);
  plan.gradients.optimizer = OptimizerTiming::PerBucket;
  const Pipeline by_bucket(model, at_end.topology.description(), plan);
  for (const SimulationOptions& options : kBothModes) {
    const SimulationResult result = by_bucket.run(options);
    CHECK(compute(result, 0) == "F0[0,3] B0[3,23] S[23,27] S1[29,37] S2[41,51]");
    CHECK(reductions(result, 0) == "R0[13,19] R1[19,29] R2[29,41]");
    CHECK(result.iteration.ns == 51);
  }
}

TEST_CASE("a free all-reduce leaves the step to follow the last backward") {
  SimulationOptions options;
  options.free_all_reduce = true;
  const SimulationResult result = three_layers({1}, kOne).run(options);
  CHECK(compute(result, 0) == "F0[0,3] B0[3,23] S[23,23]");
  CHECK(reductions(result, 0) == "R0[13,13] R1[19,19] R2[23,23]");
}

TEST_CASE("a slowdown of 1.5 stretches the backward while a bucket is being reduced") {
  // R0 over [13, 19]. In those 6 ns layer 1 gets 4 of its 6 done; the other 2 go at full speed:
  // ready at 21. R1 over [21, 31]. Layer 0: 4 * 1.5 = 6, done at 27. R2 over [31, 43].
  const Pipeline pipeline = three_layers({1}, Factor{1'500'000'000});
  for (const SimulationOptions& options : kBothModes) {
    const SimulationResult result = pipeline.run(options);
    CHECK(reductions(result, 0) == "R0[13,19] R1[21,31] R2[31,43]");
    CHECK(compute(result, 0) == "F0[0,3] B0[3,27] S[43,43]");
  }
}

TEST_CASE("slowed computation is rounded up to a whole nanosecond") {
  // Layer 0 takes 3 now: 4.5 under R1, so it ends at 21 + 5 = 26.
  const SimulationResult result = three_layers({1}, Factor{1'500'000'000}, 3).run();
  CHECK(compute(result, 0) == "F0[0,3] B0[3,26] S[43,43]");
}

TEST_CASE("slowed twice and freed once, the work adds up") {
  // Layer 0 takes 12 now. R1 over [21, 31]: 10 ns, 6.67 of 12 done. R1 is over and bucket 2 not
  // ready, so the other 5.33 go at full speed: 31 + 6 = 37, rounded up. R2: 37 + 12 = 49.
  const SimulationResult result = three_layers({1}, Factor{1'500'000'000}, 12).run();
  CHECK(reductions(result, 0) == "R0[13,19] R1[21,31] R2[37,49]");
  CHECK(compute(result, 0) == "F0[0,3] B0[3,37] S[49,49]");
}

TEST_CASE("a recomputed last backward has its buckets later by the forward") {
  // Forward 3, recomputed: 3 + 3 + 4 = 10 the first bucket, then + 3 = 13. R0: 10 + 5 = 15.
  // R1: 15 + 5 = 20.
  const Pipeline pipeline(model_of({{.forward = 1, .backward = 3, .parameters = 5},
                                    {.forward = 2, .backward = 4, .parameters = 5}}),
                          cluster({.servers = 1, .devices = 2}),
                          PlanShape{.micro_batch_size = 2,
                                    .depths = {1},
                                    .stages = {{.layers = 2, .devices = {0, 1}, .recompute = true}},
                                    .bucket_size = {1}});
  for (const SimulationOptions& options : kBothModes) {
    const SimulationResult result = pipeline.run(options);
    CHECK(compute(result, 0) == "F0[0,3] B0[3,13] S[20,20]");
    CHECK(reductions(result, 0) == "R0[10,15] R1[15,20]");
  }
}

TEST_CASE("a bucket is ready when the largest share's backward is") {
  // 3 samples on two replicas are 2 + 1: layer 1 takes 2 * 4, layer 0 2 * 3; buckets at 4 + 8 = 12
  // and 18.
  const Pipeline pipeline(model_of({{.forward = 1, .backward = 3, .parameters = 2},
                                    {.forward = 1, .backward = 4, .parameters = 2}}),
                          cluster({.servers = 1, .devices = 2}),
                          PlanShape{.micro_batch_size = 3,
                                    .depths = {1},
                                    .stages = {{.layers = 2, .devices = {0, 1}}},
                                    .bucket_size = {1}});
  const SimulationResult result = pipeline.run();
  CHECK(compute(result, 0) == "F0[0,4] B0[4,18] S[20,20]");
  CHECK(reductions(result, 0) == "R0[12,14] R1[18,20]");
}

TEST_CASE("dealt replicas reduce when each has done its last backward, and step together") {
  // Stage 0 is done with F3 at 4; replica 0 ends B2 at 17, replica 1 B3 at 18; 6 bytes take 6 ns.
  const Pipeline pipeline(
      model_of({{.forward = 1, .backward = 1}, {.forward = 4, .backward = 4, .parameters = 6}}),
      cluster({.servers = 1, .devices = 3}),
      PlanShape{.num_micro_batches = 4,
                .depths = {4, 1},
                .stages = {{.layers = 1, .devices = {0}},
                           {.layers = 1, .devices = {1, 2}, .dealt = true}}});
  for (const SimulationOptions& options : kBothModes) {
    const SimulationResult result = pipeline.run(options);
    CHECK(compute(result, 1) == "F0[1,5] B0[5,9] F2[9,13] B2[13,17] S[24,24]");
    CHECK(compute(result, 2) == "F1[2,6] B1[6,10] F3[10,14] B3[14,18] S[24,24]");
    CHECK(reductions(result, 1) == "R0[18,24]");
    CHECK(reductions(result, 2) == "R0[18,24]");
  }
}

TEST_CASE("an all-reduce that shares nothing takes what its cost says, to the fraction of a byte") {
  // 10 bytes on three devices: each hop carries 13.33, at 1,000 ns a byte 13,333.33 ns.
  const Pipeline pipeline(
      model_of({{.forward = 1, .backward = 2, .parameters = 10}}),
      cluster({.servers = 1, .devices = 3, .inside = {{1'000'000}, {}}}),
      PlanShape{
          .micro_batch_size = 3, .depths = {1}, .stages = {{.layers = 1, .devices = {0, 1, 2}}}});
  for (const SimulationOptions& options : kBothModes) {
    CHECK(reductions(pipeline.run(options), 0) == "R0[3,13337]");
  }
}

TEST_CASE("all-reduces of two stages over one NIC share it") {
  // Stage 0 on devices 0 and 2, stage 1 on 1 and 3, a server each side; no transfers. Stage 1 is
  // done with its backward at 4 and reduces 20 bytes; stage 0 at 6, 9 bytes. Shared from 6 on: 2
  // done, 18 left; stage 0's 9 take 18 ns, until 24; stage 1 has 9 left, until 33.
  const Pipeline pipeline(
      model_of({{.forward = 1, .backward = 2, .parameters = 9},
                {.forward = 1, .backward = 2, .parameters = 20}}),
      cluster({.servers = 2, .devices = 2}),
      PlanShape{.micro_batch_size = 2,
                .depths = {1, 1},
                .stages = {{.layers = 1, .devices = {0, 2}}, {.layers = 1, .devices = {1, 3}}}});
  const SimulationResult result = pipeline.run();
  CHECK(reductions(result, 0) == "R0[6,24]");
  CHECK(reductions(result, 1) == "R0[4,33]");
  const SimulationResult apart = pipeline.run(Contention::Off);
  CHECK(reductions(apart, 0) == "R0[6,15]");
  CHECK(reductions(apart, 1) == "R0[4,24]");
}

}  // namespace
}  // namespace dapple::simulate
