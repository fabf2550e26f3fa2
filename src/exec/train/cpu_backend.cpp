#include "dapple/exec/train/cpu_backend.h"

#include "exec/train/cpu_math.h"
#include "exec/train/model_backend.h"

namespace dapple::exec {

std::unique_ptr<TrainingBackend> make_cpu_backend(const TrainingJob& job,
                                                  const TrainingDevice& device) {
  return std::make_unique<ModelBackend<CpuMath>>(job, device,
                                                 std::make_unique<CpuMath>(job, device));
}

}  // namespace dapple::exec
