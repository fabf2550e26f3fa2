#include "exec/nccl/nccl_communicators.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "dapple/core/error.h"
#include "dapple/cuda/kernels/arrays.h"
#include "dapple/cuda/memory/tensor.h"
#include "dapple/exec/gpu/cuda_bytes.h"
#include "exec/message/clock.h"
#include "exec/message/value_payload.h"
#include "exec/message/waiting.h"

namespace dapple::exec {
namespace {

/// The interval between two polls of a GPU's work.
constexpr std::chrono::microseconds kWaitPollInterval(20);

constexpr const char* kConnecting = "connecting";

/// Returns the key of the `number`th identifier that one device sends to another; no message of an
/// iteration has such a key.
MessageKey id_key(DeviceIndex from, DeviceIndex to, std::int32_t number) {
  return {.iteration = -1, .action = {}, .step = 1 + number, .from = from, .to = to};
}

cuda::View floats_of(Bytes size) {
  constexpr std::int64_t kFloat = cuda::size_of(cuda::Type::Float32);
  return {nullptr, cuda::Type::Float32, (size.count + kFloat - 1) / kFloat};
}

}  // namespace

void CommunicatorWait::await(const std::function<bool()>& is_done, const std::string& waiting,
                             const std::string& expected) const {
  const std::int64_t end = monotonic_now() + timeout.count();
  while (!is_done()) {
    keep_on();
    if (monotonic_now() >= end) {
      throw Error(ErrorKind::Environment, here,
                  {{waiting, fmt::format("expected {} within {} s, but that did not happen",
                                         expected, seconds_of(timeout))}});
    }
    std::this_thread::sleep_for(kWaitPollInterval);
  }
  keep_on();  // an aborted communicator's work also counts as done
}

void CommunicatorWait::await(const cuda::Event& event, const std::string& waiting) const {
  await([&] { return event.is_reached(); }, waiting, "its GPU to finish its work");
}

/// The order in which every device creates and uses its communicators. It is the same for all
/// devices, so at any time the first remaining communicator can be created: its members have no
/// other one to create before it. The message communicators of every other pair of neighbours in a
/// pipeline are adjacent in this order, so that few devices have to wait for others.
bool NcclCommunicators::CreationOrder::operator()(const CommunicatorMembers& a,
                                                  const CommunicatorMembers& b) const {
  const auto order = [](const CommunicatorMembers& group) {
    const std::int32_t first = group.members.front().value;
    const std::int32_t last = group.members.back().value;
    const std::int32_t distance = std::abs(last - first);
    return std::tuple(group.use, distance, first / distance % 2, first > last, group.members);
  };
  return order(a) < order(b);
}

NcclCommunicators::NcclCommunicators(Transport& below, ControlChannel& control,
                                     const NcclTransportOptions& options, CommunicatorWait wait)
    : below_(below), control_(control), options_(options), wait_(std::move(wait)) {
  const DeviceIndex here = options.here;
  for (const DeviceIndex peer : options.connections.peers) {
    check(peer != here, "a device is its own peer");
    created_.insert({CommunicatorMembers::Use::Messages, {here, peer}});
    created_.insert({CommunicatorMembers::Use::Messages, {peer, here}});
  }
  for (const auto& [members, sizes] : options.connections.reductions) {
    check(members.size() > 1 && std::ranges::binary_search(members, here),
          "a device reduces alone, or with a group that it is not in");
    created_.insert({CommunicatorMembers::Use::Sums, members});
  }
}

/// Creates all communicators, then uses each of them once. None is used while any is still to be
/// created, and no device continues before all have been used.
void NcclCommunicators::make() {
  Ids ids = draw_ids();
  std::map<DeviceIndex, std::int32_t> heard;
  for (const CommunicatorMembers& group : created_) {
    const DeviceIndex first = group.members.front();
    if (first != options_.here) {
      const MessageKey key = id_key(first, options_.here, heard[first]++);
      copy_values(control_.receive(key), std::span<std::byte>(ids[group]));
    }
    make(group, ids[group]);
  }
  below_.barrier();
  use_all();
  below_.barrier();
}

/// The first of the communicator members draws the identifier and sends it to the others; sending
/// it does not wait for them.
NcclCommunicators::Ids NcclCommunicators::draw_ids() {
  Ids ids;
  std::map<DeviceIndex, std::int32_t> told;
  for (const CommunicatorMembers& group : created_) {
    if (group.members.front() != options_.here) continue;
    const NcclId& id = ids[group] = draw_nccl_id();
    for (const DeviceIndex member : group.members) {
      if (member == options_.here) continue;
      control_.send(id_key(options_.here, member, told[member]++),
                    payload_of(std::span<const std::byte>(id)));
    }
  }
  return ids;
}

void NcclCommunicators::make(const CommunicatorMembers& group, const NcclId& id) {
  const auto place =
      std::find(group.members.begin(), group.members.end(), options_.here) - group.members.begin();
  // Added to the map only once it is complete, because look() and abort() must not use it before.
  std::map<CommunicatorMembers, NcclCommunicator, CreationOrder> made;
  made.try_emplace(group, id, static_cast<int>(group.members.size()), static_cast<int>(place),
                   wait_.keep_on);
  const std::lock_guard lock(mutex_);
  communicators_.merge(made);
}

/// Makes NCCL connect now; it does so when a pair or group first uses an algorithm, which it
/// chooses by size. The scratch memory is freed before any other memory is allocated.
void NcclCommunicators::use_all() {
  constexpr Bytes kRoundedUp{512};
  Bytes largest;
  for (const auto& [members, sizes] : options_.connections.reductions) {
    for (const Bytes size : sizes) largest = std::max(largest, floats_of(size).size());
  }
  for (const std::vector<DeviceIndex>& members : options_.connections.exchanges) {
    const auto count = static_cast<std::int64_t>(members.size());
    largest = std::max(largest, kRoundedUp + Bytes{count * cuda::size_of(cuda::Type::Float32)});
  }
  cuda::Device scratch(options_.gpu, largest + kRoundedUp);
  for (auto& [group, communicator] : communicators_) use(group, communicator, scratch);
}

void NcclCommunicators::use(const CommunicatorMembers& group, NcclCommunicator& communicator,
                            cuda::Device& scratch) {
  if (group.use == CommunicatorMembers::Use::Sums) {
    for (const Bytes size : options_.connections.reductions.at(group.members)) {
      sum(group, communicator, size, scratch);
    }
    if (options_.connections.exchanges.contains(group.members)) {
      exchange(group, communicator, scratch);
    }
    return;
  }
  const cuda::Buffer byte = scratch.allocate({1});
  if (group.members.front() == options_.here) {
    communicator.send(byte.address(), 1, 1, scratch.compute());
  } else {
    communicator.receive(byte.address(), 1, 0, scratch.compute());
  }
  wait_.await(recorded_on(scratch.compute()), kConnecting);
}

void NcclCommunicators::sum(const CommunicatorMembers& group, NcclCommunicator& communicator,
                            Bytes size, cuda::Device& scratch) {
  cuda::View numbers = floats_of(size);
  const cuda::Buffer memory = scratch.allocate(numbers.size());
  numbers.address = memory.address();
  cuda::fill_with_zeros(scratch.compute(), numbers);
  communicator.all_reduce(numbers, scratch.compute());
  if (options_.connections.scatters) {
    std::vector<cuda::View> shards;
    for (const DeviceIndex member : group.members) {
      const ElementRange shard = shard_of({.servers = {group.members}}, member,
                                          {0, static_cast<std::size_t>(numbers.count)});
      shards.push_back(numbers.part(static_cast<std::int64_t>(shard.begin),
                                    static_cast<std::int64_t>(shard.end)));
    }
    communicator.reduce_scatter(shards, scratch.compute());
    communicator.all_gather(shards, scratch.compute());
  }
  wait_.await(recorded_on(scratch.compute()), kConnecting);
}

/// Each member sends a number to each.
void NcclCommunicators::exchange(const CommunicatorMembers& group, NcclCommunicator& communicator,
                                 cuda::Device& scratch) {
  const auto count = static_cast<std::int64_t>(group.members.size());
  const cuda::DeviceTensor sent = cuda::make_tensor(scratch, {1}, cuda::Type::Float32);
  const cuda::DeviceTensor received = cuda::make_tensor(scratch, {count}, cuda::Type::Float32);
  cuda::fill_with_zeros(scratch.compute(), sent.view());
  const std::vector<cuda::View> to(group.members.size(), sent.view());
  std::vector<cuda::View> from;
  for (std::int64_t member = 0; member < count; ++member) {
    from.push_back(received.view().part(member, member + 1));
  }
  communicator.all_to_all(to, from, scratch.compute());
  wait_.await(recorded_on(scratch.compute()), kConnecting);
}

/// Destroying a communicator may wait for its other members, which may be destroying another one.
/// Therefore all are finalized first, and none is waited for when it is destroyed.
void NcclCommunicators::finish() {
  for (auto& [group, communicator] : communicators_) communicator.finalize();
  for (auto& [group, communicator] : communicators_) {
    wait_.await([&one = communicator] { return one.is_finalized(); }, "the end",
                "all communicators to be closed");
  }
}

NcclCommunicator& NcclCommunicators::find(const CommunicatorMembers& group) {
  const auto found = communicators_.find(group);
  check(found != communicators_.end(),
        "a device has no communicator with those that it was to use");
  return found->second;
}

NcclCommunicator& NcclCommunicators::to(DeviceIndex peer) {
  return find({CommunicatorMembers::Use::Messages, {options_.here, peer}});
}

NcclCommunicator& NcclCommunicators::from(DeviceIndex peer) {
  return find({CommunicatorMembers::Use::Messages, {peer, options_.here}});
}

NcclCommunicator& NcclCommunicators::among(const std::vector<DeviceIndex>& members) {
  return find({CommunicatorMembers::Use::Sums, members});
}

void NcclCommunicators::look() {
  const std::lock_guard lock(mutex_);
  for (auto& [group, communicator] : communicators_) communicator.look();
}

/// Aborts all communicators as a group, which NCCL 2.22 and later end together. One that is aborted
/// alone may wait for the GPU, and so for the work of the others.
void NcclCommunicators::abort() noexcept {
  const std::lock_guard lock(mutex_);
  static_cast<void>(ncclGroupStart());
  for (auto& [group, communicator] : communicators_) communicator.abort();
  static_cast<void>(ncclGroupEnd());
}

}  // namespace dapple::exec
