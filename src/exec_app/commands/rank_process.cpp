#include "exec_app/commands/rank_process.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <csignal>
#include <cstdlib>
#include <exception>
#include <new>
#include <optional>
#include <string>
#include <thread>

#include "dapple/command_line/tool.h"
#include "dapple/core/error.h"
#include "dapple/exec/ranks/exit_code.h"
#include "dapple/exec/ranks/mpi/mpi_job.h"
#include "dapple/exec_app/request/launch.h"

namespace dapple::exec_app {
namespace {

const char* variable(const char* name) {
  return std::getenv(name);
}

std::optional<Launch> launch() {
  return launch_of(variable);
}

/// The time in which a launcher starts all ranks, and in which it ends the others once one has
/// failed, which it may do in two attempts.
constexpr std::chrono::seconds kStartTimeout(3);

static_assert(exec::kEnvironmentCode == command_line::kEnvironment,
              "processes of a job end with the same code, whoever ends them");

/// Ends this process, after which the launcher ends the job. Runs no destructors, as the
/// transport's threads are still running.
[[noreturn]] void fail(command_line::Console& console, const Error& error, int code, bool tells) {
  if (tells) {
    command_line::print_error(console, error);
    console.err.flush();
  }
  std::_Exit(code);
}

/// Returns the error with the rank's name, as it may not apply to other ranks.
Error with_rank(const Error& error, int rank) {
  const std::string name = fmt::format("rank {}", rank);
  if (error.source().starts_with("rank ")) return error;
  return {error.kind(), error.source().empty() ? name : name + ": " + error.source(),
          error.violations()};
}

std::unique_ptr<exec::RankJob> start(const Launch& launch, std::chrono::nanoseconds timeout) {
  if (!launch.tcp) return exec::start_mpi_job(timeout);
  exec::TcpPlace place = *launch.tcp;
  place.secret = job_secret(variable);
  return exec::start_tcp_job(place, timeout);
}

/// Warns, on rank 0, that anybody who reaches its port can join a job without a secret.
void warn_of_missing_secret(command_line::Console& console, const Launch& launch) {
  if (!launch.tcp || launch.rank != 0 || launch.tcp->size == 1) return;
  if (exec::is_loopback(launch.tcp->address) || !job_secret(variable).empty()) return;
  command_line::print_warning(
      console, fmt::format("anyone who reaches port {} of this host can join the job, which "
                           "has no secret; set {} or {}",
                           launch.tcp->port, kSecretVariable, kSecretFileVariable));
}

/// Joins the job, or reports the error and ends the process. With MPI, any rank may be the one that
/// is missing, so ranks 0 and 1 report, rank 1 after kStartTimeout so that rank 0 normally comes
/// first. Over TCP, a rank that does not find rank 0 knows no others, so all ranks report, from
/// rank 2 on after kStartTimeout, in which the launcher normally ends them.
std::unique_ptr<exec::RankJob> start_job(command_line::Console& console,
                                         std::chrono::nanoseconds timeout, const Launch& launch) {
  try {
    warn_of_missing_secret(console, launch);
    return start(launch, timeout);
  } catch (const Error& error) {
    if (launch.rank > (launch.tcp ? 1 : 0)) std::this_thread::sleep_for(kStartTimeout);
    fail(console, error, command_line::exit_code_of(error.kind()), launch.tcp || launch.rank <= 1);
  } catch (const exec::JobAborted& aborted) {
    fail(console, Error(ErrorKind::Environment, "", {{"", aborted.what()}}),
         command_line::kEnvironment, false);
  }
}

/// Ignores the SIGTERM by which a launcher ends all ranks once one has died, so that the rank that
/// noticed it can report it.
void ignore_termination(const Launch& launch) {
  if (launch.tcp) std::signal(SIGTERM, SIG_IGN);
}

[[noreturn]] void fail_rank(command_line::Console& console, const Error& error, int code,
                            const Launch& launch, exec::RankJob& job) {
  ignore_termination(launch);
  fail(console, with_rank(error, launch.rank), code, job.is_first_to_fail());
}

/// Writes the remaining output. Returns `code`, or that of a failed write if nobody reads stdout.
int deliver(command_line::Console& console, int code) {
  try {
    console.deliver();
  } catch (const command_line::NobodyListens&) { return command_line::kEnvironment; }
  return code;
}

Error wrong_rank_count(std::size_t expected, int got) {
  return {ErrorKind::Usage,
          "",
          {{"", fmt::format("expected {} ranks, one for each device of the plan, got {}", expected,
                            got)}}};
}

int run_rank(command_line::Console& console, std::chrono::nanoseconds timeout, const Launch& launch,
             const RankWork& work, exec::CrashRecord* crash_record) {
  const std::unique_ptr<exec::RankJob> job = start_job(console, timeout, launch);
  try {
    // Output comes before finish(), as MPI may not finalize if the launcher is ending the job.
    const int code = deliver(console, work(*job, crash_record));
    job->finish();
    return code;
  } catch (const command_line::NobodyListens&) {
    job->is_first_to_fail();
    std::_Exit(command_line::kEnvironment);
  } catch (const Error& error) {
    fail_rank(console, error, command_line::exit_code_of(error.kind()), launch, *job);
  } catch (const exec::JobAborted& aborted) {
    const Error error(ErrorKind::Environment, "", {{"", aborted.what()}});
    fail_rank(console, error, command_line::kEnvironment, launch, *job);
  } catch (const std::bad_alloc&) {
    const Error error(ErrorKind::Environment, "", {{"", "out of memory"}});
    fail_rank(console, error, command_line::kEnvironment, launch, *job);
  } catch (const std::exception& bug) {
    const Error error(ErrorKind::Environment, "",
                      {{"", std::string("this is a bug in dapple-exec: ") + bug.what()}});
    fail_rank(console, error, command_line::kBug, launch, *job);
  }
}

}  // namespace

bool is_rank() {
  return launch().has_value();
}

void end_with_others(const Error& error, const command_line::TellError& tell) {
  std::optional<Launch> launched;
  try {
    launched = launch();
  } catch (const Error&) { return; }  // there are other ranks, but it is not known where
  if (!launched) return;
  ignore_termination(*launched);
  std::unique_ptr<exec::RankJob> job;
  try {
    job = start(*launched, kStartTimeout);
  } catch (const std::exception&) {  // then each rank reports its own error
  }
  if (!job || job->is_first_to_fail()) tell(with_rank(error, launched->rank));
  std::_Exit(command_line::exit_code_of(error.kind()));
}

void check_rank_count(std::size_t devices) {
  const std::optional<Launch> launched = launch();
  if (!launched || !launched->tcp) return;
  const int ranks = launched->tcp->size;
  if (static_cast<std::size_t>(ranks) != devices) throw wrong_rank_count(devices, ranks);
}

GpuShare gpu_share(const exec::RankJob& job) {
  return {.devices = job.is_on_one_host() ? static_cast<std::size_t>(job.size()) : 1,
          .is_rank = true,
          .local_rank = launch().value().local_rank,
          .is_shown_gpus = std::getenv("CUDA_VISIBLE_DEVICES") != nullptr};
}

void check_rank_inputs(const std::vector<command_line::NamedPath>& inputs) {
  for (const command_line::NamedPath& input : inputs) {
    if (input.path != "-") continue;
    throw command_line::usage_error(input.option,
                                    "expected a file, which every rank can read, got \"-\"");
  }
}

int run_as_rank(command_line::Console& console, std::chrono::nanoseconds timeout,
                const RankWork& work) {
  const Launch launched = launch().value();
  if (launched.tcp) return run_rank(console, timeout, launched, work, nullptr);
  return exec::run_supervised(
      [&](exec::CrashRecord& crash_record) {
        crash_record.set_name(fmt::format("rank {}", launched.rank));
        return run_rank(console, timeout, launched, work, &crash_record);
      },
      [&](const std::string& sentence) {
        command_line::print_error(console, Error(ErrorKind::Environment, "", {{"", sentence}}));
        console.err.flush();
      });
}

std::unique_ptr<exec::Transport> join_job(exec::RankJob& job, const Topology& topology,
                                          const std::vector<DeviceIndex>& devices,
                                          const exec::RankTransportOptions& options) {
  if (static_cast<std::size_t>(job.size()) != devices.size()) {
    throw wrong_rank_count(devices.size(), job.size());
  }
  const DeviceIndex own = devices[static_cast<std::size_t>(job.rank())];
  spdlog::info("{}", exec::rank_name(job.rank(), topology.device(own).name));
  return job.join(topology, devices, options);
}

}  // namespace dapple::exec_app
