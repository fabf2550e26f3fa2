#include "exec/train/rank_collectives.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace dapple::exec {
namespace {

class BetweenGroups : public Transport {
 public:
  BetweenGroups(const TrainingJob& job, std::int64_t rank,
                std::vector<RankCollectives*> collectives, Transport& below)
      : job_(job), rank_(rank), collectives_(std::move(collectives)), below_(below) {}

  std::int64_t send(const MessageKey& key, Payload payload) override {
    return below_.send(below(key), std::move(payload));
  }
  Payload receive(const MessageKey& key, const ExpectedMessage& expected) override {
    return below_.receive(below(key), expected);
  }
  void barrier() override { below_.barrier(); }
  void announce(const Action& action) noexcept override {
    for (RankCollectives* const group : collectives_) {
      if (group != nullptr) group->begin(action);
    }
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
  const std::vector<RankCollectives*> collectives_;
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
                                 Transport& transport)
    : transport_(transport) {
  key_.from = members[static_cast<std::size_t>(rank)];
  ring_ = ring_of(std::move(members));
}

void RankCollectives::begin(const Action& action) {
  key_.action = action;
  key_.step = 0;
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
  std::ranges::copy(own, all.begin() + static_cast<std::ptrdiff_t>(shard.begin));
  exec::all_gather(ring_, key, buffer, transport_);
}

void RankCollectives::reduce_scatter(std::span<float> all, std::span<float> own) {
  HostReductionBuffer buffer(all);
  const MessageKey key = next_key();
  const ElementRange shard = shard_of(ring_, key.from, {0, all.size()});
  check(shard.size() == own.size(), "a rank scatters to another size than the others");
  exec::reduce_scatter(ring_, key, buffer, transport_);
  std::ranges::copy(all.subspan(shard.begin, shard.size()), own.begin());
}

std::unique_ptr<Transport> between_groups(const TrainingJob& job, std::int64_t rank,
                                          std::vector<RankCollectives*> collectives,
                                          Transport& below) {
  return std::make_unique<BetweenGroups>(job, rank, std::move(collectives), below);
}

}  // namespace dapple::exec
