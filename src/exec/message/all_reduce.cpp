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

/// A ring of devices, seen from one member.
class Ring {
 public:
  Ring(const std::vector<DeviceIndex>& members, MessageKey& key, ReductionBuffer& buffer,
       Transport& transport)
      : members_(members), key_(key), buffer_(buffer), transport_(transport) {
    const auto here = std::find(members.begin(), members.end(), key.from);
    check(here != members.end(), "a device reduces with a group that it is not in");
    place_ = static_cast<std::size_t>(here - members.begin());
  }

  std::size_t size() const { return members_.size(); }

  /// Returns the part whose sum this member holds after reduce_scatter().
  ElementRange own_part(const ElementRange& range) const {
    return part(range, (place_ + 1) % size(), size());
  }

  void reduce_scatter(const ElementRange& range) {
    for (std::size_t step = 0; step + 1 < size(); ++step) {
      send(part(range, (place_ + size() - step) % size(), size()));
      receive(part(range, (place_ + 2 * size() - step - 1) % size(), size()), true);
    }
  }

  void all_gather(const ElementRange& range) {
    for (std::size_t step = 0; step + 1 < size(); ++step) {
      send(part(range, (place_ + 1 + size() - step) % size(), size()));
      receive(part(range, (place_ + size() - step) % size(), size()), false);
    }
  }

 private:
  void send(const ElementRange& range) {
    MessageKey key = key_;
    key.to = members_[(place_ + 1) % size()];
    transport_.send(key, buffer_.give_out(range));
  }

  void receive(const ElementRange& range, bool add) {
    MessageKey key = key_;
    key.from = members_[(place_ + size() - 1) % size()];
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

  const std::vector<DeviceIndex>& members_;
  MessageKey& key_;
  ReductionBuffer& buffer_;
  Transport& transport_;
  std::size_t place_ = 0;
};

}  // namespace

const ReductionGroup& ReductionGroups::of(const Action& reduction) const {
  const auto index = static_cast<std::size_t>(reduction.index);
  return reduction.kind == ActionKind::ReduceTied ? ties[index]
                                                  : buckets[reduction.stage.position()][index];
}

std::vector<DeviceIndex> members_of(const ReductionGroup& group) {
  std::vector<DeviceIndex> members;
  for (const std::vector<DeviceIndex>& server : group.servers) {
    members.insert(members.end(), server.begin(), server.end());
  }
  std::sort(members.begin(), members.end());
  return members;
}

ReductionSizes reduction_sizes(const DeviceSchedule& device) {
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

void all_reduce(const ReductionGroup& group, MessageKey key, ReductionBuffer& buffer,
                Transport& transport) {
  buffer.begin();
  if (transport.reduces(group, key, buffer)) return;
  const auto is_mine = [&](const std::vector<DeviceIndex>& server) {
    return std::find(server.begin(), server.end(), key.from) != server.end();
  };
  const auto mine = std::find_if(group.servers.begin(), group.servers.end(), is_mine);
  check(mine != group.servers.end(), "a device reduces with a group that it is not in");
  const std::vector<DeviceIndex>& server = *mine;
  const auto place = std::find(server.begin(), server.end(), key.from) - server.begin();
  std::vector<DeviceIndex> across;
  for (const std::vector<DeviceIndex>& other : group.servers) {
    across.push_back(other[static_cast<std::size_t>(place)]);
  }
  const ElementRange all{0, buffer.size()};
  Ring inside(server, key, buffer, transport);
  Ring between(across, key, buffer, transport);
  inside.reduce_scatter(all);
  const ElementRange own = inside.size() == 1 ? all : inside.own_part(all);
  between.reduce_scatter(own);
  between.all_gather(own);
  inside.all_gather(all);
}

}  // namespace dapple::exec
