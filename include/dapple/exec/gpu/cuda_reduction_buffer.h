// Gradients in GPU memory that are reduced there, concurrently with the computation.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "dapple/cuda/memory/device.h"
#include "dapple/cuda/memory/tensor.h"
#include "dapple/exec/gpu/cuda_bytes.h"
#include "dapple/exec/message/all_reduce.h"

namespace dapple::exec {

/// Resources that all reductions of a device share. Only one thread at a time reduces.
struct CudaReductions {
  int gpu = 0;
  std::shared_ptr<CudaDownloads> downloads;
  cuda::Stream stream{cuda::Stream::Priority::High};
  /// Staging memory for addends from other processes.
  cuda::Staging staging = {};
};

/// Float32 numbers in GPU memory, with what transports need that reduce by themselves.
class CudaNumbers : public ReductionBuffer {
 public:
  std::size_t size() const override { return static_cast<std::size_t>(numbers().count); }
  Memory memory() const override { return Memory::Device; }

  virtual const cuda::View& numbers() const = 0;
  /// The stream on which to reduce them.
  virtual const cuda::Stream& stream() const = 0;
};

/// A range of gradients, or of parameters, that is reduced beside the computation.
class CudaReductionBuffer : public CudaNumbers {
 public:
  /// Reduces or gathers `numbers` (float32). `others`, each with as many elements, are first added
  /// to it. All of them are valid after `complete`.
  CudaReductionBuffer(CudaReductions& reductions, const cuda::View& numbers,
                      std::vector<cuda::View> others, cuda::Event complete);

  void begin() override;
  Payload give_out(ElementRange range) override;
  void add(ElementRange range, Payload payload) override;
  void replace(ElementRange range, Payload payload) override;

  const cuda::View& numbers() const override { return numbers_; }
  const cuda::Stream& stream() const override { return reductions_.stream; }

 private:
  cuda::View at(ElementRange range) const;
  /// Returns the payload's bytes if they lie on this GPU; otherwise copies the payload to the host
  /// and returns null.
  CudaBytes* on_this_gpu(ElementRange range, Payload& payload) const;

  CudaReductions& reductions_;
  cuda::View numbers_;
  std::vector<cuda::View> others_;
  cuda::Event complete_;
};

}  // namespace dapple::exec
