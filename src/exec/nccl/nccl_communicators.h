// All communicators of one device, and the messages through the transport below by which they are
// created.
//
// All communicators are created, and used for the first time, before the device does any other
// work. Creating one allocates GPU memory, and whatever NCCL or CUDA load lazily may have to wait
// until the GPU is idle. Two devices that both wait in this way would deadlock if each GPU ran an
// NCCL kernel whose counterpart the other device had yet to launch.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "dapple/exec/nccl/nccl_communicator.h"
#include "dapple/exec/nccl/nccl_transport.h"

namespace dapple::exec {

/// Control messages through the transport below. They are no messages of the device itself, so they
/// are not counted as bytes that it has sent.
class ControlChannel {
 public:
  explicit ControlChannel(Transport& below) : below_(below) {}

  void send(const MessageKey& key, Payload payload) {
    size_ += static_cast<std::int64_t>(payload.size());
    below_.send(key, std::move(payload));
  }
  Payload receive(const MessageKey& key) { return below_.receive(key, {}); }
  Bytes size() const { return {size_.load()}; }

 private:
  Transport& below_;
  std::atomic<std::int64_t> size_ = 0;
};

/// How an endpoint waits for operations that should not take long.
struct CommunicatorWait {
  std::string here;
  std::chrono::nanoseconds timeout = {};
  NcclCommunicator::KeepOn keep_on;

  /// Waits until `is_done`. On timeout throws Error(Environment) that names `waiting`, the
  /// operation, and `expected`.
  void await(const std::function<bool()>& is_done, const std::string& waiting,
             const std::string& expected) const;
  /// Waits for an event on the GPU.
  void await(const cuda::Event& event, const std::string& waiting) const;
};

/// The communicators of one device.
class NcclCommunicators {
 public:
  NcclCommunicators(Transport& below, ControlChannel& control, const NcclTransportOptions& options,
                    CommunicatorWait wait);

  /// Creates all communicators. Must be called once, on a thread whose current GPU is the device's,
  /// and by all devices at the same time.
  void make();
  /// Finalizes all communicators, at the same time as their other members.
  void finish();

  /// Return the communicator with a peer, in either direction, or among a group. Throw Bug if the
  /// options contain no such peer or group.
  NcclCommunicator& to(DeviceIndex peer);
  NcclCommunicator& from(DeviceIndex peer);
  NcclCommunicator& among(const std::vector<DeviceIndex>& members);

  /// Throws if an asynchronous error has occurred in any communicator.
  void look();
  /// May be called from any thread.
  void abort() noexcept;

 private:
  /// The purpose and the members of a communicator.
  struct CommunicatorMembers {
    enum class Use { Messages, Sums };
    Use use = Use::Messages;
    // The sender and the receiver of messages; the members of a reduction in ascending order.
    std::vector<DeviceIndex> members;
  };
  struct CreationOrder {
    bool operator()(const CommunicatorMembers& a, const CommunicatorMembers& b) const;
  };
  using Ids = std::map<CommunicatorMembers, NcclId, CreationOrder>;

  Ids draw_ids();
  void make(const CommunicatorMembers& group, const NcclId& id);
  void use_all();
  void use(const CommunicatorMembers& group, NcclCommunicator& communicator, cuda::Device& scratch);
  void sum(const CommunicatorMembers& group, NcclCommunicator& communicator, Bytes size,
           cuda::Device& scratch);
  void exchange(const CommunicatorMembers& group, NcclCommunicator& communicator,
                cuda::Device& scratch);
  NcclCommunicator& find(const CommunicatorMembers& group);

  Transport& below_;
  ControlChannel& control_;
  const NcclTransportOptions& options_;
  const CommunicatorWait wait_;
  std::set<CommunicatorMembers, CreationOrder> created_;
  std::mutex mutex_;
  std::map<CommunicatorMembers, NcclCommunicator, CreationOrder> communicators_;
};

}  // namespace dapple::exec
