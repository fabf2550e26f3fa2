#include "mpi_rank.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <ostream>
#include <string>
#include <utility>

#include "dapple/command_line/tool.h"
#include "dapple/core/error.h"

namespace dapple {

bool is_mpi_rank() {
  // Open MPI's own, and the two interfaces by which launchers of other kinds start ranks.
  constexpr const char* kNames[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"};
  return std::any_of(std::begin(kNames), std::end(kNames),
                     [](const char* name) { return std::getenv(name) != nullptr; });
}

namespace {

/// Ends this process, but not the job, which the launcher does. MPI has threads of its own, so that
/// nothing is torn down.
[[noreturn]] void fail(MpiJob& job, Console& console, const Error& error, int code) {
  if (job.is_first_to_fail()) {
    print_error(console, error);
    console.err.flush();
  }
  std::_Exit(code);
}

int run_part(Console& console, const std::function<int(MpiJob&, LastWords&)>& part,
             LastWords& last_words) {
  MpiJob job;
  try {
    const int code = part(job, last_words);
    job.finish();
    return code;
  } catch (const Error& error) {
    fail(job, console, error, exit_code_of(error.kind()));
  } catch (const JobAborted& aborted) {
    const Error error(ErrorKind::Environment, "", {{"", aborted.what()}});
    fail(job, console, error, kEnvironment);
  } catch (const std::exception& bug) {
    const Error error(ErrorKind::Environment, "",
                      {{"", std::string("this is a bug in dapple-exec: ") + bug.what()}});
    fail(job, console, error, kBug);
  }
}

}  // namespace

int run_as_rank(Console& console,
                const std::function<int(MpiJob& job, LastWords& last_words)>& part) {
  return run_watched([&](LastWords& last_words) { return run_part(console, part, last_words); },
                     [&](const std::string& sentence) {
                       print_error(console, Error(ErrorKind::Environment, "", {{"", sentence}}));
                       console.err.flush();
                     });
}

std::unique_ptr<Transport> join_job(MpiJob& job, const Topology& topology,
                                    const std::vector<DeviceIndex>& devices,
                                    MpiTransportOptions options) {
  if (static_cast<std::size_t>(job.size()) != devices.size()) {
    throw Error(ErrorKind::Usage, "",
                {{"", fmt::format("expected {} ranks, one for each device of the plan, got {}",
                                  devices.size(), job.size())}});
  }
  const DeviceIndex own = devices[static_cast<std::size_t>(job.rank())];
  spdlog::info("{}", rank_name(job.rank(), topology.device(own).name));
  return job.join(topology, devices, std::move(options));
}

}  // namespace dapple
