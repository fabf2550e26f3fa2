// Schedules of several families, while every call of the transport takes a random time: no order
// of things, as long as a schedule allows it, ends in a deadlock or in other results.

#include <catch2/catch.hpp>

#include "../support/delaying_transport.h"
#include "../support/family_pipelines.h"
#include "../support/suspicious_backend.h"

namespace dapple {
namespace {

using namespace small;

/// All devices with delays; the sums that each has made.
std::vector<Reduced> run_delayed(const Pipeline& pipeline, std::uint64_t seed) {
  const std::vector<DeviceSchedule> schedules = device_schedules(pipeline.schedule, pipeline.costs);
  exec::ThreadNetwork network(pipeline.topology, devices_of(schedules), {});
  std::vector<Reduced> sums(schedules.size());
  side_by_side(schedules.size(), [&](std::size_t i) {
    const auto end = network.end_of(schedules[i].device);
    DelayingTransport delayed(*end, seed + i, 300);
    delayed.barrier();
    sums[i] = run_suspiciously(pipeline, schedules[i], delayed, 0);
    delayed.barrier();
  });
  return sums;
}

TEST_CASE("delays in every call of the transport change no result", "[delays]") {
  Dice dice(3401);
  for (int round = 0; round < scaled(40); ++round) {
    const Pipeline pipeline = random_family_pipeline(dice);
    INFO("instance " << round << ": " << text_of(pipeline));
    const std::uint64_t seed = 1'000 * static_cast<std::uint64_t>(round);
    REQUIRE(run_delayed(pipeline, seed) == run_delayed(pipeline, seed + 500));
  }
}

}  // namespace
}  // namespace dapple
