// A group of devices among which NCCL carries messages, seen from one member. Every transfer is
// enqueued on a stream; only the constructor waits for other devices.
#pragma once

#include <nccl.h>

#include <array>
#include <cstddef>
#include <functional>
#include <mutex>
#include <span>
#include <vector>

#include "dapple/cuda/memory/device.h"
#include "dapple/cuda/memory/tensor.h"

namespace dapple::exec {

/// The identifier by which the members of a communicator find each other.
using NcclId = std::array<std::byte, NCCL_UNIQUE_ID_BYTES>;

/// Creates a new identifier. Throws Error(Environment) if NCCL fails, as do all other functions
/// here.
NcclId draw_nccl_id();

/// One member's NCCL communicator. All functions but the destructor and abort() throw JobAborted
/// once it has been aborted.
class NcclCommunicator {
 public:
  /// Called repeatedly while an operation is in progress; throws to end the wait.
  using KeepOn = std::function<void()>;

  /// Creates member `member` of `size` on the calling thread's GPU. Returns once all members have
  /// joined.
  NcclCommunicator(const NcclId& id, int size, int member, KeepOn keep_on);
  /// Does not wait for other members if the communicator has been finalized or aborted.
  ~NcclCommunicator();
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  /// Sends or receives `size` bytes. The sends to a member match its receives in the order of the
  /// calls.
  void send(const std::byte* address, std::size_t size, int to, const cuda::Stream& stream);
  void receive(std::byte* address, std::size_t size, int from, const cuda::Stream& stream);
  /// Sums in place. Requires: float32, and the same number of elements on each member.
  void all_reduce(const cuda::View& numbers, const cuda::Stream& stream);
  /// Sum parts in place, each on its member, or send each from its member to all others. `parts`
  /// has one for each member, of any sizes, the same on each member. Require: float32, and that no
  /// two parts overlap.
  void reduce_scatter(const std::vector<cuda::View>& parts, const cuda::Stream& stream);
  void all_gather(const std::vector<cuda::View>& parts, const cuda::Stream& stream);
  /// Sends `to[m]` to member m, and sets `from[m]` to what that one sends. Any may be empty, and
  /// nothing passes between a member and itself.
  void all_to_all(std::span<const cuda::View> to, std::span<const cuda::View> from,
                  const cuda::Stream& stream);

  /// Starts finalization without waiting; nothing more may be enqueued. The communicator is
  /// finalized once all members have completed their enqueued work and have called this function.
  void finalize();
  bool is_finalized();

  /// Throws if an asynchronous error has occurred.
  void look();
  /// Ends pending operations as if they had completed; may be called from any thread.
  void abort() noexcept;

 private:
  template <class Call>
  ncclResult_t begin(Call call);
  template <class Call>
  void enqueue(const char* name, Call call);
  template <class Call>
  void enqueue_together(const char* name, std::size_t calls, Call call);
  template <class Call>
  void enqueue_each(const char* name, const std::vector<cuda::View>& parts, Call call);
  void settle(const char* name, ncclResult_t result);
  ncclResult_t state(const char* name);

  const KeepOn keep_on_;
  /// Serializes the calls of NCCL; none is made after an abort.
  std::mutex mutex_;
  ncclComm_t communicator_ = nullptr;
  const int member_;
};

}  // namespace dapple::exec
