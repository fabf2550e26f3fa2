// Tensors under names as a file, as huggingface.co/docs/safetensors has it: the header's length in
// 8 bytes, a JSON header of names, kinds of numbers, shapes and offsets, then the tensors without
// gaps; little-endian.
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

/// Where the file's texts are.
inline constexpr const char* kMetadata = "__metadata__";

struct StoredTensor {
  std::string kind;  // of number, as the file has it: "F32", "BF16", ...
  nn::Shape shape;
  std::string_view bytes;  // of the file
};

struct StoredTensors {
  std::map<std::string, std::string> metadata;
  std::map<std::string, StoredTensor> tensors;
};

/// By the first 8 bytes of a file of that size. Throws Error(BadInput) where no header can be so
/// long. Requires: those bytes, where the file has them.
std::uint64_t safetensors_header_length(std::string_view beginning, std::uint64_t file_size,
                                        const std::string& source_name);

/// Throws Error(BadInput) with the first fault: cut off, no JSON, keys that are there twice, a kind
/// of number that is none, offsets that do not fit a shape, overlap or leave gaps. Tensors may be
/// empty. The result shows parts of `bytes`. O(header * log(tensors)).
StoredTensors read_safetensors(std::string_view bytes, const std::string& source_name);

/// In single precision. Throws Error(BadInput) where they are no F32, F16 or BF16, or some are not
/// finite.
nn::Tensor values_of(const std::string& name, const StoredTensor& stored,
                     const std::string& source_name);

/// A JSON pointer to a tensor's entry, or to one of the texts.
std::string place_of_tensor(const std::string& name);
std::string place_of_text(const std::string& key);

[[noreturn]] void refuse_file(const std::string& source_name, const std::string& place,
                              std::string message);

/// Where a tensor is missing, or has that shape.
Violation tensor_fault(const std::string& name, const nn::Shape& expected,
                       const std::optional<nn::Shape>& got);

/// With how many more there are; `guess` says what may be the matter then. Nothing if there is
/// none.
std::optional<Violation> first_of(std::vector<Violation> faults, const char* guess);

/// All F32, in the order of their names. O(bytes).
std::string write_safetensors(const std::vector<std::pair<std::string, std::string>>& metadata,
                              const NamedTensors& tensors);

}  // namespace dapple::exec
