#include "dapple/exec/message/all_reduce.h"

#include <algorithm>
#include <utility>

#include "dapple/core/error.h"
#include "exec/message/value_payload.h"

namespace dapple::exec {
namespace {

/// Returns part `i` of `parts` parts whose sizes differ by at most one.
ElementRange part(const ElementRange& whole, std::size_t i, std::size_t parts) {
  return {whole.begin + whole.size() * i / parts, whole.begin + whole.size() * (i + 1) / parts};
}

/// Sends and receives parts of one member's buffer; numbers the messages.
class Passing {
 public:
  Passing(MessageKey key, ReductionBuffer& buffer, Transport& transport)
      : key_(key), buffer_(buffer), transport_(transport) {}

  void send(DeviceIndex to, const ElementRange& range) {
    MessageKey key = key_;
    key.to = to;
    transport_.send(key, buffer_.give_out(range));
  }

  void receive(DeviceIndex from, const ElementRange& range, bool add) {
    MessageKey key = key_;
    key.from = from;
    key.to = key_.from;
    ++key_.step;
    const Bytes size{static_cast<std::int64_t>(range.size() * sizeof(float))};
    Payload payload = transport_.receive(key, {.size = size, .memory = buffer_.memory()});
    if (add) {
      buffer_.add(range, std::move(payload));
    } else {
      buffer_.replace(range, std::move(payload));
    }
  }

 private:
  MessageKey key_;
  ReductionBuffer& buffer_;
  Transport& transport_;
};

/// A ring of devices, seen from one member.
class Ring {
 public:
  Ring(std::vector<DeviceIndex> members, DeviceIndex member) : members_(std::move(members)) {
    const auto here = std::find(members_.begin(), members_.end(), member);
    check(here != members_.end(), "a device reduces with a group that it is not in");
    place_ = static_cast<std::size_t>(here - members_.begin());
  }

  std::size_t place() const { return place_; }

  /// Returns the part whose sum this member holds after reduce_scatter().
  ElementRange own_part(const ElementRange& range) const {
    return part(range, (place_ + 1) % size(), size());
  }

  void reduce_scatter(const ElementRange& range, Passing& passing) const {
    for (std::size_t step = 0; step + 1 < size(); ++step) {
      passing.send(next(), part(range, (place_ + size() - step) % size(), size()));
      passing.receive(previous(), part(range, (place_ + 2 * size() - step - 1) % size(), size()),
                      true);
    }
  }

  void all_gather(const ElementRange& range, Passing& passing) const {
    for (std::size_t step = 0; step + 1 < size(); ++step) {
      passing.send(next(), part(range, (place_ + 1 + size() - step) % size(), size()));
      passing.receive(previous(), part(range, (place_ + size() - step) % size(), size()), false);
    }
  }

 private:
  std::size_t size() const { return members_.size(); }
  DeviceIndex next() const { return members_[(place_ + 1) % size()]; }
  DeviceIndex previous() const { return members_[(place_ + size() - 1) % size()]; }

  std::vector<DeviceIndex> members_;
  std::size_t place_ = 0;
};

/// The two rings of a group that pass through one member: within its server, and across servers.
class Rings {
 public:
  Rings(const ReductionGroup& group, DeviceIndex member)
      : inside_(server_of(group, member), member),
        between_(across(group, inside_.place()), member) {}

  ElementRange own_part(const ElementRange& range) const {
    return between_.own_part(inside_.own_part(range));
  }

  void reduce_scatter(const ElementRange& range, Passing& passing) const {
    inside_.reduce_scatter(range, passing);
    between_.reduce_scatter(inside_.own_part(range), passing);
  }

  void all_gather(const ElementRange& range, Passing& passing) const {
    between_.all_gather(inside_.own_part(range), passing);
    inside_.all_gather(range, passing);
  }

 private:
  static const std::vector<DeviceIndex>& server_of(const ReductionGroup& group,
                                                   DeviceIndex member) {
    const auto found =
        std::find_if(group.servers.begin(), group.servers.end(), [&](const auto& server) {
          return std::find(server.begin(), server.end(), member) != server.end();
        });
    check(found != group.servers.end(), "a device reduces with a group that it is not in");
    return *found;
  }

  static std::vector<DeviceIndex> across(const ReductionGroup& group, std::size_t place) {
    std::vector<DeviceIndex> members;
    for (const std::vector<DeviceIndex>& server : group.servers) {
      check(place < server.size(), "the servers of a group have different numbers of members");
      members.push_back(server[place]);
    }
    return members;
  }

  Ring inside_;
  Ring between_;
};

/// Adds the sizes of the tied parameters that the replicas of the device's stages gather.
void add_gathered_ties(const Plan& plan, const DeviceSchedule& device, ReductionSizes& sizes) {
  for (const DeviceAction& entry : device.actions) {
    if (entry.action.kind != ActionKind::ReduceTied) continue;
    const auto tie = static_cast<std::size_t>(entry.action.index);
    for (const StageIndex stage : plan.tied_gradients[tie].stages) {
      std::vector<DeviceIndex> replicas = plan.stages[stage.position()].devices;
      std::sort(replicas.begin(), replicas.end());
      const bool is_here = std::binary_search(replicas.begin(), replicas.end(), device.device);
      if (is_here && replicas.size() > 1) sizes[replicas].insert(entry.size);
    }
  }
}

}  // namespace

ReductionGroup ReductionGroups::of(const Action& reduction, DeviceIndex device) const {
  const auto index = static_cast<std::size_t>(reduction.index);
  if (reduction.kind == ActionKind::ReduceTied) return ties[index];
  const std::size_t stage = reduction.stage.position();
  ReductionGroup group = buckets[stage][index];
  const std::int32_t position = device.value % devices_per_replica[stage];
  for (std::vector<DeviceIndex>& server : group.servers) {
    for (DeviceIndex& member : server) member.value += position;
  }
  return group;
}

std::vector<DeviceIndex> members_of(const ReductionGroup& group) {
  std::vector<DeviceIndex> members;
  for (const std::vector<DeviceIndex>& server : group.servers) {
    members.insert(members.end(), server.begin(), server.end());
  }
  std::sort(members.begin(), members.end());
  return members;
}

ReductionSizes reduction_sizes(const Plan& plan, const DeviceSchedule& device) {
  ReductionSizes sizes;
  for (const DeviceAction& entry : device.actions) {
    const ActionKind kind = entry.action.kind;
    if (kind != ActionKind::AllReduce && kind != ActionKind::ReduceTied) continue;
    if (entry.peers.empty()) continue;
    std::vector<DeviceIndex> members{device.device};
    for (const SchedulePeer& peer : entry.peers) members.push_back(peer.device);
    std::sort(members.begin(), members.end());
    sizes[members].insert(entry.size);
  }
  if (plan.parallelism.shards_over_replicas()) add_gathered_ties(plan, device, sizes);
  return sizes;
}

Payload HostReductionBuffer::give_out(ElementRange range) {
  return payload_of(std::span<const float>(at(range)));
}

void HostReductionBuffer::add(ElementRange range, Payload payload) {
  const std::span<float> mine = at(range);
  theirs_.resize(range.size());
  copy_values(std::move(payload), std::span(theirs_));
  for (std::size_t i = 0; i < mine.size(); ++i) mine[i] += theirs_[i];
}

void HostReductionBuffer::replace(ElementRange range, Payload payload) {
  copy_values(std::move(payload), at(range));
}

ElementRange shard_of(const ReductionGroup& group, DeviceIndex member, ElementRange elements) {
  return Rings(group, member).own_part(elements);
}

void all_reduce(const ReductionGroup& group, MessageKey key, ReductionBuffer& buffer,
                Transport& transport) {
  buffer.begin();
  if (transport.performs(CollectiveKind::AllReduce, group, key, buffer)) return;
  const Rings rings(group, key.from);
  const ElementRange all{0, buffer.size()};
  Passing passing(key, buffer, transport);
  rings.reduce_scatter(all, passing);
  rings.all_gather(all, passing);
}

void reduce_scatter(const ReductionGroup& group, MessageKey key, ReductionBuffer& buffer,
                    Transport& transport) {
  buffer.begin();
  if (transport.performs(CollectiveKind::ReduceScatter, group, key, buffer)) return;
  Passing passing(key, buffer, transport);
  Rings(group, key.from).reduce_scatter({0, buffer.size()}, passing);
}

void all_gather(const ReductionGroup& group, MessageKey key, ReductionBuffer& buffer,
                Transport& transport) {
  buffer.begin();
  if (transport.performs(CollectiveKind::AllGather, group, key, buffer)) return;
  Passing passing(key, buffer, transport);
  Rings(group, key.from).all_gather({0, buffer.size()}, passing);
}

}  // namespace dapple::exec
