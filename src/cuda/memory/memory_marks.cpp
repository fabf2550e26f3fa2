#include "cuda/memory/memory_marks.h"

namespace dapple::cuda {

void mark_free(const Stream&, std::byte*, Bytes) {}
void mark_used(const Stream&, std::byte*, Bytes) {}

}  // namespace dapple::cuda
