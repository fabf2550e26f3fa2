#include "memory_marks.h"

namespace dapple::cuda {

void mark_free(std::byte*, Bytes) {}
void mark_used(std::byte*, Bytes) {}

}  // namespace dapple::cuda
