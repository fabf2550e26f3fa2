// Gradients in a GPU's memory that are reduced there, beside the computation.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "dapple/cuda/memory/device.h"
#include "dapple/cuda/memory/tensor.h"
#include "dapple/exec/gpu/cuda_bytes.h"
#include "dapple/exec/message/all_reduce.h"

namespace dapple::exec {

/// What reductions of a device share. One thread at a time reduces.
struct CudaReductions {
  int gpu = 0;
  std::shared_ptr<CudaDownloads> downloads;
  cuda::Stream stream{cuda::Stream::Priority::High};
  cuda::Staging staging = {};  // of what comes from other processes
};

class CudaReductionBuffer : public ReductionBuffer {
 public:
  /// Float32, to which `others`, as many each, are added before they are reduced; all of them there
  /// after `complete`.
  CudaReductionBuffer(CudaReductions& reductions, const cuda::View& gradients,
                      std::vector<cuda::View> others, cuda::Event complete);

  std::size_t size() const override { return static_cast<std::size_t>(gradients_.count); }
  Memory memory() const override { return Memory::Device; }
  void begin() override;
  Payload give_out(ElementRange range) override;
  void add(ElementRange range, Payload payload) override;
  void replace(ElementRange range, Payload payload) override;

  /// For transports that reduce by themselves: where they lie, and the stream on which that is to
  /// be done.
  const cuda::View& gradients() const { return gradients_; }
  const cuda::Stream& stream() const { return reductions_.stream; }

 private:
  cuda::View at(ElementRange range) const;
  /// The payload's bytes if they lie on this GPU; else it is brought to the host.
  CudaBytes* on_this_gpu(ElementRange range, Payload& payload) const;

  CudaReductions& reductions_;
  cuda::View gradients_;
  std::vector<cuda::View> others_;
  cuda::Event complete_;
};

}  // namespace dapple::exec
