// The transport of threads against what every transport must do; tests/exec has the others.

#include "../../../exec/conformance.h"

#include <catch2/catch.hpp>

#include "../../../support/job.h"

namespace dapple::exec {
namespace {

using namespace small;
using namespace conformance;

void hold(const Case& one, std::size_t count, std::int64_t iteration) {
  const Topology topology(full_mesh(count, {bytes_per_ns(1), {}}));
  ThreadNetwork network(
      topology, all_devices(topology),
      {.pacing = {},
       .timeout = std::chrono::milliseconds(one.claim == cases().back().claim ? 100 : 30'000)});
  side_by_side(count, [&](std::size_t i) {
    const auto end = network.end_of(index_at<DeviceIndex>(i));
    one.part({.number = static_cast<std::int32_t>(i),
              .count = static_cast<std::int32_t>(count),
              .iteration = iteration},
             *end);
  });
}

TEST_CASE("threads carry messages as every transport must") {
  for (const std::size_t count : {2U, 3U, 4U}) {
    for (const Case& one : cases()) {
      INFO(one.claim << ", " << count << " devices");
      REQUIRE_NOTHROW(hold(one, count, 1));
    }
    INFO(aborting_case().claim << ", " << count << " devices");
    REQUIRE_NOTHROW(hold(aborting_case(), count, 1));
  }
}

}  // namespace
}  // namespace dapple::exec
