#include "dapple/exec_app/request/gpu_choice.h"

#include <fmt/format.h>

#include "dapple/core/error.h"

namespace dapple::exec_app {

int chosen_gpu(const GpuShare& share, bool oversubscribes, std::size_t place, int usable) {
  if (share.is_rank && share.is_shown_gpus && usable == 1) return 0;
  const auto gpus = static_cast<std::size_t>(usable);
  const std::size_t number = share.local_rank ? static_cast<std::size_t>(*share.local_rank) : place;
  const std::size_t needed = share.local_rank ? number + 1 : share.devices;
  if (needed > gpus && !oversubscribes) {
    throw Error(ErrorKind::Environment, "CUDA",
                {{"", fmt::format("expected {} GPUs, one for each device of the plan{}, got {}; "
                                  "with --oversubscribe devices share them",
                                  needed, share.local_rank ? " up to this rank's on its host" : "",
                                  gpus)}});
  }
  return static_cast<int>(number % gpus);
}

}  // namespace dapple::exec_app
