#include "dapple/exec/nccl/nccl_communicator.h"

#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "dapple/core/error.h"
#include "dapple/exec/message/transport.h"

#if NCCL_VERSION_CODE < NCCL_VERSION(2, 18, 0)
#error "expected NCCL of version 2.18 or later"
#endif

namespace dapple::exec {
namespace {

/// The interval between two polls of a call in progress.
constexpr std::chrono::microseconds kCallPollInterval(50);

void require_success(const char* name, ncclResult_t result) {
  if (result == ncclSuccess) return;
  throw Error(ErrorKind::Environment, "NCCL", {{name, ncclGetErrorString(result)}});
}

}  // namespace

NcclId draw_nccl_id() {
  ncclUniqueId drawn;
  require_success("ncclGetUniqueId", ncclGetUniqueId(&drawn));
  NcclId id;
  std::memcpy(id.data(), drawn.internal, id.size());
  return id;
}

NcclCommunicator::NcclCommunicator(const NcclId& id, int size, int member, KeepOn keep_on)
    : keep_on_(std::move(keep_on)), member_(member) {
  ncclUniqueId drawn;
  std::memcpy(drawn.internal, id.data(), id.size());
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const ncclResult_t result = ncclCommInitRankConfig(&communicator_, size, drawn, member, &config);
  try {
    settle("ncclCommInitRankConfig", result);
  } catch (...) {
    abort();
    throw;
  }
}

NcclCommunicator::~NcclCommunicator() {
  const std::lock_guard lock(mutex_);
  if (communicator_ != nullptr) static_cast<void>(ncclCommDestroy(communicator_));
}

template <class Call>
ncclResult_t NcclCommunicator::begin(Call call) {
  const std::lock_guard lock(mutex_);
  if (communicator_ == nullptr) throw JobAborted("a communicator was aborted");
  return call(communicator_);
}

/// Returns the state of the most recent call. Throws if that has failed.
ncclResult_t NcclCommunicator::state(const char* name) {
  ncclResult_t result = ncclSuccess;
  require_success(name, begin([&](ncclComm_t communicator) {
                    return ncclCommGetAsyncError(communicator, &result);
                  }));
  if (result != ncclInProgress) require_success(name, result);
  return result;
}

/// Waits for a call to complete, without holding the lock, so that the communicator can be aborted
/// meanwhile.
void NcclCommunicator::settle(const char* name, ncclResult_t result) {
  while (result == ncclInProgress) {
    keep_on_();
    std::this_thread::sleep_for(kCallPollInterval);
    result = state(name);
  }
  require_success(name, result);
}

template <class Call>
void NcclCommunicator::enqueue(const char* name, Call call) {
  settle(name, begin(call));
}

void NcclCommunicator::send(const std::byte* address, std::size_t size, int to,
                            const cuda::Stream& stream) {
  enqueue("ncclSend", [&](ncclComm_t communicator) {
    return ncclSend(address, size, ncclInt8, to, communicator, stream.handle());
  });
}

void NcclCommunicator::receive(std::byte* address, std::size_t size, int from,
                               const cuda::Stream& stream) {
  enqueue("ncclRecv", [&](ncclComm_t communicator) {
    return ncclRecv(address, size, ncclInt8, from, communicator, stream.handle());
  });
}

void NcclCommunicator::all_reduce(const cuda::View& numbers, const cuda::Stream& stream) {
  check(numbers.type == cuda::Type::Float32, "numbers of another type are reduced");
  enqueue("ncclAllReduce", [&](ncclComm_t communicator) {
    return ncclAllReduce(numbers.address, numbers.address, static_cast<std::size_t>(numbers.count),
                         ncclFloat32, ncclSum, communicator, stream.handle());
  });
}

/// Makes calls that NCCL runs together.
template <class Call>
void NcclCommunicator::enqueue_together(const char* name, std::size_t calls, Call call) {
  enqueue(name, [&](ncclComm_t communicator) {
    require_success("ncclGroupStart", ncclGroupStart());
    ncclResult_t last = ncclSuccess;
    for (std::size_t number = 0; number < calls; ++number) {
      if (last != ncclSuccess && last != ncclInProgress) break;
      const ncclResult_t result = call(communicator, number);
      if (result != ncclSuccess) last = result;
    }
    const ncclResult_t group = ncclGroupEnd();
    return group == ncclSuccess ? last : group;
  });
}

/// Makes one call for each part. NCCL has its own reduce-scatter and all-gather for parts of one
/// size only.
template <class Call>
void NcclCommunicator::enqueue_each(const char* name, const std::vector<cuda::View>& parts,
                                    Call call) {
  enqueue_together(name, parts.size(), [&](ncclComm_t communicator, std::size_t member) {
    const cuda::View& part = parts[member];
    check(part.type == cuda::Type::Float32, "numbers of another type are reduced");
    return part.count == 0 ? ncclSuccess : call(communicator, part, static_cast<int>(member));
  });
}

void NcclCommunicator::reduce_scatter(const std::vector<cuda::View>& parts,
                                      const cuda::Stream& stream) {
  enqueue_each("ncclReduce", parts, [&](ncclComm_t communicator, const cuda::View& part, int to) {
    return ncclReduce(part.address, part.address, static_cast<std::size_t>(part.count), ncclFloat32,
                      ncclSum, to, communicator, stream.handle());
  });
}

void NcclCommunicator::all_gather(const std::vector<cuda::View>& parts,
                                  const cuda::Stream& stream) {
  enqueue_each(
      "ncclBroadcast", parts, [&](ncclComm_t communicator, const cuda::View& part, int from) {
        return ncclBroadcast(part.address, part.address, static_cast<std::size_t>(part.count),
                             ncclFloat32, from, communicator, stream.handle());
      });
}

void NcclCommunicator::all_to_all(std::span<const cuda::View> to, std::span<const cuda::View> from,
                                  const cuda::Stream& stream) {
  const auto is_nothing = [&](std::size_t member, const cuda::View& message) {
    return static_cast<int>(member) == member_ || message.count == 0;
  };
  enqueue_together("ncclSend", 2 * to.size(), [&](ncclComm_t communicator, std::size_t number) {
    const std::size_t member = number / 2;
    const bool is_sent = number % 2 == 0;
    const cuda::View& message = is_sent ? to[member] : from[member];
    if (is_nothing(member, message)) return ncclSuccess;
    const std::size_t size = message.bytes().size();
    const int other = static_cast<int>(member);
    return is_sent
               ? ncclSend(message.address, size, ncclInt8, other, communicator, stream.handle())
               : ncclRecv(message.address, size, ncclInt8, other, communicator, stream.handle());
  });
}

void NcclCommunicator::finalize() {
  const ncclResult_t result = begin(ncclCommFinalize);
  if (result != ncclInProgress) require_success("ncclCommFinalize", result);
}

bool NcclCommunicator::is_finalized() {
  return state("ncclCommFinalize") == ncclSuccess;
}

void NcclCommunicator::look() {
  state("asynchronous error");
}

void NcclCommunicator::abort() noexcept {
  const std::lock_guard lock(mutex_);
  if (communicator_ == nullptr) return;
  static_cast<void>(ncclCommAbort(std::exchange(communicator_, nullptr)));
}

}  // namespace dapple::exec
