#include "dapple/cuda/memory/tensor.h"

#include <span>
#include <utility>
#include <vector>

#include "dapple/cuda/kernels/arrays.h"

namespace dapple::cuda {

DeviceTensor make_tensor(Device& device, nn::Shape shape, Type type) {
  const Bytes size{nn::count_of(shape) * size_of(type)};
  return {std::move(shape), type, device.allocate(size)};
}

DeviceTensor to_device(Device& device, const nn::Tensor& tensor, Type type) {
  DeviceTensor exact = make_tensor(device, tensor.shape, Type::Float32);
  device.upload(std::as_bytes(std::span(tensor.values)), exact.memory.address(), device.compute());
  if (type == Type::Float32) return exact;
  DeviceTensor rounded = make_tensor(device, tensor.shape, type);
  copy(device.compute(), exact.view(), rounded.view());
  return rounded;
}

nn::Tensor to_host(Device& device, const DeviceTensor& tensor) {
  if (tensor.type != Type::Float32) {
    const DeviceTensor exact = make_tensor(device, tensor.shape, Type::Float32);
    copy(device.compute(), tensor.view(), exact.view());
    return to_host(device, exact);
  }
  nn::Tensor host = nn::zeros(tensor.shape);
  device.download(tensor.memory.address(), std::as_writable_bytes(std::span(host.values)),
                  device.compute());
  return host;
}

}  // namespace dapple::cuda
