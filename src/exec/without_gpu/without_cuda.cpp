// Replaces the GPU functions in a program built without CUDA; all of them throw Error(Environment).

#include "dapple/core/error.h"
#include "dapple/exec/gpu/cuda_backend.h"
#include "dapple/exec/replay/replay_backend.h"
#include "exec/measure/measured_passes.h"

namespace dapple::exec {
namespace {

[[noreturn]] void refuse() {
  throw Error(ErrorKind::Environment, "CUDA", {{"", "this binary was built without CUDA support"}});
}

}  // namespace

int usable_gpus() {
  refuse();
}

CudaMemory cuda_memory(const TrainingJob& /*job*/, const TrainingDevice& /*device*/) {
  refuse();
}

std::unique_ptr<TrainingBackend> make_cuda_backend(const TrainingJob& /*job*/,
                                                   const TrainingDevice& /*device*/, int /*gpu*/) {
  refuse();
}

std::unique_ptr<Backend> make_cuda_replay_backend(const ReplayedDevice& /*device*/,
                                                  const ReplayPace& /*pace*/, int /*gpu*/) {
  refuse();
}

CorePasses passes_on_gpu(const MeasurementSubject& /*subject*/, const MeasureOptions& /*options*/) {
  refuse();
}

}  // namespace dapple::exec
