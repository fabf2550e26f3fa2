#include "dapple/exec/all_reduce.h"

#include <algorithm>
#include <utility>

#include "dapple/core/error.h"
#include "value_payload.h"

namespace dapple {
namespace {

/// Part of the values, in floats.
struct Range {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::size_t size() const { return end - begin; }
};

/// Part `i` of `parts` that are as even as whole floats allow.
Range part(const Range& whole, std::size_t i, std::size_t parts) {
  return {whole.begin + whole.size() * i / parts, whole.begin + whole.size() * (i + 1) / parts};
}

/// One ring of devices, seen from one of them.
class Ring {
 public:
  Ring(const std::vector<DeviceIndex>& members, MessageKey& key, std::span<float> values,
       Transport& transport)
      : members_(members), key_(key), values_(values), transport_(transport) {
    const auto here = std::find(members.begin(), members.end(), key.from);
    check(here != members.end(), "a device reduces with a group that it is not in");
    place_ = static_cast<std::size_t>(here - members.begin());
  }

  std::size_t size() const { return members_.size(); }

  /// The part whose sum is here once the values are scattered.
  Range own_part(const Range& range) const { return part(range, (place_ + 1) % size(), size()); }

  void reduce_scatter(const Range& range) {
    for (std::size_t step = 0; step + 1 < size(); ++step) {
      send(part(range, (place_ + size() - step) % size(), size()));
      receive(part(range, (place_ + 2 * size() - step - 1) % size(), size()), true);
    }
  }

  void all_gather(const Range& range) {
    for (std::size_t step = 0; step + 1 < size(); ++step) {
      send(part(range, (place_ + 1 + size() - step) % size(), size()));
      receive(part(range, (place_ + size() - step) % size(), size()), false);
    }
  }

 private:
  std::span<float> at(const Range& range) const {
    return values_.subspan(range.begin, range.size());
  }

  void send(const Range& range) {
    MessageKey key = key_;
    key.to = members_[(place_ + 1) % size()];
    transport_.send(key, payload_of(at(range)));
  }

  void receive(const Range& range, bool add) {
    MessageKey key = key_;
    key.from = members_[(place_ + size() - 1) % size()];
    key.to = key_.from;
    ++key_.step;
    const Payload payload = transport_.receive(key);
    const std::span<float> mine = at(range);
    if (!add) return copy_values(payload, mine);
    theirs_.resize(range.size());
    copy_values(payload, std::span(theirs_));
    for (std::size_t i = 0; i < mine.size(); ++i) mine[i] += theirs_[i];
  }

  const std::vector<DeviceIndex>& members_;
  MessageKey& key_;
  std::span<float> values_;
  Transport& transport_;
  std::size_t place_ = 0;
  std::vector<float> theirs_;  // of one step
};

}  // namespace

const ReductionGroup& ReductionGroups::of(const Action& reduction) const {
  const auto index = static_cast<std::size_t>(reduction.index);
  return reduction.kind == ActionKind::ReduceTied ? ties[index]
                                                  : buckets[reduction.stage.position()][index];
}

void all_reduce(const ReductionGroup& group, MessageKey key, std::span<float> values,
                Transport& transport) {
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
  const Range all{0, values.size()};
  Ring inside(server, key, values, transport);
  Ring between(across, key, values, transport);
  inside.reduce_scatter(all);
  const Range own = inside.size() == 1 ? all : inside.own_part(all);
  between.reduce_scatter(own);
  between.all_gather(own);
  inside.all_gather(all);
}

}  // namespace dapple
