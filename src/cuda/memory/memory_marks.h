// Marks pieces of an arena as free or used from a point of its stream on. On a GPU the functions do
// nothing; where tests run kernels on the host, another implementation informs the sanitizers.
#pragma once

#include <cstddef>

#include "dapple/core/quantity.h"
#include "dapple/cuda/memory/device.h"

namespace dapple::cuda {

void mark_free(const Stream& stream, std::byte* address, Bytes size);
void mark_used(const Stream& stream, std::byte* address, Bytes size);

}  // namespace dapple::cuda
