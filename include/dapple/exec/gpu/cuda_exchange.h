// What the ranks of a group send to each other from GPU memory.
#pragma once

#include <cstddef>
#include <span>

#include "dapple/cuda/memory/device.h"
#include "dapple/cuda/memory/tensor.h"
#include "dapple/exec/message/all_to_all.h"

namespace dapple::exec {

/// Arrays in GPU memory, with what transports need that exchange them by themselves.
class CudaExchange : public ExchangeBuffer {
 public:
  Memory memory() const override { return Memory::Device; }
  std::size_t sent(std::size_t member) const override { return to()[member].bytes().size(); }
  std::size_t received(std::size_t member) const override { return from()[member].bytes().size(); }

  /// One for each member, in their order.
  virtual std::span<const cuda::View> to() const = 0;
  virtual std::span<const cuda::View> from() const = 0;
  /// The stream on which they are computed and used.
  virtual const cuda::Stream& stream() const = 0;
};

}  // namespace dapple::exec
