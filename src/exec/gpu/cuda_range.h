// What the host enqueues for an action, as a range of NVTX: Nsight Systems shows it over the GPU's
// work by the action's name.
#pragma once

#include "dapple/plan/action.h"

namespace dapple::exec {

/// From its construction to its end, in one thread. Nothing where NVTX was not there to build with,
/// or nobody looks.
class CudaRange {
 public:
  explicit CudaRange(const Action& action);
  ~CudaRange();
  CudaRange(const CudaRange&) = delete;
  CudaRange& operator=(const CudaRange&) = delete;
};

}  // namespace dapple::exec
