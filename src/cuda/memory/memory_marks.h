// What an arena tells of its pieces, from a moment of its stream on. Kernels on a GPU are not
// watched; where tests run them on the host, another file of these functions lets the sanitizers
// know.
#pragma once

#include <cstddef>

#include "dapple/core/quantity.h"
#include "dapple/cuda/memory/device.h"

namespace dapple::cuda {

void mark_free(const Stream& stream, std::byte* address, Bytes size);
void mark_used(const Stream& stream, std::byte* address, Bytes size);

}  // namespace dapple::cuda
