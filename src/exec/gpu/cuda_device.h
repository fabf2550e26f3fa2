// A plan's device on a GPU: its memory and streams, when they did what, and messages from and to
// other devices. What training and replaying have in common.
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

class CudaDevice {
 public:
  CudaDevice(int gpu, Bytes memory)
      : memory_(gpu, memory),
        reductions_{.gpu = gpu, .downloads = std::make_shared<CudaDownloads>(memory_)} {}

  cuda::Device& memory() { return memory_; }
  const cuda::Stream& compute() const { return memory_.compute(); }

  /// Of an iteration.
  void begin();
  /// From any thread.
  Mark mark(Stream stream);
  std::int64_t moment_of(const Mark& mark) const { return marks_.moment_of(mark); }

  /// On the stream of computation, behind what made it.
  void take_in(Payload payload, std::span<std::byte> target);
  /// What that stream has been given so far to make: in memory that goes with it, or that stays
  /// until the iteration is over.
  Payload give_out(cuda::Buffer memory);
  Payload give_out(std::span<std::byte> lasting);

  /// Gradients that are complete, to be reduced in another thread, once `others` have been added.
  std::unique_ptr<ReductionBuffer> buffer(const cuda::View& gradients,
                                          std::vector<cuda::View> others);
  /// Has computation wait for all reductions that are over in their threads.
  void await_reductions();

 private:
  cuda::Device memory_;
  CudaReductions reductions_;
  CudaMarks marks_;
};

}  // namespace dapple::exec
