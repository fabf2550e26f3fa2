// Timelines worked by hand: computation, transfers, warm-up depths. One byte per nanosecond is the
// bandwidth of every link unless a case says otherwise.

#include <catch2/catch.hpp>

#include "../../support/pipeline.h"
#include "both_modes.h"

namespace dapple::simulate {
namespace {

using namespace small;

TEST_CASE("one stage alternates forward and backward at depth 1") {
  // 3 * (2 + 3) = 15.
  const Pipeline pipeline =
      straight({{.forward = 2, .backward = 3}}, {.num_micro_batches = 3, .depths = {1}});
  for (const SimulationOptions& options : kBothModes) {
    const SimulationResult result = pipeline.run(options);
    CHECK(compute(result, 0) == "F0[0,2] B0[2,5] F1[5,7] B1[7,10] F2[10,12] B2[12,15] S[15,15]");
    CHECK(result.iteration.ns == 15);
  }
}

TEST_CASE("one stage under GPipe does all forwards first") {
  const Pipeline pipeline =
      straight({{.forward = 2, .backward = 3}}, {.num_micro_batches = 2, .gpipe = true});
  CHECK(compute(pipeline.run(), 0) == "F0[0,2] F1[2,4] B0[4,7] B1[7,10] S[10,10]");
}

TEST_CASE("two uniform stages without transfers take (M + S - 1)(F + B) under policy A") {
  // (2 + 2 - 1) * (10 + 20) = 90.
  const Pipeline pipeline =
      straight({{.forward = 10, .backward = 20}, {.forward = 10, .backward = 20}},
               {.num_micro_batches = 2, .depths = {2, 1}});
  for (const SimulationOptions& options : kBothModes) {
    const SimulationResult result = pipeline.run(options);
    CHECK(compute(result, 0) == "F0[0,10] F1[10,20] B0[40,60] B1[70,90] S[90,90]");
    CHECK(compute(result, 1) == "F0[10,20] B0[20,40] F1[40,50] B1[50,70] S[70,70]");
    CHECK(activations(result, 0) == "A0[10,10] A1[20,20]");
    CHECK(gradients(result, 1) == "G0[40,40] G1[70,70]");
    CHECK(result.iteration.ns == 90);
  }
}

TEST_CASE("three uniform stages without transfers") {
  // (3 + 3 - 1) * (1 + 2) = 15. Stage 1 holds two: F0 F1, then B0 F2 B1 B2.
  const Pipeline pipeline = straight(
      {{.forward = 1, .backward = 2}, {.forward = 1, .backward = 2}, {.forward = 1, .backward = 2}},
      {.num_micro_batches = 3, .depths = {3, 2, 1}});
  const SimulationResult result = pipeline.run();
  CHECK(compute(result, 0) == "F0[0,1] F1[1,2] F2[2,3] B0[7,9] B1[10,12] B2[13,15] S[15,15]");
  CHECK(compute(result, 1) == "F0[1,2] F1[2,3] B0[5,7] F2[7,8] B1[8,10] B2[11,13] S[13,13]");
  CHECK(compute(result, 2) == "F0[2,3] B0[3,5] F1[5,6] B1[6,8] F2[8,9] B2[9,11] S[11,11]");
}

TEST_CASE("GPipe on two stages without transfers takes (M + S - 1)(F + B)") {
  // (3 + 2 - 1) * (2 + 4) = 24.
  const Pipeline pipeline = straight({{.forward = 2, .backward = 4}, {.forward = 2, .backward = 4}},
                                     {.num_micro_batches = 3, .gpipe = true});
  const SimulationResult result = pipeline.run();
  CHECK(compute(result, 0) == "F0[0,2] F1[2,4] F2[4,6] B0[12,16] B1[16,20] B2[20,24] S[24,24]");
  CHECK(compute(result, 1) == "F0[2,4] F1[4,6] F2[6,8] B0[8,12] B1[12,16] B2[16,20] S[20,20]");
}

TEST_CASE("a transfer takes its bytes and then its latency, each way") {
  // 5 bytes take 5 ns, and 3 ns of latency: 8 ns.
  const Pipeline pipeline =
      straight({{.forward = 10, .backward = 20, .output = 5}, {.forward = 10, .backward = 20}},
               {.num_micro_batches = 2, .depths = {2, 1}}, {bytes_per_ns(1), {3}});
  for (const SimulationOptions& options : kBothModes) {
    const SimulationResult result = pipeline.run(options);
    CHECK(compute(result, 0) == "F0[0,10] F1[10,20] B0[56,76] B1[86,106] S[106,106]");
    CHECK(compute(result, 1) == "F0[18,28] B0[28,48] F1[48,58] B1[58,78] S[78,78]");
    CHECK(activations(result, 0) == "A0[10,18] A1[20,28]");
    CHECK(gradients(result, 1) == "G0[48,56] G1[78,86]");
  }
}

TEST_CASE("bytes queue on a port, latency does not") {
  // A0 occupies the port over [2, 7] and arrives 10 later; A1 follows at 7, though A0 is not there.
  const Pipeline pipeline =
      straight({{.forward = 2, .backward = 2, .output = 5}, {.forward = 2, .backward = 2}},
               {.num_micro_batches = 3, .depths = {3, 1}}, {bytes_per_ns(1), {10}});
  for (const SimulationOptions& options : kBothModes) {
    const SimulationResult result = pipeline.run(options);
    CHECK(activations(result, 0) == "A0[2,17] A1[7,22] A2[12,27]");
    CHECK(compute(result, 1) ==
          "F0[17,19] B0[19,21] F1[22,24] B1[24,26] F2[27,29] B2[29,31] S[31,31]");
    CHECK(gradients(result, 1) == "G0[21,36] G1[26,41] G2[31,46]");
    CHECK(compute(result, 0) == "F0[0,2] F1[2,4] F2[4,6] B0[36,38] B1[41,43] B2[46,48] S[48,48]");
  }
}

TEST_CASE("under policy A a moderate transfer leaves the first stage waiting") {
  // 5 ns each way: stage 0 holds two and gets the first gradient back at 40.
  const Pipeline pipeline =
      straight({{.forward = 10, .backward = 10, .output = 5}, {.forward = 10, .backward = 10}},
               {.num_micro_batches = 4, .depths = {2, 1}});
  const SimulationResult result = pipeline.run();
  CHECK(compute(result, 0) ==
        "F0[0,10] F1[10,20] B0[40,50] F2[50,60] B1[60,70] F3[70,80] B2[90,100] B3[110,120] "
        "S[120,120]");
  CHECK(compute(result, 1) ==
        "F0[15,25] B0[25,35] F1[35,45] B1[45,55] F2[65,75] B2[75,85] F3[85,95] B3[95,105] "
        "S[105,105]");
}

TEST_CASE("policy B hides a moderate transfer") {
  // The same with three in flight on stage 0: stage 1 never waits after 15, 15 + 4 * 20 = 95.
  const Pipeline pipeline =
      straight({{.forward = 10, .backward = 10, .output = 5}, {.forward = 10, .backward = 10}},
               {.num_micro_batches = 4, .depths = {3, 1}});
  const SimulationResult result = pipeline.run();
  CHECK(compute(result, 0) ==
        "F0[0,10] F1[10,20] F2[20,30] B0[40,50] F3[50,60] B1[60,70] B2[80,90] B3[100,110] "
        "S[110,110]");
  CHECK(compute(result, 1) ==
        "F0[15,25] B0[25,35] F1[35,45] B1[45,55] F2[55,65] B2[65,75] F3[75,85] B3[85,95] S[95,95]");
}

TEST_CASE("long latencies are hidden by depths beyond policy B") {
  // A byte and 20 ns each way. Four in flight: one round trip. Two: a round trip for every two.
  const std::vector<LayerFigures> stages{{.forward = 1, .backward = 1, .output = 1},
                                         {.forward = 1, .backward = 1}};
  const Link link{bytes_per_ns(1), {20}};
  const SimulationResult deep =
      straight(stages, {.num_micro_batches = 4, .depths = {4, 1}}, link).run();
  CHECK(activations(deep, 0) == "A0[1,22] A1[2,23] A2[3,24] A3[4,25]");
  CHECK(compute(deep, 1) ==
        "F0[22,23] B0[23,24] F1[24,25] B1[25,26] F2[26,27] B2[27,28] F3[28,29] B3[29,30] S[30,30]");
  CHECK(gradients(deep, 1) == "G0[24,45] G1[26,47] G2[28,49] G3[30,51]");
  CHECK(deep.iteration.ns == 52);
  const SimulationResult shallow =
      straight(stages, {.num_micro_batches = 4, .depths = {2, 1}}, link).run();
  CHECK(compute(shallow, 0) ==
        "F0[0,1] F1[1,2] B0[45,46] F2[46,47] B1[47,48] F3[48,49] B2[91,92] B3[93,94] S[94,94]");
}

TEST_CASE("equal neighbouring depths of one run everything in turn") {
  // 2 * (1 + 1 + 2 + 2) = 12.
  const Pipeline pipeline = straight({{.forward = 1, .backward = 2}, {.forward = 1, .backward = 2}},
                                     {.num_micro_batches = 2, .depths = {1, 1}});
  const SimulationResult result = pipeline.run();
  CHECK(compute(result, 0) == "F0[0,1] B0[4,6] F1[6,7] B1[10,12] S[12,12]");
  CHECK(compute(result, 1) == "F0[1,2] B0[2,4] F1[7,8] B1[8,10] S[10,10]");
}

TEST_CASE("a slow last stage sets the pace") {
  const Pipeline pipeline = straight({{.forward = 1, .backward = 2}, {.forward = 5, .backward = 7}},
                                     {.num_micro_batches = 2, .depths = {2, 1}});
  const SimulationResult result = pipeline.run();
  CHECK(compute(result, 0) == "F0[0,1] F1[1,2] B0[13,15] B1[25,27] S[27,27]");
  CHECK(compute(result, 1) == "F0[1,6] B0[6,13] F1[13,18] B1[18,25] S[25,25]");
}

TEST_CASE("a slow first stage starves the others") {
  // F 5, B 7 in front of F 1, B 2: the last stage waits for each forward. B0 is there at 8, but the
  // first stage is at F1 until 10.
  const Pipeline pipeline = straight({{.forward = 5, .backward = 7}, {.forward = 1, .backward = 2}},
                                     {.num_micro_batches = 2, .depths = {2, 1}});
  const SimulationResult result = pipeline.run();
  CHECK(compute(result, 0) == "F0[0,5] F1[5,10] B0[10,17] B1[17,24] S[24,24]");
  CHECK(compute(result, 1) == "F0[5,6] B0[6,8] F1[10,11] B1[11,13] S[13,13]");
}

TEST_CASE("a recomputing stage runs its forward again in each backward") {
  // Stage 0: backward 5 + 3 = 8.
  const Pipeline pipeline(model_of({{.forward = 3, .backward = 5}, {.forward = 3, .backward = 5}}),
                          full_mesh(2, {bytes_per_ns(1), {}}),
                          PlanShape{.num_micro_batches = 2,
                                    .depths = {2, 1},
                                    .stages = {{.layers = 1, .devices = {0}, .recompute = true},
                                               {.layers = 1, .devices = {1}}}});
  const SimulationResult result = pipeline.run();
  CHECK(compute(result, 0) == "F0[0,3] F1[3,6] B0[11,19] B1[19,27] S[27,27]");
  CHECK(compute(result, 1) == "F0[3,6] B0[6,11] F1[11,14] B1[14,19] S[19,19]");
}

TEST_CASE("the optimizer step follows the last backward, rounded up") {
  // 7 bytes at half a nanosecond each are 3.5 ns, so 4.
  ModelProfile model = model_of({{.forward = 2, .backward = 3, .parameters = 7}});
  model.optimizer.step_ns_per_parameter_byte = Factor{500'000'000};
  const Pipeline pipeline(model, full_mesh(1, {bytes_per_ns(1), {}}),
                          PlanShape{.depths = {1}, .stages = {{.layers = 1, .devices = {0}}}});
  const SimulationResult result = pipeline.run();
  CHECK(compute(result, 0) == "F0[0,2] B0[2,5] S[5,9]");
  CHECK(result.iteration.ns == 9);
}

TEST_CASE("the iteration ends with the last optimizer step of any stage") {
  // Stage 1 is done at 6 and steps for 20; stage 0 is done at 8.
  ModelProfile model = model_of({{.forward = 2, .backward = 2, .parameters = 1},
                                 {.forward = 2, .backward = 2, .parameters = 20}});
  model.optimizer.step_ns_per_parameter_byte = kOne;
  const Pipeline pipeline(
      model, full_mesh(2, {bytes_per_ns(1), {}}),
      PlanShape{.depths = {1, 1},
                .stages = {{.layers = 1, .devices = {0}}, {.layers = 1, .devices = {1}}}});
  const SimulationResult result = pipeline.run();
  CHECK(compute(result, 0) == "F0[0,2] B0[6,8] S[8,9]");
  CHECK(compute(result, 1) == "F0[2,4] B0[4,6] S[6,26]");
  CHECK(result.iteration.ns == 26);
}

TEST_CASE("links keep fractions of a nanosecond from transfer to transfer") {
  // 10 bytes at 3 bytes per ns are 3413.33 ticks, so 3414. From 1 ns (1,024 ticks) on the link is
  // free again at 4,438, 7,852 and 11,266 ticks: 4.33, 7.67 and 11.002 ns, each arrival rounded up.
  const Pipeline pipeline =
      straight({{.forward = 1, .backward = 1, .output = 10}, {.forward = 1, .backward = 1}},
               {.num_micro_batches = 3, .depths = {3, 1}}, {bytes_per_ns(3), {}});
  for (const SimulationOptions& options : kBothModes) {
    const SimulationResult result = pipeline.run(options);
    // F1 is ready at 2 and F2 at 3, while the link is busy; a start is rounded up like an end.
    CHECK(activations(result, 0) == "A0[1,5] A1[5,8] A2[8,12]");
    CHECK(compute(result, 1) == "F0[5,6] B0[6,7] F1[8,9] B1[9,10] F2[12,13] B2[13,14] S[14,14]");
  }
}

TEST_CASE("a path across servers has the latency of its NICs and of the network") {
  // NICs of 2 ns and a network of 1 ns: 2 + 1 + 2 = 5, and 4 bytes: 9 ns each way.
  TopologyDescription description =
      cluster({.servers = 2, .devices = 1, .nics = {Link{bytes_per_ns(1), {2}}}});
  description.network->latency = {1};
  const Pipeline pipeline(
      model_of({{.forward = 3, .backward = 3, .output = 4}, {.forward = 3, .backward = 3}}),
      description,
      PlanShape{.depths = {1, 1},
                .stages = {{.layers = 1, .devices = {0}}, {.layers = 1, .devices = {1}}}});
  for (const SimulationOptions& options : kBothModes) {
    const SimulationResult result = pipeline.run(options);
    CHECK(activations(result, 0) == "A0[3,12]");
    CHECK(compute(result, 1) == "F0[12,15] B0[15,18] S[18,18]");
    CHECK(gradients(result, 1) == "G0[18,27]");
    CHECK(compute(result, 0) == "F0[0,3] B0[27,30] S[30,30]");
  }
}

TEST_CASE("a stage with uneven shares runs at the pace of its largest") {
  // 5 samples on two replicas are 3 + 2: F = 3 * 2, B = 3 * 4.
  const Pipeline pipeline(
      model_of({{.forward = 2, .backward = 4}, {.forward = 1, .backward = 1}}),
      full_mesh(3, {bytes_per_ns(1), {}}),
      PlanShape{.micro_batch_size = 5,
                .depths = {1, 1},
                .stages = {{.layers = 1, .devices = {0, 1}}, {.layers = 1, .devices = {2}}}});
  const SimulationResult result = pipeline.run();
  CHECK(compute(result, 0) == "F0[0,6] B0[16,28] S[28,28]");
  CHECK(compute(result, 1) == "F0[6,11] B0[11,16] S[16,16]");
}

TEST_CASE("shares 2:2:2 to 3:3 take as long as the fullest port") {
  // Each receiver takes in 3 samples of 10 bytes, 20 from one sender and 10 from the middle one.
  // Contended: 20 and 10 start at half rate each, the 10 are over after 20 ns, the rest after 30.
  const Pipeline pipeline(
      model_of({{.forward = 1, .backward = 2, .output = 10}, {.forward = 1, .backward = 2}}),
      cluster({.servers = 1, .devices = 5}),
      PlanShape{.micro_batch_size = 6,
                .depths = {1, 1},
                .stages = {{.layers = 1, .devices = {0, 1, 2}}, {.layers = 1, .devices = {3, 4}}}});
  for (const SimulationOptions& options : kBothModes) {
    const SimulationResult result = pipeline.run(options);
    CHECK(activations(result, 0) == "A0[2,32]");
    CHECK(compute(result, 1) == "F0[32,35] B0[35,41] S[41,41]");
    CHECK(gradients(result, 1) == "G0[41,71]");
    CHECK(compute(result, 0) == "F0[0,2] B0[71,75] S[75,75]");
  }
}

TEST_CASE("two NICs carry two pairs side by side, one carries them together") {
  // 10 bytes a pair: 10 ns over a NIC each, 20 ns over one for both.
  const ModelProfile model =
      model_of({{.forward = 1, .backward = 1, .output = 10}, {.forward = 1, .backward = 1}});
  const PlanShape shape{
      .micro_batch_size = 2,
      .depths = {1, 1},
      .stages = {{.layers = 1, .devices = {0, 1}}, {.layers = 1, .devices = {2, 3}}}};
  const Link nic{bytes_per_ns(1), {}};
  const Pipeline two(model, cluster({.servers = 2, .devices = 2, .nics = {nic, nic}}), shape);
  const Pipeline one(model, cluster({.servers = 2, .devices = 2, .nics = {nic}}), shape);
  for (const SimulationOptions& options : kBothModes) {
    CHECK(activations(two.run(options), 0) == "A0[1,11]");
    CHECK(compute(two.run(options), 0) == "F0[0,1] B0[23,24] S[24,24]");
    CHECK(activations(one.run(options), 0) == "A0[1,21]");
    CHECK(compute(one.run(options), 0) == "F0[0,1] B0[43,44] S[44,44]");
  }
}

TEST_CASE("pairs without a direct link share the host path, beside a pair that has one") {
  // 2:1:1 samples of 10 bytes leave device 0: one direct at 2 bytes per ns (10 for two samples),
  // two over its host path, 20 ns at 1 byte per ns.
  const Pipeline pipeline(
      model_of({{.forward = 1, .backward = 1, .output = 10}, {.forward = 1, .backward = 1}}),
      mesh({{0, 1, 0, 0}, {1, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}}, {bytes_per_ns(2), {}},
           {bytes_per_ns(1), {4}}),
      PlanShape{.micro_batch_size = 4,
                .depths = {1, 1},
                .stages = {{.layers = 1, .devices = {0}}, {.layers = 1, .devices = {1, 2, 3}}}});
  for (const SimulationOptions& options : kBothModes) {
    const SimulationResult result = pipeline.run(options);
    // 4 ns of latency on the host path; the direct link is done after 10.
    CHECK(activations(result, 0) == "A0[4,28]");
    CHECK(compute(result, 1) == "F0[28,30] B0[30,32] S[32,32]");
    CHECK(gradients(result, 1) == "G0[32,56]");
  }
}

TEST_CASE("dealt micro-batches go to the replicas in turn") {
  const Pipeline pipeline(model_of({{.forward = 1, .backward = 1}, {.forward = 4, .backward = 4}}),
                          full_mesh(3, {bytes_per_ns(1), {}}),
                          PlanShape{.num_micro_batches = 4,
                                    .depths = {4, 1},
                                    .stages = {{.layers = 1, .devices = {0}},
                                               {.layers = 1, .devices = {1, 2}, .dealt = true}}});
  for (const SimulationOptions& options : kBothModes) {
    const SimulationResult result = pipeline.run(options);
    CHECK(compute(result, 0) ==
          "F0[0,1] F1[1,2] F2[2,3] F3[3,4] B0[9,10] B1[10,11] B2[17,18] B3[18,19] S[19,19]");
    CHECK(compute(result, 1) == "F0[1,5] B0[5,9] F2[9,13] B2[13,17] S[17,17]");
    CHECK(compute(result, 2) == "F1[2,6] B1[6,10] F3[10,14] B3[14,18] S[18,18]");
  }
}

TEST_CASE("the last micro-batch dealt to a replica may be an early one") {
  // Three micro-batches on two replicas: replica 1 has micro-batch 1 alone and is done at 6.
  const Pipeline pipeline(
      model_of({{.forward = 2, .backward = 2, .output = 3}, {.forward = 1, .backward = 1}}),
      full_mesh(3, {bytes_per_ns(1), {}}),
      PlanShape{.num_micro_batches = 3,
                .depths = {3, 1},
                .stages = {{.layers = 1, .devices = {0}},
                           {.layers = 1, .devices = {1, 2}, .dealt = true}}});
  const SimulationResult result = pipeline.run();
  // F0 leaves at 2 for replica 0, F1 at 4 for replica 1, though A0 is on its way until 5: each link
  // is its own, but the sender's stream is one after another under contention.
  CHECK(activations(result, 0) == "A0[2,5] A1[5,8] A2[8,11]");
  CHECK(compute(result, 1) == "F0[5,6] B0[6,7] F2[11,12] B2[12,13] S[13,13]");
  CHECK(compute(result, 2) == "F1[8,9] B1[9,10] S[10,10]");
  // Without contention every port serves its own transfers: the links to the two are two ports.
  const SimulationResult apart = pipeline.run(Contention::Off);
  CHECK(activations(apart, 0) == "A0[2,5] A1[4,7] A2[6,9]");
  CHECK(compute(apart, 2) == "F1[7,8] B1[8,9] S[9,9]");
}

TEST_CASE("of two dealt replicas that are ready at once the first is served first") {
  // Both forwards end at 2. Each sender's own port is free, so both sends start; the receiver's
  // port takes A0 in by 7 and A1 by 12. Contended, each gets half of it.
  const Pipeline pipeline(
      model_of({{.forward = 2, .backward = 2, .output = 5}, {.forward = 1, .backward = 1}}),
      cluster({.servers = 1, .devices = 3}),
      PlanShape{.num_micro_batches = 2,
                .depths = {1, 1},
                .stages = {{.layers = 1, .devices = {0, 1}, .dealt = true},
                           {.layers = 1, .devices = {2}}}});
  const SimulationResult off = pipeline.run(Contention::Off);
  CHECK(activations(off, 0) == "A0[2,7]");
  CHECK(activations(off, 1) == "A1[2,12]");
  CHECK(compute(off, 2) == "F0[7,8] B0[8,9] F1[12,13] B1[13,14] S[14,14]");
  const SimulationResult shared = pipeline.run(Contention::Shared);
  CHECK(activations(shared, 0) == "A0[2,12]");
  CHECK(activations(shared, 1) == "A1[2,12]");
}

TEST_CASE("free transfers take no time, and leave the rest as it is") {
  const Pipeline pipeline =
      straight({{.forward = 10, .backward = 20, .output = 5}, {.forward = 10, .backward = 20}},
               {.num_micro_batches = 2, .depths = {2, 1}}, {bytes_per_ns(1), {3}});
  for (SimulationOptions options : kBothModes) {
    options.free_transfers = true;
    const SimulationResult result = pipeline.run(options);
    // (2 + 2 - 1) * (10 + 20) = 90.
    CHECK(result.iteration.ns == 90);
    CHECK(compute(result, 0) == "F0[0,10] F1[10,20] B0[40,60] B1[70,90] S[90,90]");
    CHECK(activations(result, 0) == "A0[10,10] A1[20,20]");
  }
}

TEST_CASE("without a record only the end is told") {
  const Pipeline pipeline =
      straight({{.forward = 10, .backward = 20, .output = 5}, {.forward = 10, .backward = 20}},
               {.num_micro_batches = 2, .depths = {2, 1}}, {bytes_per_ns(1), {3}});
  for (SimulationOptions options : kBothModes) {
    const SimulationResult recorded = pipeline.run(options);
    options.record = false;
    const SimulationResult result = pipeline.run(options);
    CHECK(result.iteration.ns == 106);
    CHECK(result.events == recorded.events);
    CHECK(result.timeline.actions.empty());
    CHECK(result.timeline.lanes.empty());
    CHECK(result.timeline.memory.empty());
  }
}

TEST_CASE("the timeline stands by start, then lane, then stream") {
  const Pipeline pipeline = straight({{.forward = 1, .backward = 2}, {.forward = 1, .backward = 2}},
                                     {.num_micro_batches = 2, .depths = {2, 1}});
  std::string text;
  for (const TimedAction& timed : pipeline.run().timeline.actions) {
    text += to_text(timed.action) + ' ';
  }
  CHECK(text == "0F0 0F1 0SEND_F0 1F0 0SEND_F1 1B0 0B0 1F1 1SEND_B0 1B1 0B1 1STEP 1SEND_B1 0STEP ");
}

TEST_CASE("a schedule that deadlocks is our own mistake") {
  Pipeline pipeline = straight({{.forward = 1, .backward = 1}, {.forward = 1, .backward = 1}},
                               {.num_micro_batches = 2, .depths = {2, 2}});
  // Stage 0 now waits for the gradient of micro-batch 0 before it starts micro-batch 1, while stage
  // 1 wants both forwards first.
  pipeline.plan.warmup_depths = {1, 2};
  pipeline.schedule = generate(pipeline.plan);
  CHECK_THROWS_AS(pipeline.run(), Bug);
  CHECK_THROWS_AS(pipeline.run(Contention::Off), Bug);
}

}  // namespace
}  // namespace dapple::simulate
