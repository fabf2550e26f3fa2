#include "exec/gpu/cuda_range.h"

#include "dapple/schedule/schedule.h"

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#else
namespace {
void nvtxInitialize(const void* /*reserved*/) {}
void nvtxRangePushA(const char* /*name*/) {}
void nvtxRangePop() {}
}  // namespace
#endif

namespace dapple::exec {
namespace {

/// NVTX chooses its functions at the first call, while other threads may read which these are.
void choose_functions_once() {
  [[maybe_unused]] static const bool are_chosen = [] {
    nvtxInitialize(nullptr);
    return true;
  }();
}

}  // namespace

CudaRange::CudaRange(const Action& action) {
  choose_functions_once();
  nvtxRangePushA(to_text(action).c_str());
}

CudaRange::~CudaRange() {
  nvtxRangePop();
}

}  // namespace dapple::exec
