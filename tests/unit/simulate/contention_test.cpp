// Timelines worked by hand in which transfers and all-reduces share ports, max-min fair. Every port
// carries one byte per nanosecond.

#include <catch2/catch.hpp>

#include "../../support/pipeline.h"

namespace dapple::simulate {
namespace {

using namespace small;

/// Stages 0 and 2 on the first server, 1 and 3 on the second: the boundaries behind stages 0 and 2
/// run over the same NICs in the same direction.
Pipeline zigzag() {
  const LayerFigures sends{.forward = 4, .backward = 4, .output = 10};
  const LayerFigures silent{.forward = 4, .backward = 4};
  return {model_of({sends, silent, sends, silent}), cluster({.servers = 2, .devices = 2}),
          PlanShape{.num_micro_batches = 2,
                    .stages = {{.layers = 1, .devices = {0}},
                               {.layers = 1, .devices = {2}},
                               {.layers = 1, .devices = {1}},
                               {.layers = 1, .devices = {3}}},
                    .gpipe = true}};
}

TEST_CASE("two boundaries over one NIC each get half of it while both send") {
  // Stage 0 sends A1 over [14, ...); stage 2 joins at 22, when 2 bytes are left: they take 4 ns. By
  // 26 stage 2 has sent 2 of its 10, and goes on alone for 8. Backwards alike: stage 3 sends G1
  // from 62, stage 1 joins at 70.
  const SimulationResult result = zigzag().run();
  CHECK(activations(result, 0) == "A0[4,14] A1[14,26]");
  CHECK(compute(result, 1) == "F0[14,18] F1[26,30] B0[66,70] B1[78,82] S[82,82]");
  CHECK(activations(result, 1) == "A0[18,18] A1[30,30]");
  CHECK(compute(result, 2) == "F0[18,22] F1[30,34] B0[62,66] B1[74,78] S[78,78]");
  CHECK(activations(result, 2) == "A0[22,34] A1[34,44]");
  CHECK(compute(result, 3) == "F0[34,38] F1[44,48] B0[48,52] B1[52,56] S[56,56]");
  CHECK(gradients(result, 3) == "G0[52,62] G1[62,74]");
  CHECK(gradients(result, 1) == "G0[70,82] G1[82,92]");
  CHECK(compute(result, 0) == "F0[0,4] F1[4,8] B0[82,86] B1[92,96] S[96,96]");
}

TEST_CASE("without contention the two boundaries pass each other") {
  const SimulationResult result = zigzag().run(Contention::Off);
  CHECK(activations(result, 0) == "A0[4,14] A1[14,24]");
  CHECK(activations(result, 2) == "A0[22,32] A1[32,42]");
  CHECK(gradients(result, 3) == "G0[50,60] G1[60,70]");
  CHECK(gradients(result, 1) == "G0[68,78] G1[78,88]");
  CHECK(compute(result, 0) == "F0[0,4] F1[4,8] B0[78,82] B1[88,92] S[92,92]");
}

TEST_CASE("transfers of neighbouring boundaries share a device's host path") {
  // All pairs over the host path. From 24 on A2 (7 bytes left) and stage 2's G0 (10) enter device
  // 1: A2 is there at 24 + 14 = 38, G0 at 38 + 3 = 41. From 43 on stage 1's G0 (9 left) and A2 (10)
  // leave device 1: G0 is over at 43 + 18 = 61; A2, with 1 left, meets G1 there: over at 63, and
  // G1, with 9 left, at 72.
  const LayerFigures sends{.forward = 1, .backward = 1, .output = 10};
  const Link host{bytes_per_ns(1), {}};
  const Pipeline pipeline(model_of({sends, sends, {.forward = 1, .backward = 1}}),
                          mesh({{0, 0, 0}, {0, 0, 0}, {0, 0, 0}}, host, host),
                          PlanShape{.num_micro_batches = 3,
                                    .depths = {3, 2, 1},
                                    .stages = {{.layers = 1, .devices = {0}},
                                               {.layers = 1, .devices = {1}},
                                               {.layers = 1, .devices = {2}}}});
  const SimulationResult result = pipeline.run();
  CHECK(compute(result, 0) == "F0[0,1] F1[1,2] F2[2,3] B0[61,62] B1[72,73] B2[86,87] S[87,87]");
  CHECK(activations(result, 0) == "A0[1,11] A1[11,21] A2[21,38]");
  CHECK(compute(result, 1) ==
        "F0[11,12] F1[21,22] B0[41,42] F2[42,43] B1[51,52] B2[75,76] S[76,76]");
  CHECK(activations(result, 1) == "A0[12,22] A1[22,32] A2[43,63]");
  CHECK(gradients(result, 1) == "G0[42,61] G1[61,72] G2[76,86]");
  CHECK(compute(result, 2) ==
        "F0[22,23] B0[23,24] F1[32,33] B1[33,34] F2[63,64] B2[64,65] S[65,65]");
  CHECK(gradients(result, 2) == "G0[24,41] G1[41,51] G2[65,75]");
}

/// Stage 0 on the first server, stage 1 on one device of each: its gradients cross the NICs beside
/// its own all-reduce of 20 bytes.
Pipeline reduction_beside_gradients() {
  return {model_of({{.forward = 1, .backward = 2, .output = 10},
                    {.forward = 1, .backward = 2, .parameters = 20}}),
          cluster({.servers = 2, .devices = 2}),
          PlanShape{.micro_batch_size = 2,
                    .depths = {1, 1},
                    .stages = {{.layers = 1, .devices = {0}}, {.layers = 1, .devices = {1, 3}}}}};
}

TEST_CASE("an all-reduce and a transfer over one NIC each get half of it") {
  // Both start at 15. The gradient's 10 bytes take 20 ns at half rate; by then 10 of the 20 bytes
  // that each hop of the ring carries are through, and the rest goes alone: 35 + 10.
  const SimulationResult result = reduction_beside_gradients().run();
  CHECK(activations(result, 0) == "A0[2,12]");
  CHECK(compute(result, 1) == "F0[12,13] B0[13,15] S[45,45]");
  CHECK(gradients(result, 1) == "G0[15,35]");
  CHECK(reductions(result, 1) == "R0[15,45]");
  CHECK(compute(result, 0) == "F0[0,2] B0[35,39] S[39,39]");
  CHECK(result.iteration.ns == 45);
}

TEST_CASE("without contention the all-reduce and the transfer pass each other") {
  const SimulationResult result = reduction_beside_gradients().run(Contention::Off);
  CHECK(gradients(result, 1) == "G0[15,25]");
  CHECK(reductions(result, 1) == "R0[15,35]");
  CHECK(result.iteration.ns == 35);
}

TEST_CASE("a free all-reduce leaves the NIC to the transfer") {
  SimulationOptions options;
  options.free_all_reduce = true;
  const SimulationResult result = reduction_beside_gradients().run(options);
  CHECK(gradients(result, 1) == "G0[15,25]");
  CHECK(reductions(result, 1) == "R0[15,15]");
  CHECK(result.iteration.ns == 29);
}

TEST_CASE("free transfers leave the NIC to the all-reduce") {
  SimulationOptions options;
  options.free_transfers = true;
  const SimulationResult result = reduction_beside_gradients().run(options);
  // F0 [2,3], B0 [3,5] on stage 1, then 20 bytes alone.
  CHECK(reductions(result, 1) == "R0[5,25]");
  CHECK(result.iteration.ns == 25);
}

TEST_CASE("a flow takes what a rival with a narrower port must leave") {
  // Device 0 sends a sample of 12 bytes to device 1 of its server, over the switch, and one to each
  // of two servers with NICs of 1 and 3 bytes per ns, out of its own NIC of 3. Max-min: the first
  // takes 1, the second 2. The second is over after 6 ns, the first, still at 1, after 12.
  ServerGroup fast;
  fast.name = "fast";
  fast.device = "gpu";
  fast.count = 2;
  fast.nics = {{.source = "", .link = {bytes_per_ns(3), {}}, .devices = {}}};
  ServerGroup slow = fast;
  slow.name = "slow";
  slow.count = 1;
  slow.nics[0].link.bandwidth = bytes_per_ns(1);
  // Devices: 0 and 1 fast, 2 slow. The gradients come back through the same ports.
  const Pipeline pipeline(
      model_of({{.forward = 1, .backward = 1, .output = 12}, {.forward = 1, .backward = 1}}),
      description_of({fast, slow}),
      PlanShape{.micro_batch_size = 2,
                .num_micro_batches = 2,
                .stages = {{.layers = 1, .devices = {0}}, {.layers = 1, .devices = {1, 2}}},
                .gpipe = true});
  const SimulationResult result = pipeline.run();
  // A1 is ready at 4, but the device sends to all receivers of A0 before it starts A1.
  CHECK(activations(result, 0) == "A0[2,14] A1[14,26]");
  CHECK(compute(result, 1) == "F0[14,15] F1[26,27] B0[27,28] B1[28,29] S[29,29]");
  // Each receiver has a stream of its own: device 1 sends 12 bytes at 2 per ns from 28, is done at
  // 34 and starts G1 then; device 2 at 1 per ns until 40 and 52.
  CHECK(gradients(result, 1) == "G0[28,40] G1[34,52]");
}

TEST_CASE("two boundaries over one rack's uplink each get half of it while both send") {
  // As over one NIC, above: stages 0 and 2 in the first rack, 1 and 3 in the other, on servers of
  // their own.
  TopologyDescription description = cluster({.servers = 4, .nics = {Link{bytes_per_ns(5), {}}}});
  UplinkGroup rack;
  rack.count = 2;
  rack.members = 2;
  rack.bandwidth = bytes_per_ns(1);
  description.racks = {rack};
  const LayerFigures sends{.forward = 4, .backward = 4, .output = 10};
  const LayerFigures silent{.forward = 4, .backward = 4};
  const Pipeline pipeline(model_of({sends, silent, sends, silent}), description,
                          PlanShape{.num_micro_batches = 2,
                                    .stages = {{.layers = 1, .devices = {0}},
                                               {.layers = 1, .devices = {2}},
                                               {.layers = 1, .devices = {1}},
                                               {.layers = 1, .devices = {3}}},
                                    .gpipe = true});
  const SimulationResult result = pipeline.run();
  CHECK(activations(result, 0) == "A0[4,14] A1[14,26]");
  CHECK(activations(result, 2) == "A0[22,34] A1[34,44]");
  CHECK(gradients(result, 3) == "G0[52,62] G1[62,74]");
  CHECK(gradients(result, 1) == "G0[70,82] G1[82,92]");
}

TEST_CASE("between its rounds an all-reduce leaves its links to a transfer") {
  // Hops between servers wait 3 + 3. Both start at 41: the gradient of 30 bytes and the first of
  // two rounds, 10 bytes, at half rate until 61. The gradient, with 20 left, goes alone until 67:
  // 14 left. The second round goes at half rate until 87, when 4 of the gradient are left: through
  // at 91, there at 97. The all-reduce is over at 87 + 6.
  const Pipeline pipeline(
      model_of({{.forward = 1, .backward = 2, .output = 30},
                {.forward = 1, .backward = 2, .parameters = 20}}),
      cluster({.servers = 2, .devices = 2, .nics = {Link{bytes_per_ns(1), {3}}}}),
      PlanShape{.micro_batch_size = 2,
                .depths = {1, 1},
                .stages = {{.layers = 1, .devices = {0}}, {.layers = 1, .devices = {1, 3}}}});
  const SimulationResult result = pipeline.run();
  CHECK(activations(result, 0) == "A0[2,38]");
  CHECK(compute(result, 1) == "F0[38,39] B0[39,41] S[93,93]");
  CHECK(gradients(result, 1) == "G0[41,97]");
  CHECK(reductions(result, 1) == "R0[41,93]");
  // Alone: two rounds of 10 + 6.
  CHECK(reductions(pipeline.run(Contention::Off), 1) == "R0[41,73]");
}

}  // namespace
}  // namespace dapple::simulate
