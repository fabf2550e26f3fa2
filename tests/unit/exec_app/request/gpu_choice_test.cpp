#include "dapple/exec_app/request/gpu_choice.h"

#include <catch2/catch.hpp>

namespace dapple::exec_app {
namespace {

TEST_CASE("the devices of one process take the GPUs in their order") {
  const GpuShare all{.devices = 4};
  for (int place = 0; place < 4; ++place) {
    CHECK(chosen_gpu(all, false, static_cast<std::size_t>(place), 4) == place);
    CHECK(chosen_gpu(all, true, static_cast<std::size_t>(place), 3) == place % 3);
  }
  CHECK_THROWS_WITH(chosen_gpu(all, false, 0, 3),
                    "CUDA: expected 4 GPUs, one for each device of the plan, got 3; with "
                    "--oversubscribe devices share them");
  // Which GPUs they are, others may have chosen; that there are enough, they have not.
  CHECK_THROWS(chosen_gpu({.devices = 2, .is_shown_gpus = true}, false, 0, 1));
}

TEST_CASE("a rank takes the GPU of its number on its host, wherever its device is in the plan") {
  const GpuShare third{.devices = 1, .is_rank = true, .local_rank = 2};
  CHECK(chosen_gpu(third, false, 10, 4) == 2);
  CHECK(chosen_gpu(third, true, 10, 2) == 0);
  CHECK_THROWS_WITH(chosen_gpu(third, false, 10, 2),
                    "CUDA: expected 3 GPUs, one for each device of the plan up to this rank's on "
                    "its host, got 2; with --oversubscribe devices share them");
}

TEST_CASE("a rank that knows no number of its own takes the GPU of its device's") {
  const GpuShare rank{.devices = 4, .is_rank = true};
  CHECK(chosen_gpu(rank, false, 3, 4) == 3);
  CHECK_THROWS(chosen_gpu(rank, false, 0, 2));
}

TEST_CASE("a rank that is shown a single GPU takes it, whatever its number") {
  const GpuShare shown{.devices = 4, .is_rank = true, .local_rank = 3, .is_shown_gpus = true};
  CHECK(chosen_gpu(shown, false, 3, 1) == 0);
  // Of several it takes its own.
  CHECK(chosen_gpu(shown, false, 3, 4) == 3);
  // That a host has one says nothing of whose it is.
  CHECK_THROWS(chosen_gpu({.devices = 4, .is_rank = true, .local_rank = 3}, false, 3, 1));
}

}  // namespace
}  // namespace dapple::exec_app
