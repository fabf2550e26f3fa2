// Reads and writes safetensors files (huggingface.co/docs/safetensors): the header's length in 8
// bytes, a JSON header with names, dtypes, shapes and offsets, then the tensors without gaps;
// little-endian.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dapple/core/error.h"
#include "dapple/exec/train/device_training.h"
#include "dapple/nn/tensor.h"

namespace dapple::exec {

/// The header's entry that has the file's metadata.
inline constexpr const char* kMetadata = "__metadata__";

struct StoredTensor {
  /// The dtype as the file names it: "F32", "BF16", ...
  std::string kind;
  nn::Shape shape;
  /// The tensor's part of the file.
  std::string_view bytes;
};

struct StoredTensors {
  std::map<std::string, std::string> metadata;
  std::map<std::string, StoredTensor> tensors;
};

/// Reads the header's length from the beginning of a file of size `file_size`. Throws
/// Error(BadInput) if no header can have that length or the file is too short. Requires:
/// `beginning` has the first 8 bytes, if the file has as many.
std::uint64_t safetensors_header_length(std::string_view beginning, std::uint64_t file_size,
                                        const std::string& source_name);

/// Reads a whole file. Throws Error(BadInput) with the first fault: a truncated file, invalid JSON,
/// duplicate keys, an unknown dtype, offsets that do not fit a shape, overlap or leave gaps.
/// Tensors may be empty. The result refers to `bytes`. O(header * log(tensors)).
StoredTensors read_safetensors(std::string_view bytes, const std::string& source_name);

/// Converts a tensor to single precision. Throws Error(BadInput) if its numbers are not F32, F16 or
/// BF16, or not all finite.
nn::Tensor values_of(const std::string& name, const StoredTensor& stored,
                     const std::string& source_name);

/// Return a JSON pointer to a tensor's entry, or to a text of the metadata.
std::string place_of_tensor(const std::string& name);
std::string place_of_text(const std::string& key);

/// Throws Error(BadInput).
[[noreturn]] void refuse_file(const std::string& source_name, const std::string& place,
                              std::string message);

/// Returns the fault of a tensor that is missing (`got` is empty) or has another shape.
Violation tensor_fault(const std::string& name, const nn::Shape& expected,
                       const std::optional<nn::Shape>& got);

/// Returns the first fault, or nothing if there is none. If there are more, it also says how many
/// and a `guess` at their cause.
std::optional<Violation> first_of(std::vector<Violation> faults, const char* guess);

/// Returns the bytes of a file with all tensors as F32, in the order of their names. O(bytes).
std::string write_safetensors(const std::vector<std::pair<std::string, std::string>>& metadata,
                              const NamedTensors& tensors);

}  // namespace dapple::exec
