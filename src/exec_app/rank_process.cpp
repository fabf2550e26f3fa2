#include "rank_process.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <csignal>
#include <cstdlib>
#include <exception>
#include <optional>
#include <ostream>
#include <string>
#include <thread>
#include <utility>

#include "dapple/command_line/tool.h"
#include "dapple/core/error.h"
#include "dapple/exec/mpi_job.h"
#include "dapple/exec_app/launch.h"

namespace dapple {
namespace {

std::optional<Launch> launch() {
  return launch_of([](const char* name) { return std::getenv(name); });
}

/// In which a launcher ends the other ranks once one of them has failed: it is polite, and asks
/// twice.
constexpr std::chrono::seconds kPatience(3);

/// Ends this process, but not the job, which the launcher does. What carries messages has threads
/// of its own, so that nothing is torn down.
[[noreturn]] void fail(Console& console, const Error& error, int code, const Launch& launch,
                       bool tells) {
  if (tells) {
    print_error(console, error);
    console.err.flush();
  }
  if (launch.tcp) std::_Exit(code);
  leave_watched(code);
}

/// Where not all ranks come to MPI, any of them may be the one that does not: the first two speak,
/// the second after the first has had its time to. Who does not find rank 0 over TCP knows nobody
/// else: all speak, those after the first two when the launcher has had its time to end them.
std::unique_ptr<RankJob> start_job(Console& console, std::chrono::nanoseconds timeout,
                                   const Launch& launch) {
  try {
    return launch.tcp ? start_tcp_job(*launch.tcp, timeout) : start_mpi_job(timeout);
  } catch (const Error& error) {
    if (launch.rank > (launch.tcp ? 1 : 0)) std::this_thread::sleep_for(kPatience);
    fail(console, error, exit_code_of(error.kind()), launch, launch.tcp || launch.rank <= 1);
  } catch (const JobAborted& aborted) {
    fail(console, Error(ErrorKind::Environment, "", {{"", aborted.what()}}), kEnvironment, launch,
         false);
  }
}

[[noreturn]] void fail_part(Console& console, const Error& error, int code, const Launch& launch,
                            RankJob& job) {
  // A launcher that ends all once one has died may not keep the one from speaking that saw it.
  if (launch.tcp) std::signal(SIGTERM, SIG_IGN);
  fail(console, error, code, launch, job.is_first_to_fail());
}

int run_part(Console& console, std::chrono::nanoseconds timeout, const Launch& launch,
             const RankPart& part, LastWords* last_words) {
  const std::unique_ptr<RankJob> job = start_job(console, timeout, launch);
  try {
    const int code = part(*job, last_words);
    // A launcher that is ending the job keeps MPI from coming to its end.
    console.deliver();
    job->finish();
    return code;
  } catch (const Error& error) {
    fail_part(console, error, exit_code_of(error.kind()), launch, *job);
  } catch (const JobAborted& aborted) {
    const Error error(ErrorKind::Environment, "", {{"", aborted.what()}});
    fail_part(console, error, kEnvironment, launch, *job);
  } catch (const std::exception& bug) {
    const Error error(ErrorKind::Environment, "",
                      {{"", std::string("this is a bug in dapple-exec: ") + bug.what()}});
    fail_part(console, error, kBug, launch, *job);
  }
}

}  // namespace

bool is_rank() {
  return launch().has_value();
}

bool tells_usage_errors() {
  std::optional<Launch> launched;
  try {
    launched = launch();
  } catch (const Error&) { return true; }
  if (!launched || launched->rank == 0) return true;
  std::this_thread::sleep_for(kPatience);
  return false;
}

void check_rank_inputs(const std::vector<NamedPath>& inputs) {
  for (const NamedPath& input : inputs) {
    if (input.path != "-") continue;
    throw usage_error(input.option, "expected a file, which every rank can read, got \"-\"");
  }
}

int run_as_rank(Console& console, std::chrono::nanoseconds timeout, const RankPart& part) {
  const Launch launched = launch().value();
  if (launched.tcp) return run_part(console, timeout, launched, part, nullptr);
  return run_watched(
      [&](LastWords& last_words) {
        last_words.set_name(fmt::format("rank {}", launched.rank));
        return run_part(console, timeout, launched, part, &last_words);
      },
      [&](const std::string& sentence) {
        print_error(console, Error(ErrorKind::Environment, "", {{"", sentence}}));
        console.err.flush();
      });
}

std::unique_ptr<Transport> join_job(RankJob& job, const Topology& topology,
                                    const std::vector<DeviceIndex>& devices,
                                    const RankTransportOptions& options) {
  if (static_cast<std::size_t>(job.size()) != devices.size()) {
    throw Error(ErrorKind::Usage, "",
                {{"", fmt::format("expected {} ranks, one for each device of the plan, got {}",
                                  devices.size(), job.size())}});
  }
  const DeviceIndex own = devices[static_cast<std::size_t>(job.rank())];
  spdlog::info("{}", rank_name(job.rank(), topology.device(own).name));
  return job.join(topology, devices, options);
}

}  // namespace dapple
