// Runs a command as one rank of a job that a launcher has started.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "dapple/command_line/console.h"
#include "dapple/command_line/files.h"
#include "dapple/command_line/tool.h"
#include "dapple/exec/ranks/crash_record.h"
#include "dapple/exec/ranks/rank_job.h"
#include "dapple/exec_app/request/gpu_choice.h"

namespace dapple::exec_app {

/// Whether a launcher has started this process as a rank, according to the environment. Throws as
/// launch_of() does.
bool is_rank();

/// Handles an error that is found before the job has begun. If this process is a rank, ends it with
/// the error's exit code, and with it all other ranks: they join the job within a few seconds, and
/// the first to fail, or one that cannot join, calls `tell` with an error that names its rank.
/// Returns if the process is not a rank.
void end_with_others(const Error& error, const command_line::TellError& tell);

/// Throws Error(Usage) if an input is stdin, which a launcher connects only to rank 0.
void check_rank_inputs(const std::vector<command_line::NamedPath>& inputs);

/// What a rank does; returns an exit code. `crash_record` is null if no other process supervises
/// this one.
using RankWork = std::function<int(exec::RankJob& job, exec::CrashRecord* crash_record)>;

/// Runs `work` and returns its exit code; writes what the console has collected before the job
/// ends. A failure on any rank ends the job on all ranks, and only the first to fail prints its
/// error. `timeout` is that of the job's start.
///
/// An MPI launcher that ends all ranks because one has died does not say which; with MPI, `work`
/// therefore runs in a process of its own that this one supervises. Over TCP, the other ranks
/// detect the death of a peer. If the reader of stdout has closed it, the exit code is that of a
/// file that cannot be written.
int run_as_rank(command_line::Console& console, std::chrono::nanoseconds timeout,
                const RankWork& work);

/// Throws Error(Usage) if the launcher's number of ranks is not the number of devices. With MPI the
/// number is not known yet, and join_job() checks it.
void check_rank_count(std::size_t devices);

/// Returns which GPUs of its host are for this rank.
GpuShare gpu_share(const exec::RankJob& job);

/// Returns the transport of this rank, which runs the device at its place among the plan's
/// `devices`, and logs the device. Throws Error(Usage) if there are not as many ranks as devices.
std::unique_ptr<exec::Transport> join_job(exec::RankJob& job, const Topology& topology,
                                          const std::vector<DeviceIndex>& devices,
                                          const exec::RankTransportOptions& options);

}  // namespace dapple::exec_app
