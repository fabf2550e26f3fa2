// Files of tensors as others may write them, sound ones and others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "dapple/nn/tensor.h"

namespace dapple::small {

/// The header's length, the header as it is, and what follows.
inline std::string safetensors_file(const std::string& header, const std::string& tensors) {
  const std::uint64_t length = header.size();
  std::string bytes(sizeof(length), '\0');
  std::memcpy(bytes.data(), &length, sizeof(length));
  return bytes + header + tensors;
}

/// With `size` bytes of tensors.
inline std::string safetensors_file(const std::string& header, std::size_t size) {
  return safetensors_file(header, std::string(size, '\0'));
}

struct TensorEntry {
  std::string name;
  std::string kind;
  nn::Shape shape;
  std::string bytes;
};

/// The entries one behind the other.
inline std::string safetensors_file(const std::vector<TensorEntry>& entries) {
  std::string header = "{";
  std::string tensors;
  for (const TensorEntry& each : entries) {
    const std::size_t begin = tensors.size();
    tensors += each.bytes;
    if (header.size() > 1) header += ',';
    header += "\"" + each.name + "\":{\"dtype\":\"" + each.kind + "\",\"shape\":[";
    for (std::size_t i = 0; i < each.shape.size(); ++i) {
      header += (i > 0 ? "," : "") + std::to_string(each.shape[i]);
    }
    header += "],\"data_offsets\":[" + std::to_string(begin) + "," +
              std::to_string(tensors.size()) + "]}";
  }
  return safetensors_file(header + "}", tensors);
}

}  // namespace dapple::small
