#include "exec/gpu/cuda_range.h"

#include "dapple/schedule/schedule.h"

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#else
namespace {
void nvtxRangePushA(const char* /*name*/) {}
void nvtxRangePop() {}
}  // namespace
#endif

namespace dapple::exec {

CudaRange::CudaRange(const Action& action) {
  nvtxRangePushA(to_text(action).c_str());
}

CudaRange::~CudaRange() {
  nvtxRangePop();
}

}  // namespace dapple::exec
