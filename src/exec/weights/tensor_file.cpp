#include "dapple/exec/weights/tensor_file.h"

#include "dapple/io/files/read_file.h"
#include "exec/weights/safetensors.h"

namespace dapple::exec {

std::string read_tensor_file(const std::string& path, const std::string& source_name) {
  constexpr std::size_t kLengthSize = 8;
  if (const auto start = io::look_at_file(path, kLengthSize)) {
    safetensors_header_length(start->bytes, start->size, source_name);
  }
  return io::read_file(path, kMostTrainingBytes);
}

}  // namespace dapple::exec
