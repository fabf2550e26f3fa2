// One libFuzzer program per reader; the build names the entry.
#include <cstddef>
#include <cstdint>

#include "entries.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  dapple::fuzz::DAPPLE_FUZZ_ENTRY({reinterpret_cast<const char*>(bytes), size});
  return 0;
}
