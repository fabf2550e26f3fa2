// Worked examples in which a bound and the simulated time are known by hand, and equal or apart by
// the rounding of shares alone.

#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "../support/pipeline.h"
#include "dapple/search/bounds/bound.h"

namespace dapple {
namespace {

using namespace small;

Duration bound_of(const Pipeline& pipeline) {
  return search::lower_bound(pipeline.plan, pipeline.costs, pipeline.topology);
}

TEST_CASE("uniform stages under policy A take (M + S - 1)(F + B), and that is their bound") {
  for (std::int64_t stages = 2; stages <= 5; ++stages) {
    PlanShape shape{.micro_batch_size = 1, .num_micro_batches = 7};
    for (std::int64_t s = 0; s < stages; ++s) shape.depths.push_back(stages - s);
    const Pipeline pipeline = straight(
        std::vector<LayerFigures>(static_cast<std::size_t>(stages), {.forward = 3, .backward = 5}),
        shape);
    CHECK(bound_of(pipeline) == (7 + stages - 1) * Duration{8});
    CHECK(pipeline.run().iteration == (7 + stages - 1) * Duration{8});
  }
}

TEST_CASE("six micro-batches on three stages of 2 + 3 take 8 * 5") {
  const Pipeline pipeline = straight(
      {{.forward = 2, .backward = 3}, {.forward = 2, .backward = 3}, {.forward = 2, .backward = 3}},
      {.num_micro_batches = 6, .depths = {3, 2, 1}});
  CHECK(pipeline.run().iteration == Duration{40});
}

TEST_CASE("a first stage of depth 1 waits for each round trip") {
  // A trip of one micro-batch is 1 + 4 + 1 + 1 + 4 + 1 = 12; there are four.
  const Pipeline pipeline =
      straight({{.forward = 1, .backward = 1, .output = 4}, {.forward = 1, .backward = 1}},
               {.num_micro_batches = 4, .depths = {1, 1}});
  CHECK(pipeline.run().iteration == Duration{48});
}

TEST_CASE("the last gradients and the all-reduce of their sender share a port") {
  // Forwards of two samples end at 20 and arrive 200 later. The replicas work 10 + 10 on a sample
  // each, until 240; then each sends a gradient of 100 and reduces 1000 over 2 devices, which are
  // 2 * 1/2 * 1000 through its port: 1100 together, until 1340; alone, the all-reduce ends at 1240.
  // The bound leaves 2 for the rounding of shares.
  const Pipeline pipeline(
      model_of({{.forward = 10, .backward = 10, .output = 100},
                {.forward = 10, .backward = 10, .parameters = 1000}}),
      cluster({.servers = 3}),
      {.micro_batch_size = 2, .depths = {1, 1}, .stages = {{.devices = {0}}, {.devices = {1, 2}}}});
  CHECK(pipeline.run(Contention::Off).iteration == Duration{1240});
  CHECK(bound_of(pipeline) == Duration{1240});
  CHECK(pipeline.run(Contention::Shared).iteration == Duration{1340});
  CHECK(search::lower_bound_with_contention(pipeline.plan, pipeline.costs, pipeline.topology) ==
        Duration{1338});
}

}  // namespace
}  // namespace dapple
