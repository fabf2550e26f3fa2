#include "exec/train/tensor_ranks.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace dapple::exec {
namespace {

class BetweenGroups : public Transport {
 public:
  BetweenGroups(const TrainingJob& job, std::int64_t rank, RankCollectives& collectives,
                Transport& below)
      : job_(job), rank_(rank), collectives_(collectives), below_(below) {}

  std::int64_t send(const MessageKey& key, Payload payload) override {
    return below_.send(below(key), std::move(payload));
  }
  Payload receive(const MessageKey& key, const ExpectedMessage& expected) override {
    return below_.receive(below(key), expected);
  }
  void barrier() override { below_.barrier(); }
  void announce(const Action& action) noexcept override {
    collectives_.begin(action);
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
  RankCollectives& collectives_;
  Transport& below_;
};

/// Returns the ring in which each rank's shard is its own part (see shard_of()).
ReductionGroup ring_of(const TrainingJob& job, DeviceIndex device) {
  std::vector<DeviceIndex> members;
  for (std::int64_t rank = 0; rank < job.tensor_ranks(); ++rank) {
    members.push_back(job.number_of(device, rank));
  }
  std::rotate(members.begin(), members.begin() + 1, members.end());
  return {.servers = {members}};
}

}  // namespace

RankCollectives::RankCollectives(const TrainingJob& job, DeviceIndex device, std::int64_t rank,
                                 Transport& transport)
    : ring_(ring_of(job, device)), transport_(transport) {
  key_.from = job.number_of(device, rank);
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
                                          RankCollectives& collectives, Transport& below) {
  return std::make_unique<BetweenGroups>(job, rank, collectives, below);
}

}  // namespace dapple::exec
