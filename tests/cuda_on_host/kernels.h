// Which kernels have been launched: CUDA loads each when it is first.
#pragma once

#include <cstddef>

namespace cuda_on_host {

/// Puts nothing in order between the threads that launch.
void note_launch(const void* kernel);

/// Different ones, since they were last forgotten.
std::size_t kernels_launched();
/// Requires: nobody launches any meanwhile.
void forget_kernels();

}  // namespace cuda_on_host
