// A plan's device on a GPU: its memory, streams and time marks, and its messages to and from other
// devices. Shared by training and replay.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "dapple/cuda/memory/device.h"
#include "dapple/cuda/memory/tensor.h"
#include "dapple/exec/gpu/cuda_reduction_buffer.h"
#include "dapple/exec/message/payload.h"
#include "dapple/schedule/schedule.h"
#include "exec/gpu/cuda_marks.h"

namespace dapple::exec {

/// A plan's device on a GPU.
class CudaDevice {
 public:
  CudaDevice(int gpu, Bytes memory)
      : memory_(gpu, memory),
        reductions_{.gpu = gpu, .downloads = std::make_shared<CudaDownloads>(memory_)} {}

  cuda::Device& memory() { return memory_; }
  const cuda::Stream& compute() const { return memory_.compute(); }

  /// Must be called before each iteration.
  void begin();
  /// May be called by any thread.
  Mark mark(Stream stream);
  std::int64_t moment_of(const Mark& mark) const { return marks_.moment_of(mark); }

  /// Copies the payload to `target` on the compute stream, after the work that produces it.
  void take_in(Payload payload, std::span<std::byte> target);
  /// Returns a message with the result of the work enqueued on the compute stream so far. It lies
  /// in a buffer that the message owns, or in memory that stays valid until the iteration is over.
  Payload give_out(cuda::Buffer memory);
  Payload give_out(std::span<std::byte> lasting);

  /// Returns complete gradients, to be reduced by another thread after `others` have been added to
  /// them.
  std::unique_ptr<ReductionBuffer> buffer(const cuda::View& gradients,
                                          std::vector<cuda::View> others);
  /// Makes the compute stream wait for all reductions that their threads have enqueued so far.
  void await_reductions();

 private:
  cuda::Device memory_;
  CudaReductions reductions_;
  CudaMarks marks_;
};

}  // namespace dapple::exec
