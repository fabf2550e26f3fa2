// The function by which all kernels are launched.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "cuda/memory/status.h"
#include "dapple/cuda/memory/device.h"

namespace dapple::cuda {

struct Grid {
  dim3 blocks{1, 1, 1};
  dim3 threads{1, 1, 1};
};

/// Returns the number of blocks along a dimension of the grid. Requires: 1 <= count < 2^31.
inline unsigned blocks_for(std::int64_t count, std::int64_t per_block) {
  return static_cast<unsigned>((count + per_block - 1) / per_block);
}

/// Returns a grid for `count` independent elements, at most as large as fills a GPU; each thread
/// loops over several elements if there are more.
inline Grid grid_for(std::int64_t count) {
  constexpr std::int64_t kThreads = 256;
  constexpr std::int64_t kMostBlocks = 2'048;
  const unsigned blocks =
      blocks_for(std::clamp<std::int64_t>(count, 1, kMostBlocks * kThreads), kThreads);
  return {{blocks, 1, 1}, {kThreads, 1, 1}};
}

/// Enqueues `kernel(arguments...)`.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), const Grid& grid, const Stream& stream,
            Arguments... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid.blocks;
  config.blockDim = grid.threads;
  config.stream = stream.handle();
  require(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...),
          "cudaLaunchKernelEx");
}

}  // namespace dapple::cuda
