// Replays a plan on a GPU. All numbers are zeros, which are sent, copied and added like those of a
// training.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "dapple/core/error.h"
#include "dapple/cuda/kernels/arrays.h"
#include "dapple/cuda/kernels/spin.h"
#include "dapple/cuda/memory/tensor.h"
#include "dapple/exec/gpu/cuda_backend.h"
#include "exec/gpu/cuda_device.h"
#include "exec/replay/replay_backend.h"

namespace dapple::exec {
namespace {

/// The largest sizes that any single action of a device sends, receives and reduces.
struct LargestMessages {
  Bytes sent;
  Bytes received;
  Bytes reduced;

  explicit LargestMessages(const DeviceSchedule& device) {
    for (const DeviceAction& entry : device.actions) {
      switch (entry.action.kind) {
        case ActionKind::SendActivation:
        case ActionKind::SendGradient:
          sent = std::max(sent, entry.size);
          break;
        case ActionKind::ReceiveActivation:
        case ActionKind::ReceiveGradient:
          received = std::max(received, entry.size);
          break;
        case ActionKind::AllReduce:
        case ActionKind::ReduceTied:
          reduced = std::max(reduced, entry.size);
          break;
        default:
          break;
      }
    }
  }

  /// Returns the sum of the sizes, plus a margin for rounding and small allocations.
  Bytes with_rounding() const {
    constexpr Bytes kSmallPieces{16'384};
    return sent + received + reduced + kSmallPieces;
  }
};

/// Stands in for the computation. The send buffer is only read and the receive buffer only written,
/// and all buckets share one buffer: all of them hold zeros, so the order of use does not matter.
class CudaStandIn {
 public:
  static constexpr Memory kMemory = Memory::Device;

  CudaStandIn(const LargestMessages& largest, int gpu)
      : on_gpu_(gpu, largest.with_rounding()),
        spin_(on_gpu_.memory()),
        sent_(zeros(largest.sent)),
        received_(zeros(largest.received)),
        reduced_(zeros(largest.reduced)) {}

  void begin() { on_gpu_.begin(); }
  Mark mark(Stream stream) { return on_gpu_.mark(stream); }
  std::int64_t moment_of(const Mark& mark) { return on_gpu_.moment_of(mark); }

  void start() { spin_.restart(); }
  void pass_until(Duration moment) { spin_.pass_until(moment); }

  void take_in(Payload payload) {
    const std::size_t size = payload.size();
    on_gpu_.take_in(std::move(payload), first(received_, size));
  }
  Payload give_out(Bytes size) {
    return on_gpu_.give_out(first(sent_, static_cast<std::size_t>(size.count)));
  }

  std::unique_ptr<ReductionBuffer> buffer(Bytes size) {
    const cuda::View numbers = floats_in(reduced_, size);
    check(numbers.size() <= reduced_.size(), "a bucket is larger than any of the schedule");
    return on_gpu_.buffer(numbers, {});
  }
  void await_reductions() { on_gpu_.await_reductions(); }

 private:
  /// Returns as many floats as `size` bytes contain, rounded up.
  static cuda::View floats_in(const cuda::Buffer& memory, Bytes size) {
    constexpr std::int64_t kNumber = cuda::size_of(cuda::Type::Float32);
    return {memory.address(), cuda::Type::Float32, (size.count + kNumber - 1) / kNumber};
  }
  cuda::Buffer zeros(Bytes size) {
    cuda::Buffer memory = on_gpu_.memory().allocate(floats_in({}, size).size());
    cuda::fill_with_zeros(on_gpu_.compute(), floats_in(memory, size));
    return memory;
  }
  static std::span<std::byte> first(const cuda::Buffer& memory, std::size_t size) {
    check(size <= static_cast<std::size_t>(memory.size().count),
          "a message is larger than any of the schedule");
    return {memory.address(), size};
  }

  CudaDevice on_gpu_;
  cuda::Spin spin_;
  cuda::Buffer sent_;
  cuda::Buffer received_;
  cuda::Buffer reduced_;
};

}  // namespace

std::unique_ptr<Backend> make_cuda_replay_backend(const ReplayedDevice& device,
                                                  const ReplayPace& pace, int gpu) {
  usable_gpus();
  return std::make_unique<ReplayBackend<CudaStandIn>>(
      device, pace, std::make_unique<CudaStandIn>(LargestMessages(device.schedule), gpu));
}

}  // namespace dapple::exec
