#include "exec/gpu/cuda_group.h"

#include <utility>

#include "dapple/core/error.h"
#include "dapple/cuda/kernels/arrays.h"

namespace dapple::exec {
namespace {

void copy_unless_same(const cuda::Stream& stream, const cuda::View& from, const cuda::View& to) {
  check(from.count == to.count, "a rank has another size than the others");
  if (from.address != to.address) cuda::copy(stream, from, to);
}

/// Returns numbers of two bytes as half as many of four.
cuda::View in_pairs(const cuda::View& numbers) {
  return {numbers.address, cuda::Type::Float32, numbers.count / 2};
}

Payload copied(CudaDevice& device, const cuda::View& from) {
  cuda::Buffer memory = device.memory().allocate(from.size());
  cuda::copy(device.compute(), from, {memory.address(), from.type, from.count});
  return device.give_out(std::move(memory));
}

/// Copies a message to memory of the device. What lies in another GPU's memory passes through the
/// host.
void take_in_from_any_gpu(CudaDevice& device, Payload payload, const cuda::View& to) {
  CudaBytes* bytes = cuda_bytes_of(payload);
  if (bytes != nullptr && bytes->gpu() != device.memory().ordinal()) {
    payload.bring_to_host();
    device.memory().make_current();  // the copy has made the sender's GPU current
  }
  device.take_in(std::move(payload), to.bytes());
}

}  // namespace

cuda::View CudaGroupBuffer::at(ElementRange range) const {
  return numbers_.part(static_cast<std::int64_t>(range.begin),
                       static_cast<std::int64_t>(range.end));
}

Payload CudaGroupBuffer::give_out(ElementRange range) {
  const cuda::View from = at(range);
  return sent_ == Sent::InPlace ? device_.give_out(from.bytes()) : copied(device_, from);
}

/// What lies in another GPU's memory passes through the host.
void CudaGroupBuffer::add(ElementRange range, Payload payload) {
  const cuda::View sum = at(range);
  check(payload.size() == sum.bytes().size(), "a message has another size than its values");
  CudaBytes* bytes = cuda_bytes_of(payload);
  if (bytes != nullptr && bytes->gpu() == device_.memory().ordinal()) {
    stream().wait_for(bytes->ready());
    cuda::add(stream(), {bytes->address(), cuda::Type::Float32, sum.count}, sum);
    bytes->release_after(stream());
    return;
  }
  payload.bring_to_host();
  device_.memory().make_current();  // the copy has made the sender's GPU current
  const cuda::Buffer memory = device_.memory().allocate(sum.size());
  device_.memory().upload(payload.host(), memory.address(), stream());
  cuda::add(stream(), {memory.address(), cuda::Type::Float32, sum.count}, sum);
}

void CudaGroupBuffer::replace(ElementRange range, Payload payload) {
  take_in_from_any_gpu(device_, std::move(payload), at(range));
}

Payload CudaGroupExchange::give_out(std::size_t member) {
  return copied(device_, to_[member]);
}

void CudaGroupExchange::take_in(std::size_t member, Payload payload) {
  take_in_from_any_gpu(device_, std::move(payload), from_[member]);
}

cuda::View CudaGroup::own_part(const cuda::View& all) const {
  const ElementRange own = collectives_.own_part(static_cast<std::size_t>(all.count));
  return all.part(static_cast<std::int64_t>(own.begin), static_cast<std::int64_t>(own.end));
}

cuda::DeviceTensor CudaGroup::in_single_precision(const cuda::View& numbers) {
  cuda::DeviceTensor copy =
      cuda::make_tensor(device_.memory(), {numbers.count}, cuda::Type::Float32);
  cuda::copy(device_.compute(), numbers, copy.view());
  return copy;
}

void CudaGroup::all_reduce(cuda::View values) {
  if (values.type == cuda::Type::Float32) {
    CudaGroupBuffer buffer(device_, values, CudaGroupBuffer::Sent::Copied);
    return collectives_.all_reduce(buffer);
  }
  const cuda::DeviceTensor sums = in_single_precision(values);
  all_reduce(sums.view());
  cuda::copy(device_.compute(), sums.view(), values);
}

/// Whether all parts of numbers of two bytes are whole numbers of four bytes.
bool CudaGroup::passes_as_it_is(const cuda::View& all) const {
  const std::int64_t part = own_part(all).count;
  const bool are_equal = all.count == part * collectives_.ranks();
  const bool is_aligned = reinterpret_cast<std::uintptr_t>(all.address) % alignof(float) == 0;
  return are_equal && is_aligned && part % 2 == 0;
}

void CudaGroup::all_gather(cuda::View own, cuda::View all, CudaGroupBuffer::Sent sent) {
  const cuda::Stream& stream = device_.compute();
  copy_unless_same(stream, own, own_part(all));
  const bool is_single = all.type == cuda::Type::Float32;
  if (is_single || passes_as_it_is(all)) {
    CudaGroupBuffer buffer(device_, is_single ? all : in_pairs(all), sent);
    return collectives_.all_gather(buffer);
  }
  const cuda::DeviceTensor wide = in_single_precision(all);
  CudaGroupBuffer buffer(device_, wide.view(), CudaGroupBuffer::Sent::Copied);
  collectives_.all_gather(buffer);
  cuda::copy(stream, wide.view(), all);
}

void CudaGroup::reduce_scatter(cuda::View all, cuda::View own, CudaGroupBuffer::Sent sent) {
  const cuda::Stream& stream = device_.compute();
  if (all.type == cuda::Type::Float32) {
    CudaGroupBuffer buffer(device_, all, sent);
    collectives_.reduce_scatter(buffer);
    return copy_unless_same(stream, own_part(all), own);
  }
  const cuda::DeviceTensor wide = in_single_precision(all);
  CudaGroupBuffer buffer(device_, wide.view(), CudaGroupBuffer::Sent::Copied);
  collectives_.reduce_scatter(buffer);
  cuda::copy(stream, own_part(wide.view()), own);
}

void CudaGroup::all_to_all(std::span<const cuda::View> to, std::span<const cuda::View> from) {
  const auto own = static_cast<std::size_t>(collectives_.rank());
  cuda::copy(device_.compute(), to[own], from[own]);
  CudaGroupExchange messages(device_, to, from);
  collectives_.all_to_all(messages);
}

RankCollectives& collectives_of(nn::RankGroup& group) {
  auto* collectives = dynamic_cast<RankCollectives*>(&group);
  check(collectives != nullptr, "a group on GPUs has other collectives than ranks have");
  return *collectives;
}

}  // namespace dapple::exec
