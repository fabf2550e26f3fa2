// NCCL against what every transport must do, by messages that lie on GPUs.

#include "../exec/conformance.h"

#include <catch2/catch.hpp>

#include "../support/job.h"
#include "gpu_ends.h"

namespace dapple {
namespace {

using namespace small;
using namespace conformance;

void hold(const Case& one, std::size_t count) {
  const Topology topology(full_mesh(count, {bytes_per_ns(1), {}}));
  const std::vector<DeviceIndex> devices = all_devices(topology);
  const std::chrono::milliseconds timeout(one.claim == cases().back().claim ? 300 : 30'000);
  exec::ThreadNetwork network(topology, devices, {.pacing = {}, .timeout = timeout});
  side_by_side(count, [&](std::size_t i) {
    const auto below = network.end_of(devices[i]);
    const auto end = nccl_end(*below, topology, devices[i], devices, {}, timeout);
    ByWayOfGpu on_gpu(*end, gpu_of(devices[i]));
    one.part({.number = static_cast<std::int32_t>(i),
              .count = static_cast<std::int32_t>(count),
              .iteration = 1},
             on_gpu);
  });
}

TEST_CASE("NCCL carries messages as every transport must") {
  for (const std::size_t count : {2U, 3U, 4U}) {
    if (!has_gpus_for(count)) continue;
    for (const Case& one : cases()) {
      INFO(one.claim << ", " << count << " devices");
      REQUIRE_NOTHROW(hold(one, count));
    }
    INFO(aborting_case().claim << ", " << count << " devices");
    REQUIRE_NOTHROW(hold(aborting_case(), count));
  }
}

}  // namespace
}  // namespace dapple
