#include "dapple/command_line/freed_memory.h"

#include <malloc.h>

namespace dapple::command_line {

void keep_freed_memory() {
  constexpr int kGibibyte = 1 << 30;
  mallopt(M_MMAP_THRESHOLD, kGibibyte);
  mallopt(M_TRIM_THRESHOLD, kGibibyte);
}

}  // namespace dapple::command_line
