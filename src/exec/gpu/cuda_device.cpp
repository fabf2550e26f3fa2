#include "exec/gpu/cuda_device.h"

#include <utility>

#include "dapple/core/error.h"
#include "dapple/cuda/kernels/arrays.h"

namespace dapple::exec {

void CudaDevice::begin() {
  memory_.make_current();
  marks_.begin(compute());
}

Mark CudaDevice::mark(Stream stream) {
  memory_.make_current();  // the calling thread may be any
  return marks_.mark(stream == Stream::Collective ? reductions_.stream : compute());
}

void CudaDevice::take_in(Payload payload, std::span<std::byte> target) {
  check(payload.size() == target.size(), "a message has another size than its values");
  CudaBytes* bytes = cuda_bytes_of(payload);
  if (bytes == nullptr) return memory_.upload(payload.host(), target.data(), compute());
  compute().wait_for(bytes->ready());
  cuda::copy(compute(), std::span<const std::byte>(bytes->address(), bytes->size()), target);
  bytes->release_after(compute());
}

Payload CudaDevice::give_out(cuda::Buffer memory) {
  return Payload(std::make_unique<CudaBytes>(reductions_.downloads, std::move(memory),
                                             recorded_on(compute())));
}

Payload CudaDevice::give_out(std::span<std::byte> lasting) {
  return Payload(
      std::make_unique<CudaBytes>(reductions_.downloads, lasting, recorded_on(compute())));
}

std::unique_ptr<ReductionBuffer> CudaDevice::buffer(const cuda::View& gradients,
                                                    std::vector<cuda::View> others) {
  return std::make_unique<CudaReductionBuffer>(reductions_, gradients, std::move(others),
                                               recorded_on(compute()));
}

void CudaDevice::await_reductions() {
  compute().wait_for(recorded_on(reductions_.stream));
}

}  // namespace dapple::exec
