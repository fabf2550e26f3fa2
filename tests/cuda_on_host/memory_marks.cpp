// For src/cuda/memory/memory_marks.cpp: free pieces are out of bounds, and fresh ones hold no
// numbers.
#include "cuda/memory/memory_marks.h"

#include <sanitizer/asan_interface.h>

#include <cstring>

#include "streams.h"

namespace dapple::cuda {

void mark_free(const Stream& stream, std::byte* address, Bytes size) {
  cuda_on_host::enqueue(stream.handle(), [=] {
    ASAN_POISON_MEMORY_REGION(address, static_cast<std::size_t>(size.count));
  });
}

void mark_used(const Stream& stream, std::byte* address, Bytes size) {
  cuda_on_host::enqueue(stream.handle(), [=] {
    const auto count = static_cast<std::size_t>(size.count);
    ASAN_UNPOISON_MEMORY_REGION(address, count);
    std::memset(address, 0xff, count);
  });
}

}  // namespace dapple::cuda
