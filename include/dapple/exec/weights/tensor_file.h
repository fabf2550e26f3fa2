// Reading of safetensors files, which may be very large: a file of another format is recognized
// before it is read.
#pragma once

#include <cstddef>
#include <string>

namespace dapple::exec {

/// Reads a whole file for read_checkpoint() or read_gpt2_weights(); "-" is stdin. Throws
/// Error(Environment) as read_file() and look_at_file() do, and Error(BadInput) naming
/// `source_name` if the file does not begin with a valid header length.
std::string read_tensor_file(const std::string& path, const std::string& source_name);

/// The most bytes that are read of any file that a training continues from.
inline constexpr std::size_t kMostTrainingBytes = std::size_t{1} << 40;

}  // namespace dapple::exec
