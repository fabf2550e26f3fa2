#include "dapple/exec/gpu/cuda_reduction_buffer.h"

#include <span>
#include <utility>

#include "dapple/core/error.h"
#include "dapple/cuda/kernels/arrays.h"

namespace dapple::exec {
namespace {

constexpr std::size_t kFloat = sizeof(float);

cuda::View floats_at(std::byte* address, std::size_t size) {
  return {address, cuda::Type::Float32, static_cast<std::int64_t>(size / kFloat)};
}

}  // namespace

CudaReductionBuffer::CudaReductionBuffer(CudaReductions& reductions, const cuda::View& numbers,
                                         std::vector<cuda::View> others, cuda::Event complete)
    : reductions_(reductions),
      numbers_(numbers),
      others_(std::move(others)),
      complete_(std::move(complete)) {}

cuda::View CudaReductionBuffer::at(ElementRange range) const {
  return numbers_.part(static_cast<std::int64_t>(range.begin),
                       static_cast<std::int64_t>(range.end));
}

void CudaReductionBuffer::begin() {
  cuda::make_current(reductions_.gpu);
  stream().wait_for(complete_);
  for (const cuda::View& own : others_) cuda::add(stream(), own, numbers_);
}

Payload CudaReductionBuffer::give_out(ElementRange range) {
  return Payload(
      std::make_unique<CudaBytes>(reductions_.downloads, at(range).bytes(), recorded_on(stream())));
}

CudaBytes* CudaReductionBuffer::on_this_gpu(ElementRange range, Payload& payload) const {
  check(payload.size() == range.size() * kFloat, "a message has another size than its values");
  CudaBytes* bytes = cuda_bytes_of(payload);
  if (bytes != nullptr && bytes->gpu() == reductions_.gpu) return bytes;
  payload.bring_to_host();
  cuda::make_current(reductions_.gpu);  // the copy has made the sender's GPU current
  return nullptr;
}

void CudaReductionBuffer::add(ElementRange range, Payload payload) {
  const cuda::View sum = at(range);
  if (CudaBytes* bytes = on_this_gpu(range, payload)) {
    stream().wait_for(bytes->ready());
    cuda::add(stream(), floats_at(bytes->address(), bytes->size()), sum);
    bytes->release_after(stream());
    return;
  }
  reductions_.staging.pass(payload.host(), stream(),
                           [&](std::span<std::byte> pinned, std::size_t begin) {
                             const auto first = static_cast<std::int64_t>(begin / kFloat);
                             const cuda::View addend = floats_at(pinned.data(), pinned.size());
                             cuda::add(stream(), addend, sum.part(first, first + addend.count));
                           });
}

void CudaReductionBuffer::replace(ElementRange range, Payload payload) {
  const cuda::View values = at(range);
  if (CudaBytes* bytes = on_this_gpu(range, payload)) {
    stream().wait_for(bytes->ready());
    cuda::copy(stream(), floats_at(bytes->address(), bytes->size()), values);
    bytes->release_after(stream());
    return;
  }
  reductions_.staging.upload(payload.host(), values.address, stream());
}

}  // namespace dapple::exec
