// The collectives of a group's ranks on GPUs: RankCollectives over numbers in a device's memory.
// They are in the order of the compute stream, as all that computes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "dapple/cuda/modules/shared_layers.h"
#include "dapple/exec/gpu/cuda_exchange.h"
#include "dapple/exec/gpu/cuda_reduction_buffer.h"
#include "exec/gpu/cuda_device.h"
#include "exec/train/rank_collectives.h"

namespace dapple::exec {

/// Float32 numbers of one collective.
class CudaGroupBuffer : public CudaNumbers {
 public:
  /// Whether what is sent as messages is copied first: the tensors of a computation are used again
  /// before other devices have read what was sent of them.
  enum class Sent { Copied, InPlace };

  /// The device must outlive it. Requires: Float32.
  CudaGroupBuffer(CudaDevice& device, const cuda::View& numbers, Sent sent)
      : device_(device), numbers_(numbers), sent_(sent) {}

  Payload give_out(ElementRange range) override;
  void add(ElementRange range, Payload payload) override;
  void replace(ElementRange range, Payload payload) override;

  const cuda::View& numbers() const override { return numbers_; }
  const cuda::Stream& stream() const override { return device_.compute(); }

 private:
  cuda::View at(ElementRange range) const;

  CudaDevice& device_;
  cuda::View numbers_;
  Sent sent_;
};

/// Arrays that one rank of a group sends and takes in. What is sent as messages is copied first, as
/// the tensors of a computation are used again.
class CudaGroupExchange : public CudaExchange {
 public:
  /// The device, and the views of one for each rank, must outlive it.
  CudaGroupExchange(CudaDevice& device, std::span<const cuda::View> to,
                    std::span<const cuda::View> from)
      : device_(device), to_(to), from_(from) {}

  Payload give_out(std::size_t member) override;
  void take_in(std::size_t member, Payload payload) override;

  std::span<const cuda::View> to() const override { return to_; }
  std::span<const cuda::View> from() const override { return from_; }
  const cuda::Stream& stream() const override { return device_.compute(); }

 private:
  CudaDevice& device_;
  std::span<const cuda::View> to_;
  std::span<const cuda::View> from_;
};

/// A rank's group on its device. Numbers of two bytes are summed, and sent to be summed, in single
/// precision; they are gathered as they are where ranks have as many, an even number of them.
class CudaGroup : public cuda::DeviceGroup {
 public:
  /// Both must outlive it.
  CudaGroup(CudaDevice& device, RankCollectives& collectives)
      : device_(device), collectives_(collectives) {}

  void all_reduce(cuda::View values) override;
  void all_gather(cuda::View own, cuda::View all) override {
    all_gather(own, all, CudaGroupBuffer::Sent::Copied);
  }
  void reduce_scatter(cuda::View all, cuda::View own) override {
    reduce_scatter(all, own, CudaGroupBuffer::Sent::Copied);
  }

  std::vector<std::vector<std::int64_t>> exchange_counts(
      const std::vector<std::vector<std::int64_t>>& to) override {
    return collectives_.exchange(to);
  }
  void all_to_all(std::span<const cuda::View> to, std::span<const cuda::View> from) override;

  /// The same of numbers that may be sent in place, in single precision.
  void all_gather(cuda::View own, cuda::View all, CudaGroupBuffer::Sent sent);
  void reduce_scatter(cuda::View all, cuda::View own, CudaGroupBuffer::Sent sent);

 private:
  cuda::View own_part(const cuda::View& all) const;
  cuda::DeviceTensor in_single_precision(const cuda::View& numbers);
  bool passes_as_it_is(const cuda::View& all) const;

  CudaDevice& device_;
  RankCollectives& collectives_;
};

/// Returns the collectives of a group that this program has made. Throws Bug if it is another one.
RankCollectives& collectives_of(nn::RankGroup& group);

}  // namespace dapple::exec
