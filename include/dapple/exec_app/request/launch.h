// What a launcher says, in the environment, to the processes that it starts as the ranks of a job.
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
  /// Among the ranks of its host, where the launcher says it.
  std::optional<int> local_rank = {};
  /// Where the ranks find each other by TCP; without it they do by MPI.
  std::optional<exec::TcpPlace> tcp = {};
};

/// Looks up a variable of the environment; null where it is not set.
using EnvironmentLookup = std::function<const char*(const char* name)>;

/// Nothing where no launcher has started this process. In this order:
///  1. MPI: OMPI_COMM_WORLD_RANK, PMIX_RANK or PMI_RANK.
///  2. RANK and WORLD_SIZE, with MASTER_ADDR and MASTER_PORT, as torchrun sets them, or a person.
///     Where torchrun itself listens on that port (TORCHELASTIC_USE_AGENT_STORE), the next one.
///  3. A step of Slurm of several tasks: SLURM_PROCID and SLURM_STEP_NUM_TASKS; rank 0 on the first
///     of SLURM_STEP_NODELIST or SLURM_JOB_NODELIST, or on SLURM_LAUNCH_NODE_IPADDR, unless
///     MASTER_ADDR says where; on MASTER_PORT, or one of 4096 from 61440 on, by SLURM_JOB_ID.
/// Local ranks: OMPI_COMM_WORLD_LOCAL_RANK, LOCAL_RANK, or SLURM_LOCALID where this rank is Slurm's
/// task; to 2 only LOCAL_RANK, as all that a person starts in a task of Slurm have the task's.
/// Throws Error(Environment) where 2 or 3 say only a part of it, or what cannot be.
std::optional<Launch> launch_of(const EnvironmentLookup& environment);

/// The job's secret, or the name of a file with nothing else, but for the end of its line.
inline constexpr const char* kSecretVariable = "DAPPLE_SECRET";
inline constexpr const char* kSecretFileVariable = "DAPPLE_SECRET_FILE";

/// What ranks that meet by TCP prove to each other that they know; empty where neither is set.
/// Throws Error(Environment) where both are, the file cannot be read, or the secret has fewer than
/// 16 bytes, which could be guessed, or more than 4096. No message repeats it.
std::string job_secret(const EnvironmentLookup& environment);

}  // namespace dapple::exec_app
