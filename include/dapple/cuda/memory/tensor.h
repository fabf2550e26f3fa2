// Arrays and tensors in a device's memory. Shapes are those of nn: the first dimension counts
// samples, the last one is contiguous.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "dapple/core/quantity.h"
#include "dapple/cuda/memory/device.h"
#include "dapple/nn/tensor.h"

namespace dapple::cuda {

enum class Type { Float32, BFloat16, Float16, Int32 };

/// Returns the bytes of one number.
constexpr std::int64_t size_of(Type type) {
  return type == Type::Float32 || type == Type::Int32 ? 4 : 2;
}

/// The type of the factors of products; sums, norms, softmax and weight gradients are in single
/// precision throughout.
enum class Precision { Float32, BFloat16, Float16 };

constexpr Type type_of(Precision precision) {
  switch (precision) {
    case Precision::BFloat16:
      return Type::BFloat16;
    case Precision::Float16:
      return Type::Float16;
    case Precision::Float32:
      break;
  }
  return Type::Float32;
}

/// Numbers in memory that the view does not own, at any address allowed for their type. Access is
/// fastest if they begin at a multiple of 16 bytes.
struct View {
  std::byte* address = nullptr;
  Type type = Type::Float32;
  std::int64_t count = 0;

  Bytes size() const { return {count * size_of(type)}; }
  std::span<std::byte> bytes() const { return {address, static_cast<std::size_t>(size().count)}; }
  /// Returns numbers [begin, end). Requires: 0 <= begin <= end <= count.
  View part(std::int64_t begin, std::int64_t end) const {
    return {address + begin * size_of(type), type, end - begin};
  }
};

struct DeviceTensor {
  nn::Shape shape;
  Type type = Type::Float32;
  Buffer memory;

  std::int64_t samples() const { return shape.front(); }
  std::int64_t count() const { return nn::count_of(shape); }
  View view() const { return {memory.address(), type, count()}; }
};

/// Returns a tensor with undefined contents.
DeviceTensor make_tensor(Device& device, nn::Shape shape, Type type);

/// Copies a tensor on the compute stream, rounded to the type; token numbers become Int32.
DeviceTensor to_device(Device& device, const nn::Tensor& tensor, Type type);

/// Copies a tensor to the host; the calling thread waits for it.
nn::Tensor to_host(Device& device, const DeviceTensor& tensor);

}  // namespace dapple::cuda
