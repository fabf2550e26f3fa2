#include "mpi_rank.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <optional>
#include <ostream>
#include <string>
#include <thread>
#include <utility>

#include "dapple/command_line/tool.h"
#include "dapple/core/error.h"

namespace dapple {
namespace {

/// What a launcher says; nothing where there is none.
std::optional<int> launched_rank() {
  // Open MPI's own, and the two interfaces by which launchers of other kinds start ranks.
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"}) {
    const char* text = std::getenv(name);
    if (text == nullptr) continue;
    int rank = 0;
    std::from_chars(text, text + std::strlen(text), rank);
    return rank;
  }
  return std::nullopt;
}

/// In which a launcher ends the other ranks once one of them has failed: it is polite, and asks
/// twice.
constexpr std::chrono::seconds kPatience(3);

/// Ends this process, but not the job, which the launcher does. MPI has threads of its own, so that
/// nothing is torn down.
[[noreturn]] void fail(Console& console, const Error& error, int code, bool tells) {
  if (tells) {
    print_error(console, error);
    console.err.flush();
  }
  leave_watched(code);
}

/// Where not all ranks come, any of them may be the one that does not: the first two speak, the
/// second after the first has had its time to.
std::unique_ptr<MpiJob> start_job(Console& console, std::chrono::nanoseconds timeout) {
  try {
    return std::make_unique<MpiJob>(timeout);
  } catch (const Error& error) {
    const int rank = launched_rank().value_or(0);
    if (rank > 0) std::this_thread::sleep_for(kPatience);
    fail(console, error, exit_code_of(error.kind()), rank <= 1);
  }
}

int run_part(Console& console, std::chrono::nanoseconds timeout,
             const std::function<int(MpiJob&, LastWords&)>& part, LastWords& last_words) {
  last_words.set_name(fmt::format("rank {}", launched_rank().value_or(0)));
  const std::unique_ptr<MpiJob> job = start_job(console, timeout);
  try {
    const int code = part(*job, last_words);
    // A launcher that is ending the job keeps MPI from coming to its end.
    console.deliver();
    job->finish();
    return code;
  } catch (const Error& error) {
    fail(console, error, exit_code_of(error.kind()), job->is_first_to_fail());
  } catch (const JobAborted& aborted) {
    const Error error(ErrorKind::Environment, "", {{"", aborted.what()}});
    fail(console, error, kEnvironment, job->is_first_to_fail());
  } catch (const std::exception& bug) {
    const Error error(ErrorKind::Environment, "",
                      {{"", std::string("this is a bug in dapple-exec: ") + bug.what()}});
    fail(console, error, kBug, job->is_first_to_fail());
  }
}

}  // namespace

bool is_mpi_rank() {
  return launched_rank().has_value();
}

bool tells_usage_errors() {
  if (launched_rank().value_or(0) == 0) return true;
  std::this_thread::sleep_for(kPatience);
  return false;
}

void check_rank_inputs(const std::vector<NamedPath>& inputs) {
  for (const NamedPath& input : inputs) {
    if (input.path != "-") continue;
    throw usage_error(input.option, "expected a file, which every rank can read, got \"-\"");
  }
}

int run_as_rank(Console& console, std::chrono::nanoseconds timeout,
                const std::function<int(MpiJob& job, LastWords& last_words)>& part) {
  return run_watched(
      [&](LastWords& last_words) { return run_part(console, timeout, part, last_words); },
      [&](const std::string& sentence) {
        print_error(console, Error(ErrorKind::Environment, "", {{"", sentence}}));
        console.err.flush();
      });
}

std::unique_ptr<Transport> join_job(MpiJob& job, const Topology& topology,
                                    const std::vector<DeviceIndex>& devices,
                                    const MpiTransportOptions& options) {
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
