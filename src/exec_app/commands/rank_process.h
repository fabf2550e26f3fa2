// A command as one rank of a job that a launcher has started.
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

/// Whether a launcher has started this process as a rank: looks at the environment. Throws as
/// launch_of().
bool is_rank();

/// Ends this process where it is a rank, with the error's exit code, and all others: of a fault
/// that is found before the job has begun. They wait for each other a few seconds; the first to
/// fail then tells, or who does not find the others, by `tell`, and names itself. Returns where it
/// is no rank.
void end_with_others(const Error& error, const command_line::TellError& tell);

/// Refuses standard input, of which a launcher gives only rank 0 anything. Throws Error(Usage).
void check_rank_inputs(const std::vector<command_line::NamedPath>& inputs);

/// `last_words` is null where no other process watches this one.
using RankPart = std::function<int(exec::RankJob& job, exec::CrashRecord* crash_record)>;

/// Does `part` and returns its exit code; what the console has collected is delivered before the
/// job ends. Whatever fails, on whichever rank, ends the job on all of them, and only the first to
/// fail says why, on its err. `timeout` is that of the job's start.
///
/// Of a rank of MPI, whose launcher names nobody when it ends all others because one has died,
/// `part` is done in a process of its own, watched by this one; of one that dies in a job over TCP
/// the others see it. Where nobody reads stdout any more, the code is that of a file that cannot be
/// written.
int run_as_rank(command_line::Console& console, std::chrono::nanoseconds timeout,
                const RankPart& part);

/// Throws Error(Usage) where the launcher has said how many ranks there are, and they are not as
/// many as devices; of MPI join_job() does.
void check_rank_count(std::size_t devices);

/// Which of its host's GPUs are for this rank.
GpuShare gpu_share(const exec::RankJob& job);

/// This rank's end, of the device with its place among `devices`, the plan's. Throws Error(Usage)
/// where there are not as many ranks; the log says which rank has which device.
std::unique_ptr<exec::Transport> join_job(exec::RankJob& job, const Topology& topology,
                                          const std::vector<DeviceIndex>& devices,
                                          const exec::RankTransportOptions& options);

}  // namespace dapple::exec_app
