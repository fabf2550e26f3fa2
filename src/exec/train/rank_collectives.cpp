#include "exec/train/rank_collectives.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "dapple/core/error.h"
#include "exec/message/value_payload.h"
#include "exec/train/local_stage.h"

namespace dapple::exec {
namespace {

/// Messages between the plan's devices as those of one rank of each.
class BetweenDevices : public Transport {
 public:
  using Groups = std::vector<std::unique_ptr<RankCollectives>>;

  BetweenDevices(const TrainingJob& job, std::int64_t rank, const Groups& groups, Transport& below)
      : job_(job), rank_(rank), groups_(groups), below_(below) {}

  std::int64_t send(const MessageKey& key, Payload payload) override {
    MessageKey of_ranks = key;
    of_ranks.from = number_of(key.from);
    if (!has_rank_as_peer(key)) of_ranks.to = number_of(key.to);
    return below_.send(of_ranks, std::move(payload));
  }
  Payload receive(const MessageKey& key, const ExpectedMessage& expected) override {
    MessageKey of_ranks = key;
    of_ranks.to = number_of(key.to);
    if (!has_rank_as_peer(key)) of_ranks.from = number_of(key.from);
    return below_.receive(of_ranks, expected);
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
  DeviceIndex number_of(DeviceIndex device) const { return job_.number_of(device, rank_); }
  /// Whether the peer of a message is a rank, as in RankGroups::schedule().
  bool has_rank_as_peer(const MessageKey& key) const {
    const bool is_transfer = key.action.kind == ActionKind::SendActivation ||
                             key.action.kind == ActionKind::SendGradient;
    return is_transfer && job_.reshards();
  }

  const TrainingJob& job_;
  const std::int64_t rank_;
  const Groups& groups_;
  Transport& below_;
};

const DeviceSchedule& schedule_of(const TrainingJob& job, DeviceIndex device) {
  const auto found =
      std::find_if(job.devices.begin(), job.devices.end(),
                   [&](const DeviceSchedule& schedule) { return schedule.device == device; });
  check(found != job.devices.end(), "a device trains that the plan does not use");
  return *found;
}

/// Sets the ranks with which a rank exchanges parts of tensors in an action, if it is a transfer.
void set_peers(const TrainingJob& job, const TrainingDevice& device, DeviceAction& entry) {
  const ActionKind kind = entry.action.kind;
  const StageIndex stage = entry.action.stage;
  const bool sends = kind == ActionKind::SendActivation || kind == ActionKind::SendGradient;
  const bool receives =
      kind == ActionKind::ReceiveActivation || kind == ActionKind::ReceiveGradient;
  if (!sends && !receives) return;
  const bool is_forward =
      kind == ActionKind::SendActivation || kind == ActionKind::ReceiveActivation;
  const StageIndex before = is_forward ? stage.previous() : stage.next();
  const StageBoundary boundary(job, is_forward ? Direction::Forward : Direction::Backward,
                               sends ? stage : before);
  const std::optional<LocalStage> own = local_stage(job, stage, device);
  check(own.has_value(), "a device sends or receives for a stage of another one");
  entry.peers = sends ? receivers(job, boundary, *own, entry.action.index)
                      : senders(job, boundary, *own, entry.action.index);
  entry.size = {};
  for (const SchedulePeer& peer : entry.peers) entry.size += peer.size;
}

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
    : transport_(transport),
      device_(job.device_of(device, rank)),
      schedule_(schedule_of(job, device)) {
  if (job.ranks() == 1) return;
  for (FormRank& form : device_.forms) connect(job, form, rank);
  between_ = std::make_unique<BetweenDevices>(job, rank, groups_, transport);
  if (!job.reshards()) return;
  for (DeviceAction& entry : schedule_.actions) set_peers(job, device_, entry);
}

/// An action uses the groups of one form only, which is that of its stage.
void RankGroups::connect(const TrainingJob& job, FormRank& form, std::int64_t rank) {
  nn::TensorRank& tensor = form.layers.tensor;
  nn::GroupRank& context = form.layers.context;
  nn::GroupRank& experts = form.layers.experts;
  std::int32_t number = 0;
  const auto join = [&](auto& own, std::int64_t stride) {
    own.group = add(job, own.rank, own.ranks, stride, rank, number);
    if (own.group != nullptr) ++number;
  };
  join(tensor, 1);
  join(context, tensor.ranks);
  join(experts, 1);
  join(form.shard, tensor.ranks);
  join(form.copy, tensor.ranks);
  join(form.expert_copy, experts.ranks);
}

/// Makes the group of `count` ranks whose numbers are `stride` apart, of which this rank is number
/// `own`. Returns null if it would be alone.
nn::RankGroup* RankGroups::add(const TrainingJob& job, std::int64_t own, std::int64_t count,
                               std::int64_t stride, std::int64_t rank, std::int32_t number) {
  if (count == 1) return nullptr;
  std::vector<DeviceIndex> members;
  for (std::int64_t other = 0; other < count; ++other) {
    members.push_back(job.number_of(device_.device, rank + (other - own) * stride));
  }
  groups_.push_back(std::make_unique<RankCollectives>(std::move(members), own, number, transport_));
  return groups_.back().get();
}

void RankGroups::begin(std::int64_t iteration) {
  for (const auto& group : groups_) group->begin(iteration);
}

void RankGroups::begin(const Action& action) {
  for (const auto& group : groups_) group->begin(action);
}

}  // namespace dapple::exec
