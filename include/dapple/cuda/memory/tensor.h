// Numbers in a device's memory. Shapes are those of nn: the first dimension counts samples, the
// last one is the fastest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "dapple/core/quantity.h"
#include "dapple/cuda/memory/device.h"
#include "dapple/nn/tensor.h"

namespace dapple::cuda {

enum class Type { Float32, BFloat16, Float16, Int32 };

/// Of one number.
constexpr std::int64_t size_of(Type type) {
  return type == Type::Float32 || type == Type::Int32 ? 4 : 2;
}

/// What is multiplied; sums, norms, softmax and gradients of weights are in single precision
/// throughout.
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

/// Numbers that lie in memory of someone else's, anywhere that their type may lie. Fastest where
/// they begin at a multiple of 16 bytes.
struct View {
  std::byte* address = nullptr;
  Type type = Type::Float32;
  std::int64_t count = 0;

  Bytes size() const { return {count * size_of(type)}; }
  std::span<std::byte> bytes() const { return {address, static_cast<std::size_t>(size().count)}; }
  /// Numbers [begin, end). Requires: 0 <= begin <= end <= count.
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

/// Whatever was there.
DeviceTensor make_tensor(Device& device, nn::Shape shape, Type type);

/// On the compute stream, rounded to the type; token numbers to Int32.
DeviceTensor to_device(Device& device, const nn::Tensor& tensor, Type type);

/// The calling thread waits for it.
nn::Tensor to_host(Device& device, const DeviceTensor& tensor);

}  // namespace dapple::cuda
