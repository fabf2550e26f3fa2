// What an arena tells of its pieces. Kernels on a GPU are not watched; where tests run them on the
// host, another file of these functions lets the address sanitizer know.
#pragma once

#include <cstddef>

#include "dapple/core/quantity.h"

namespace dapple::cuda {

void mark_free(std::byte* address, Bytes size);
void mark_used(std::byte* address, Bytes size);

}  // namespace dapple::cuda
