// One rank of a job that checks what every transport must do, over MPI or, as here, over TCP:
//
//   run_tcp 3 rank_conformance cases       what every transport must do
//   run_tcp 3 rank_conformance abort       the one thing after which a job is over
//   run_tcp 3 rank_conformance corrupt     a message that changes on its way is named
//   run_tcp 3 rank_conformance delays      schedules, with random delays in every call
//
// Exit code: 0 all claims hold, and for abort, whose job cannot end as others do, kHeld.

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "../support/delaying_transport.h"
#include "../support/family_pipelines.h"
#include "../support/random_problem.h"
#include "../support/suspicious_backend.h"
#include "conformance.h"
#include "dapple/exec/ranks/mpi/mpi_job.h"
#include "dapple/exec/ranks/tcp/tcp_job.h"
#include "dapple/exec_app/request/launch.h"

namespace dapple {
namespace {

using namespace small;
using namespace conformance;

constexpr int kHeld = 42;
constexpr std::chrono::seconds kTimeout(20);

Place place_of(const exec::RankJob& job, std::int64_t iteration) {
  return {.number = job.rank(), .count = job.size(), .iteration = iteration};
}

/// Links that are paced, but too fast for that to be seen: notices go before and after messages.
void hold_cases(exec::RankJob& job, const Topology& topology) {
  const auto end = job.join(topology, all_devices(topology),
                            {.pacing = exec::Pacing{}, .timeout = std::chrono::seconds(4)});
  std::int64_t iteration = 0;
  for (const Case& one : cases()) {
    if (job.rank() == 0) std::printf("%s\n", one.claim.c_str());
    one.part(place_of(job, iteration++), *end);
    end->barrier();
  }
  job.finish();
}

[[noreturn]] void hold_abort(exec::RankJob& job, const Topology& topology) {
  const auto end = job.join(topology, all_devices(topology), {.timeout = kTimeout});
  int code = kHeld;
  try {
    aborting_case().part(place_of(job, 0), *end);
    // The last has failed, and so says why.
    const bool is_first = job.is_first_to_fail();
    require(is_first == (job.rank() == job.size() - 1), "another one was the first to fail");
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "rank %d: %s\n", job.rank(), failure.what());
    code = 1;
  }
  std::fflush(nullptr);
  std::_Exit(code);
}

void hold_corrupt(exec::RankJob& job, const Topology& topology) {
  const auto spoil = [](const exec::MessageKey& key, std::span<std::byte> bytes) {
    if (key.action.index == 2) bytes[bytes.size() / 2] ^= std::byte{4};
  };
  const auto end =
      job.join(topology, all_devices(topology), {.timeout = kTimeout, .on_arrival = spoil});
  const Place place = place_of(job, 0);
  std::string told;
  for (std::int32_t number = 0; number < 4; ++number) {
    exec::MessageKey key{.iteration = 0,
                         .action = {ActionKind::SendGradient, number, {5}},
                         .step = 0,
                         .from = {place.number},
                         .to = {place.next()}};
    end->send(key, exec::HostBytes(1'001, std::byte{9}));
    key.from = {place.previous()};
    key.to = {place.number};
    try {
      end->receive(key, {});
    } catch (const Error& error) { told += error.what(); }
  }
  const auto name = [&](std::int32_t rank) {
    return exec::rank_name(rank, topology.device({rank}).name);
  };
  require(told == name(place.number) + ": 5SEND_B2: expected the message from " +
                      name(place.previous()) + " as it was sent, got other bytes",
          "told: " + told);
  job.finish();
}

/// The next random pipeline whose devices are those of the ranks.
Pipeline pipeline_for(std::int32_t ranks, Dice& dice) {
  while (true) {
    Pipeline pipeline = random_family_pipeline(dice);
    std::vector<DeviceIndex> devices =
        devices_of(device_schedules(pipeline.schedule, pipeline.costs));
    std::sort(devices.begin(), devices.end());
    if (static_cast<std::int32_t>(devices.size()) != ranks) continue;
    if (devices.front().value == 0 && devices.back().value == ranks - 1) return pipeline;
  }
}

void hold_delays(exec::RankJob& job, const Topology& topology) {
  const auto end = job.join(topology, all_devices(topology), {.timeout = kTimeout});
  Dice dice(3501);
  std::int64_t iteration = 0;
  for (int round = 0; round < scaled(20); ++round) {
    const Pipeline pipeline = pipeline_for(job.size(), dice);
    const std::vector<DeviceSchedule> schedules =
        device_schedules(pipeline.schedule, pipeline.costs);
    const auto own = std::find_if(schedules.begin(), schedules.end(), [&](const auto& schedule) {
      return schedule.device.value == job.rank();
    });
    const auto run = [&] {
      DelayingTransport delayed(*end, static_cast<std::uint64_t>(100 * iteration + job.rank()),
                                300);
      delayed.barrier();
      return run_suspiciously(pipeline, *own, delayed, iteration++);
    };
    require(run() == run(), "delays change a result: " + text_of(pipeline));
  }
  job.finish();
}

std::unique_ptr<exec::RankJob> start() {
  constexpr std::chrono::seconds kStart(30);
  const std::optional<exec_app::Launch> launch =
      exec_app::launch_of([](const char* name) { return std::getenv(name); });
  return launch && launch->tcp ? exec::start_tcp_job(*launch->tcp, kStart)
                               : exec::start_mpi_job(kStart);
}

int hold(const std::string& what) {
  const std::unique_ptr<exec::RankJob> started = start();
  exec::RankJob& job = *started;
  const auto ranks = static_cast<std::size_t>(job.size());
  const Topology topology(full_mesh(ranks, {{200'000'000'000}, {}}));
  try {
    if (what == "cases") hold_cases(job, topology);
    if (what == "abort") hold_abort(job, topology);
    if (what == "corrupt") hold_corrupt(job, topology);
    if (what == "delays") hold_delays(job, topology);
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "rank %d: %s\n", job.rank(), failure.what());
    std::fflush(nullptr);
    std::_Exit(1);
  }
  return 0;
}

}  // namespace
}  // namespace dapple

int main(int argc, char** argv) {
  return argc == 2 ? dapple::hold(argv[1]) : 2;
}
