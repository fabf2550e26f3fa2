// Some devices among which NCCL carries messages, seen from one of them. Every call is enqueued on
// a stream; none waits for other devices but the constructor.
#pragma once

#include <nccl.h>

#include <array>
#include <cstddef>
#include <functional>
#include <mutex>

#include "dapple/cuda/memory/device.h"
#include "dapple/cuda/memory/tensor.h"

namespace dapple::exec {

/// By which its members find each other.
using NcclId = std::array<std::byte, NCCL_UNIQUE_ID_BYTES>;

/// Throws Error(Environment), as everything here.
NcclId draw_nccl_id();

class NcclCommunicator {
 public:
  /// Asked again and again while something takes time; throws to end it.
  using KeepOn = std::function<void()>;

  /// Member `member` of `size`, on the calling thread's GPU. Returns once all members are here.
  NcclCommunicator(const NcclId& id, int size, int member, KeepOn keep_on);
  /// Waits for nobody if it is finalized, or was aborted.
  ~NcclCommunicator();
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  /// Matched with the other member's receives in the order of the calls.
  void send(const std::byte* address, std::size_t size, int to, const cuda::Stream& stream);
  void receive(std::byte* address, std::size_t size, int from, const cuda::Stream& stream);
  /// In place. Requires: Float32, as many of each member.
  void all_reduce(const cuda::View& numbers, const cuda::Stream& stream);

  /// Nothing more is enqueued. Does not wait; it is finalized once all members have done what they
  /// were given, and called this.
  void finalize();
  bool is_finalized();

  /// Throws what has gone wrong since.
  void look();
  /// Ends what is under way, as if it had been done; from any thread.
  void abort() noexcept;

 private:
  template <class Call>
  ncclResult_t begin(Call call);
  template <class Call>
  void enqueue(const char* name, Call call);
  void settle(const char* name, ncclResult_t result);
  ncclResult_t state(const char* name);

  const KeepOn keep_on_;
  std::mutex mutex_;  // one call at a time, and none once it is aborted
  ncclComm_t communicator_ = nullptr;
};

}  // namespace dapple::exec
