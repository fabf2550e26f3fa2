// Marks the work that the host enqueues for an action as an NVTX range, which Nsight Systems
// displays above the GPU's work under the action's name.
#pragma once

#include "dapple/plan/action.h"

namespace dapple::exec {

/// A range from construction to destruction, in one thread. Has no effect if the program was built
/// without NVTX or no profiler is attached.
class CudaRange {
 public:
  explicit CudaRange(const Action& action);
  ~CudaRange();
  CudaRange(const CudaRange&) = delete;
  CudaRange& operator=(const CudaRange&) = delete;
};

}  // namespace dapple::exec
