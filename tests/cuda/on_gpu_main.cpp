// The tests on a GPU; exit code 77, which stands for skipped, where there is none.
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#include <cstdio>

#include "dapple/cuda/memory/device.h"

int main(int count, char** arguments) {
  constexpr int kSkipped = 77;
  if (dapple::cuda::gpu_count() == 0) {
    std::puts("skipped: no GPU here");
    return kSkipped;
  }
  return Catch::Session().run(count, arguments);
}
