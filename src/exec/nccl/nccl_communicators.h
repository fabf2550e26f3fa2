// All communicators of one device, with what is said below so that they can be made.
//
// They are made, and used for the first time, before the device does anything else. Making one
// takes memory of the GPU, and what NCCL or CUDA bring there only once it is needed may have to
// wait until the GPU is idle: two devices that each wait so, with a kernel of NCCL on their GPUs
// whose counterpart the other one has yet to launch, would wait for ever.
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

/// Messages below that are none of a device's own, and so none of the bytes that it has sent.
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

/// How an end waits for what does not take long.
struct CommunicatorWait {
  std::string here;
  std::chrono::nanoseconds timeout = {};
  NcclCommunicator::KeepOn keep_on;

  /// Throws Error(Environment) with what `waiting` is at where it does not come in time.
  void await(const std::function<bool()>& is_done, const std::string& waiting,
             const std::string& expected) const;
  /// What has been given to the GPU.
  void await(const cuda::Event& event, const std::string& waiting) const;
};

class NcclCommunicators {
 public:
  NcclCommunicators(Transport& below, ControlChannel& control, const NcclTransportOptions& options,
                    CommunicatorWait patience);

  /// Makes all of them. To be called once, on a thread whose GPU is the device's, and at the same
  /// time by all devices.
  void make();
  /// Ends all of them, at the same time with their other members.
  void finish();

  /// Throw Bug where the options have no such peer or group.
  NcclCommunicator& to(DeviceIndex peer);
  NcclCommunicator& from(DeviceIndex peer);
  NcclCommunicator& among(const std::vector<DeviceIndex>& members);

  /// Throws what has gone wrong in any of them.
  void look();
  /// From any thread.
  void abort() noexcept;

 private:
  /// What a communicator is for.
  struct CommunicatorMembers {
    enum class Use { Messages, Sums };
    Use use = Use::Messages;
    std::vector<DeviceIndex> members;  // of messages: sender, receiver; of sums: ascending
  };
  struct CreationOrder {
    bool operator()(const CommunicatorMembers& a, const CommunicatorMembers& b) const;
  };
  using Ids = std::map<CommunicatorMembers, NcclId, CreationOrder>;

  Ids draw_ids();
  void make(const CommunicatorMembers& group, const NcclId& id);
  void use_all();
  void use(const CommunicatorMembers& group, NcclCommunicator& communicator, cuda::Device& scratch);
  void sum(NcclCommunicator& communicator, Bytes size, cuda::Device& scratch);
  NcclCommunicator& find(const CommunicatorMembers& group);

  Transport& below_;
  ControlChannel& control_;
  const NcclTransportOptions& options_;
  const CommunicatorWait patience_;
  std::set<CommunicatorMembers, CreationOrder> created_;
  std::mutex mutex_;
  std::map<CommunicatorMembers, NcclCommunicator, CreationOrder> communicators_;
};

}  // namespace dapple::exec
