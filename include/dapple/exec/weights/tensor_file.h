// Files of tensors in safetensors, which may be larger than memory: what is none of them is seen
// before it is read.
#pragma once

#include <cstddef>
#include <string>

namespace dapple::exec {

/// Whole file for read_checkpoint() or read_gpt2_weights(); "-" is stdin. Throws Error(Environment)
/// as read_file() and look_at_file() do, and Error(BadInput) of `source_name` where the length of
/// the header, with which the file begins, is none.
std::string read_tensor_file(const std::string& path, const std::string& source_name);

/// Up to this many bytes are read of any file that trainings go on from.
inline constexpr std::size_t kMostTrainingBytes = std::size_t{1} << 40;

}  // namespace dapple::exec
