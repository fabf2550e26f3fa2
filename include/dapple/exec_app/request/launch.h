// What a launcher passes in the environment to the processes that it starts as the ranks of a job.
//
// Sources: the manuals of Open MPI, PMI and PMIx (mpirun), of torchrun ("Environment Variables"),
// and of Slurm's srun ("Output environment variables").
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "dapple/exec/ranks/tcp/tcp_job.h"

namespace dapple::exec_app {

struct Launch {
  int rank = 0;
  /// The rank among those of its host, if the launcher says it.
  std::optional<int> local_rank = {};
  /// Where the ranks find each other by TCP; without it they use MPI.
  std::optional<exec::TcpPlace> tcp = {};
};

/// Looks up a variable of the environment; returns null if it is not set.
using EnvironmentLookup = std::function<const char*(const char* name)>;

/// Returns how this process was launched, or nothing if no launcher started it. The first of these
/// that is set counts:
///  1. MPI: OMPI_COMM_WORLD_RANK, PMIX_RANK or PMI_RANK.
///  2. RANK and WORLD_SIZE, with MASTER_ADDR and MASTER_PORT, set by torchrun or by the user. If
///     torchrun itself listens on that port (TORCHELASTIC_USE_AGENT_STORE), the next port is used.
///  3. A Slurm step of several tasks: SLURM_PROCID and SLURM_STEP_NUM_TASKS. The host of rank 0 is
///     MASTER_ADDR, or else the first host of SLURM_STEP_NODELIST or SLURM_JOB_NODELIST, or
///     SLURM_LAUNCH_NODE_IPADDR; its port is MASTER_PORT or else one of the 4096 ports from 61440
///     on, by SLURM_JOB_ID.
/// The local rank is OMPI_COMM_WORLD_LOCAL_RANK, LOCAL_RANK, or SLURM_LOCALID if this rank is a
/// Slurm task. For 2 it is LOCAL_RANK only, as all processes that a user starts within a Slurm task
/// inherit the task's variables.
/// Throws Error(Environment) if 2 or 3 are incomplete or invalid.
std::optional<Launch> launch_of(const EnvironmentLookup& environment);

/// The variables with the job's secret, or with the name of a file that has only the secret and
/// optionally the end of its line.
inline constexpr const char* kSecretVariable = "DAPPLE_SECRET";
inline constexpr const char* kSecretFileVariable = "DAPPLE_SECRET_FILE";

/// Returns the secret by which ranks authenticate each other over TCP; empty if neither variable is
/// set. Throws Error(Environment) if both are set, the file cannot be read, or the secret has fewer
/// than 16 bytes, which could be guessed, or more than 4096. No message contains the secret.
std::string job_secret(const EnvironmentLookup& environment);

}  // namespace dapple::exec_app
