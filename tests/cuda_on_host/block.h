// The threads of a block on the host: in turns on one thread of the operating system, each with a
// stack of its own where it has to wait for others.
#pragma once

#include <cstdint>
#include <functional>

struct dim3 {
  unsigned x = 1;
  unsigned y = 1;
  unsigned z = 1;
  constexpr dim3(unsigned of_x = 1, unsigned of_y = 1, unsigned of_z = 1)
      : x(of_x), y(of_y), z(of_z) {}
};

/// Of the thread that runs, as CUDA calls them.
extern thread_local dim3 threadIdx;
extern thread_local dim3 blockIdx;
extern thread_local dim3 blockDim;
extern thread_local dim3 gridDim;

namespace cuda_on_host {

/// Whether a GPU would take such a grid.
bool is_launchable(const dim3& grid, const dim3& block);

/// Every thread of every block runs `thread`. Throws std::logic_error where threads wait for some
/// that never come.
void run_grid(const dim3& grid, const dim3& block, const std::function<void()>& thread);

/// Waits for all threads of the block that have not ended.
void meet_block();

using Word = std::uint64_t;

/// Waits for the lanes of the warp that are in `lanes`; what the one whose number differs from this
/// one's by `lane_mask` has brought.
Word exchange(unsigned lanes, Word word, int lane_mask);

}  // namespace cuda_on_host
