// Timelines worked by hand of stages whose replicas are independent. Links move a byte per
// nanosecond; a micro-batch of three samples gives the first of two replicas two, the other one.

#include <catch2/catch.hpp>

#include "../../support/pipeline.h"
#include "both_modes.h"

namespace dapple::simulate {
namespace {

using namespace small;

/// Two stages of two replicas: 10 ns there and 10 back per sample, then 5 and 5, 4 bytes between.
Pipeline two_pairs(std::int64_t micro_batches, TopologyDescription description) {
  return {
      model_of({{.forward = 10, .backward = 10, .output = 4}, {.forward = 5, .backward = 5}}),
      std::move(description),
      PlanShape{.micro_batch_size = 3,
                .num_micro_batches = micro_batches,
                .depths = {micro_batches, 1},
                .stages = {{.layers = 1, .devices = {0, 1}}, {.layers = 1, .devices = {2, 3}}}}};
}

TEST_CASE("a quick pair of replicas does not wait for the slow one") {
  // Two samples: F 20, 8 ns, F 10, B 10, 8 ns, B 20; one sample: half of each.
  const Pipeline pipeline = two_pairs(2, full_mesh(4, {bytes_per_ns(1), {}}));
  for (const SimulationOptions& options : kBothModes) {
    const SimulationResult result = pipeline.run_apart(options);
    CHECK(compute(result, 0) == "F0[0,20] F1[20,40] B0[56,76] B1[76,96] S[96,96]");
    CHECK(activations(result, 0) == "A0[20,28] A1[40,48]");
    CHECK(compute(result, 2) == "F0[28,38] B0[38,48] F1[48,58] B1[58,68] S[68,68]");
    CHECK(compute(result, 1) == "F0[0,10] F1[10,20] B0[28,38] B1[38,48] S[48,48]");
    CHECK(activations(result, 1) == "A0[10,14] A1[20,24]");
    CHECK(compute(result, 3) == "F0[14,19] B0[19,24] F1[24,29] B1[29,34] S[34,34]");
    CHECK(gradients(result, 3) == "G0[24,28] G1[34,38]");
    CHECK(result.iteration.ns == 96);
    CHECK(pipeline.run(options).iteration.ns == 96);
  }
}

TEST_CASE("a port that both send through carries both parts in one piece without contention") {
  // Both pairs cross one NIC: 8 + 4 bytes. Shared, the quick one's 4 pass over [10, 14] and the
  // other's over [20, 28]. Else all 12 pass over [20, 32].
  const Pipeline pipeline = two_pairs(1, cluster({.servers = 2, .devices = 2}));
  const SimulationResult shared = pipeline.run_apart({.contention = Contention::Shared});
  CHECK(activations(shared, 1) == "A0[10,14]");
  CHECK(activations(shared, 0) == "A0[20,28]");
  CHECK(compute(shared, 3) == "F0[14,19] B0[19,24] S[24,24]");
  CHECK(compute(shared, 2) == "F0[28,38] B0[38,48] S[48,48]");
  const SimulationResult isolated = pipeline.run_apart({.contention = Contention::Off});
  CHECK(compute(isolated, 3) == "F0[32,37] B0[37,42] S[42,42]");
  CHECK(compute(isolated, 2) == "F0[32,42] B0[42,52] S[52,52]");
  // Together they are ready at 20 as well, but on the way back not before 52 either: 12 more for
  // the gradients, and the slow backward.
  CHECK(isolated.iteration.ns == 52 + 12 + 20);
  CHECK(pipeline.run(Contention::Off).iteration.ns == 52 + 12 + 20);
}

TEST_CASE(
    "a lane waits for all senders of its samples, and each sends what it made when it has it") {
  // Shares of 2 and 1 go to one device: 8 bytes at 20, 4 at 10, each over a link of its own.
  const Pipeline pipeline{
      model_of({{.forward = 10, .backward = 10, .output = 4}, {.forward = 1, .backward = 1}}),
      full_mesh(3, {bytes_per_ns(1), {}}),
      PlanShape{.micro_batch_size = 3,
                .num_micro_batches = 1,
                .depths = {1, 1},
                .stages = {{.layers = 1, .devices = {0, 1}}, {.layers = 1, .devices = {2}}}}};
  for (const SimulationOptions& options : kBothModes) {
    const SimulationResult result = pipeline.run_apart(options);
    CHECK(activations(result, 0) == "A0[20,28]");
    CHECK(activations(result, 1) == "A0[10,14]");
    CHECK(compute(result, 2) == "F0[28,31] B0[31,34] S[34,34]");
    // 8 and 4 bytes back, side by side: here at 42 and at 38.
    CHECK(gradients(result, 2) == "G0[34,42]");
    CHECK(compute(result, 0) == "F0[0,20] B0[42,62] S[62,62]");
    CHECK(compute(result, 1) == "F0[0,10] B0[38,48] S[48,48]");
  }
}

TEST_CASE("a bucket is reduced when every replica has it, and all step when all are") {
  // Backward 10 and 6 per sample, last layer first: the slow replica has its buckets at 40 + 20 and
  // 72, the quick one at 20 + 10 and 36. 7 bytes take 2 * 1/2 * 7 = 7 ns, then 9 take 9.
  const Pipeline pipeline{model_of({{.forward = 10, .backward = 6, .parameters = 9},
                                    {.forward = 10, .backward = 10, .parameters = 7}}),
                          full_mesh(2, {bytes_per_ns(1), {}}),
                          PlanShape{.micro_batch_size = 3,
                                    .num_micro_batches = 1,
                                    .depths = {1},
                                    .stages = {{.layers = 2, .devices = {0, 1}}},
                                    .bucket_size = {1}}};
  for (const SimulationOptions& options : kBothModes) {
    const SimulationResult result = pipeline.run_apart(options);
    CHECK(reductions(result, 0) == "R0[60,67] R1[72,81]");
    CHECK(reductions(result, 1) == "R0[60,67] R1[72,81]");
    CHECK(compute(result, 0) == "F0[0,40] B0[40,72] S[81,81]");
    CHECK(compute(result, 1) == "F0[0,20] B0[20,36] S[81,81]");
    CHECK(result.iteration == pipeline.run(options).iteration);
  }
}

TEST_CASE("a micro-batch that is dealt goes to every independent replica behind it") {
  // Stage 0 deals: micro-batch 1 is on its second device. Each sends 2 samples here, 1 there.
  const Pipeline pipeline{
      model_of({{.forward = 10, .backward = 10, .output = 4}, {.forward = 1, .backward = 1}}),
      full_mesh(4, {bytes_per_ns(1), {}}),
      PlanShape{.micro_batch_size = 3,
                .num_micro_batches = 2,
                .depths = {1, 1},
                .stages = {{.layers = 1, .devices = {0, 1}, .dealt = true},
                           {.layers = 1, .devices = {2, 3}}}}};
  for (const SimulationOptions& options : kBothModes) {
    const SimulationResult result = pipeline.run_apart(options);
    CHECK(compute(result, 0) == "F0[0,30] B0[50,80] S[80,80]");
    // Device 2 sends its second gradients, over another link, when the first 8 bytes have left it,
    // over [50, 58]; without contention that link is all that counts.
    const bool is_shared = options.contention == Contention::Shared;
    CHECK(compute(result, 1) ==
          (is_shared ? "F1[0,30] B1[58,88] S[88,88]" : "F1[0,30] B1[54,84] S[84,84]"));
    CHECK(activations(result, 0) == "A0[30,38]");
    CHECK(compute(result, 2) == "F0[38,40] B0[40,42] F1[42,44] B1[44,46] S[46,46]");
    CHECK(compute(result, 3) == "F0[34,35] B0[35,36] F1[36,37] B1[37,38] S[38,38]");
  }
}

TEST_CASE("every replica is a lane with its share, its device and its memory") {
  const Pipeline pipeline = two_pairs(2, full_mesh(4, {bytes_per_ns(1), {}}));
  const Timeline timeline = pipeline.run_apart().timeline;
  REQUIRE(timeline.lanes.size() == 4);
  for (std::size_t lane = 0; lane < 4; ++lane) {
    CHECK(timeline.lanes[lane].devices == std::vector<DeviceIndex>{index_at<DeviceIndex>(lane)});
    REQUIRE(timeline.lanes[lane].samples);
    CHECK(timeline.lanes[lane].samples->size() == (lane % 2 == 0 ? 2 : 1));
    CHECK(timeline.memory[lane].lane == index_at<LaneIndex>(lane));
    CHECK(timeline.memory[lane].device == index_at<DeviceIndex>(lane));
  }
}

}  // namespace
}  // namespace dapple::simulate
