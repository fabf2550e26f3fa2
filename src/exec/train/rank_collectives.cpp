#include "exec/train/rank_collectives.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "dapple/core/error.h"
#include "exec/message/value_payload.h"

namespace dapple::exec {
namespace {

/// Messages between the plan's devices as those of one rank of each.
class BetweenDevices : public Transport {
 public:
  using Groups = std::vector<std::unique_ptr<RankCollectives>>;

  BetweenDevices(const TrainingJob& job, std::int64_t rank, const Groups& groups, Transport& below)
      : job_(job), rank_(rank), groups_(groups), below_(below) {}

  std::int64_t send(const MessageKey& key, Payload payload) override {
    return below_.send(below(key), std::move(payload));
  }
  Payload receive(const MessageKey& key, const ExpectedMessage& expected) override {
    return below_.receive(below(key), expected);
  }
  void barrier() override { below_.barrier(); }
  void announce(const Action& action) noexcept override {
    for (const auto& group : groups_) group->begin(action);
    below_.announce(action);
  }
  Bytes sent() const override { return below_.sent(); }
  std::int64_t clock_offset() const override { return below_.clock_offset(); }
  void abort() noexcept override { below_.abort(); }

 private:
  MessageKey below(MessageKey key) const {
    key.from = job_.number_of(key.from, rank_);
    key.to = job_.number_of(key.to, rank_);
    return key;
  }

  const TrainingJob& job_;
  const std::int64_t rank_;
  const Groups& groups_;
  Transport& below_;
};

/// Returns the ring in which the shard of the member of each rank is that part (see shard_of()).
ReductionGroup ring_of(std::vector<DeviceIndex> members) {
  std::rotate(members.begin(), members.begin() + 1, members.end());
  return {.servers = {std::move(members)}};
}

}  // namespace

ElementRange part_of_rank(ElementRange all, std::int64_t rank, std::int64_t ranks) {
  std::vector<DeviceIndex> members;
  for (std::int32_t number = 0; number < ranks; ++number) members.push_back({number});
  return shard_of(ring_of(members), members[static_cast<std::size_t>(rank)], all);
}

RankCollectives::RankCollectives(std::vector<DeviceIndex> members, std::int64_t rank,
                                 std::int32_t number, Transport& transport)
    : transport_(transport), first_step_(number << 28) {
  key_.from = members[static_cast<std::size_t>(rank)];
  members_ = members;
  ring_ = ring_of(std::move(members));
}

void RankCollectives::begin(const Action& action) {
  key_.action = action;
  key_.step = first_step_;
}

/// A collective has less than twice as many messages to one receiver as there are ranks.
MessageKey RankCollectives::next_key() {
  const MessageKey key = key_;
  key_.step += 2 * static_cast<std::int32_t>(ring_.servers.front().size());
  return key;
}

void RankCollectives::all_reduce(std::span<float> values) {
  HostReductionBuffer buffer(values);
  exec::all_reduce(ring_, next_key(), buffer, transport_);
}

void RankCollectives::all_gather(std::span<const float> own, std::span<float> all) {
  HostReductionBuffer buffer(all);
  const MessageKey key = next_key();
  const ElementRange shard = shard_of(ring_, key.from, {0, all.size()});
  check(shard.size() == own.size(), "a rank gathers another size than the others");
  if (own.data() != all.data() + shard.begin) {
    std::ranges::copy(own, all.begin() + static_cast<std::ptrdiff_t>(shard.begin));
  }
  exec::all_gather(ring_, key, buffer, transport_);
}

void RankCollectives::reduce_scatter(std::span<float> all, std::span<float> own) {
  HostReductionBuffer buffer(all);
  const MessageKey key = next_key();
  const ElementRange shard = shard_of(ring_, key.from, {0, all.size()});
  check(shard.size() == own.size(), "a rank scatters to another size than the others");
  exec::reduce_scatter(ring_, key, buffer, transport_);
  if (own.data() != all.data() + shard.begin) {
    std::ranges::copy(all.subspan(shard.begin, shard.size()), own.begin());
  }
}

void RankCollectives::all_to_all(const std::vector<std::vector<float>>& to,
                                 std::vector<std::vector<float>>& from) {
  const MessageKey key = next_key();
  for (std::size_t rank = 0; rank < to.size(); ++rank) {
    MessageKey message = key;
    message.to = members_[rank];
    if (message.to != key.from) transport_.send(message, payload_of(to[rank]));
  }
  for (std::size_t rank = 0; rank < to.size(); ++rank) {
    MessageKey message = key;
    message.from = members_[rank];
    message.to = key.from;
    const bool is_known = !from[rank].empty();
    std::vector<float> arrived =
        message.from == key.from ? to[rank] : values_of<float>(transport_.receive(message, {}));
    check(!is_known || arrived.size() == from[rank].size(),
          "a rank sends another size than was expected");
    from[rank] = std::move(arrived);
  }
}

RankGroups::RankGroups(const TrainingJob& job, DeviceIndex device, std::int64_t rank,
                       Transport& transport)
    : transport_(transport), device_(job.device_of(device, rank)) {
  if (job.ranks() == 1) return;
  nn::TensorRank& tensor = device_.layers.tensor;
  nn::GroupRank& context = device_.layers.context;
  nn::GroupRank& experts = device_.layers.experts;
  const auto join = [&](nn::GroupRank& own, std::int64_t stride) {
    own.group = add(job, own.rank, own.ranks, stride, rank);
  };
  tensor.group = add(job, tensor.rank, tensor.ranks, 1, rank);
  context.group = add(job, context.rank, context.ranks, tensor.ranks, rank);
  experts.group = add(job, experts.rank, experts.ranks, 1, rank);
  join(device_.shard, tensor.ranks);
  join(device_.copy, tensor.ranks);
  join(device_.expert_copy, experts.ranks);
  between_ = std::make_unique<BetweenDevices>(job, rank, groups_, transport);
}

/// Makes the group of `count` ranks whose numbers are `stride` apart, of which this rank is number
/// `own`. Returns null if it would be alone.
nn::RankGroup* RankGroups::add(const TrainingJob& job, std::int64_t own, std::int64_t count,
                               std::int64_t stride, std::int64_t rank) {
  if (count == 1) return nullptr;
  std::vector<DeviceIndex> members;
  for (std::int64_t other = 0; other < count; ++other) {
    members.push_back(job.number_of(device_.device, rank + (other - own) * stride));
  }
  groups_.push_back(std::make_unique<RankCollectives>(
      std::move(members), own, static_cast<std::int32_t>(groups_.size()), transport_));
  return groups_.back().get();
}

void RankGroups::begin(std::int64_t iteration) {
  for (const auto& group : groups_) group->begin(iteration);
}

}  // namespace dapple::exec
