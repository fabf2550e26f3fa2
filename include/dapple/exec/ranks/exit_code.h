// How a job that has failed ends its processes.
#pragma once

namespace dapple::exec {

/// The exit code of a process that is ended because another one has died or the job has failed.
inline constexpr int kEnvironmentCode = 5;

}  // namespace dapple::exec
