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
  bool performs(CollectiveKind kind, const ReductionGroup& group, const MessageKey& key,
                ReductionBuffer& buffer) override {
    ReductionGroup of_ranks = group;
    for (std::vector<DeviceIndex>& server : of_ranks.servers) {
      for (DeviceIndex& member : server) member = number_of(member);
    }
    MessageKey of_rank = key;
    of_rank.from = number_of(key.from);
    return below_.performs(kind, of_ranks, of_rank, buffer);
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

/// Sets the ranks with which a rank exchanges parts of tensors in an action, if it is a transfer,
/// and returns whether it is.
bool set_peers(const TrainingJob& job, const TrainingDevice& device, DeviceAction& entry) {
  const ActionKind kind = entry.action.kind;
  const StageIndex stage = entry.action.stage;
  const bool sends = kind == ActionKind::SendActivation || kind == ActionKind::SendGradient;
  const bool receives =
      kind == ActionKind::ReceiveActivation || kind == ActionKind::ReceiveGradient;
  if (!sends && !receives) return false;
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
  return true;
}

/// The iteration of what devices do before the first one.
constexpr std::int64_t kBeforeAll = -1;

/// Returns the ring in which the shard of the member of each rank is that part (see shard_of()).
ReductionGroup ring_of(std::vector<DeviceIndex> members) {
  std::rotate(members.begin(), members.begin() + 1, members.end());
  return {.servers = {std::move(members)}};
}

/// A rank's place in a group of ranks whose numbers are `stride` apart.
struct GroupPlace {
  std::int64_t own = 0;
  std::int64_t count = 1;
  std::int64_t stride = 1;
};

std::vector<DeviceIndex> members_of(const TrainingJob& job, DeviceIndex device, std::int64_t rank,
                                    const GroupPlace& place) {
  std::vector<DeviceIndex> members;
  for (std::int64_t other = 0; other < place.count; ++other) {
    members.push_back(job.number_of(device, rank + (other - place.own) * place.stride));
  }
  return members;
}

/// Calls `visit` with each group of a form in which the rank is not alone, and with how far apart
/// the numbers of its ranks are. An action uses the groups of one form only, which is that of its
/// stage.
template <class Form, class Visit>
void for_each_group(Form& form, const Visit& visit) {
  const std::int64_t tensor = form.layers.tensor.ranks;
  const std::int64_t expert_tensor = form.layers.expert_tensor.ranks;
  const std::int64_t experts = form.layers.experts.ranks * expert_tensor;
  const auto pass = [&](auto& own, std::int64_t stride) {
    if (own.ranks > 1) visit(own, stride);
  };
  pass(form.layers.tensor, 1);
  pass(form.layers.context, tensor);
  pass(form.layers.experts, expert_tensor);
  pass(form.layers.expert_tensor, 1);
  pass(form.shard, tensor);
  pass(form.expert_shard, experts);
  pass(form.copy, tensor);
  pass(form.expert_copy, experts);
}

}  // namespace

ElementRange part_of_rank(ElementRange all, std::int64_t rank, std::int64_t ranks) {
  std::vector<DeviceIndex> members;
  for (std::int32_t number = 0; number < ranks; ++number) members.push_back({number});
  return shard_of(ring_of(members), members[static_cast<std::size_t>(rank)], all);
}

RankCollectives::RankCollectives(std::vector<DeviceIndex> members, std::int64_t rank,
                                 std::int32_t number, Transport& transport)
    : rank_(rank), transport_(transport), first_step_(number << 28) {
  key_.iteration = kBeforeAll;
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

ElementRange RankCollectives::own_part(std::size_t count) const {
  return shard_of(ring_, key_.from, {0, count});
}

void RankCollectives::all_reduce(ReductionBuffer& all) {
  exec::all_reduce(ring_, next_key(), all, transport_);
}

void RankCollectives::all_gather(ReductionBuffer& all) {
  exec::all_gather(ring_, next_key(), all, transport_);
}

void RankCollectives::reduce_scatter(ReductionBuffer& all) {
  exec::reduce_scatter(ring_, next_key(), all, transport_);
}

void RankCollectives::all_reduce(std::span<float> values) {
  HostReductionBuffer buffer(values);
  all_reduce(buffer);
}

void RankCollectives::all_gather(std::span<const float> own, std::span<float> all) {
  const ElementRange shard = own_part(all.size());
  check(shard.size() == own.size(), "a rank gathers another size than the others");
  if (own.data() != all.data() + shard.begin) {
    std::ranges::copy(own, all.begin() + static_cast<std::ptrdiff_t>(shard.begin));
  }
  HostReductionBuffer buffer(all);
  all_gather(buffer);
}

void RankCollectives::reduce_scatter(std::span<float> all, std::span<float> own) {
  const ElementRange shard = own_part(all.size());
  check(shard.size() == own.size(), "a rank scatters to another size than the others");
  HostReductionBuffer buffer(all);
  reduce_scatter(buffer);
  if (own.data() != all.data() + shard.begin) {
    std::ranges::copy(all.subspan(shard.begin, shard.size()), own.begin());
  }
}

void RankCollectives::all_to_all(ExchangeBuffer& messages) {
  exec::all_to_all(members_, next_key(), messages, transport_);
}

template <class Value>
std::vector<std::vector<Value>> RankCollectives::exchanged(
    const std::vector<std::vector<Value>>& to) {
  const MessageKey key = next_key();
  for (std::size_t rank = 0; rank < to.size(); ++rank) {
    MessageKey message = key;
    message.to = members_[rank];
    if (message.to != key.from) transport_.send(message, payload_of(to[rank]));
  }
  std::vector<std::vector<Value>> from;
  for (std::size_t rank = 0; rank < to.size(); ++rank) {
    MessageKey message = key;
    message.from = members_[rank];
    message.to = key.from;
    const bool is_own = message.from == key.from;
    from.push_back(is_own ? to[rank] : values_of<Value>(transport_.receive(message, {})));
  }
  return from;
}

void RankCollectives::all_to_all(const std::vector<std::vector<float>>& to,
                                 std::vector<std::vector<float>>& from) {
  std::vector<std::vector<float>> arrived = exchanged(to);
  for (std::size_t rank = 0; rank < to.size(); ++rank) {
    check(from[rank].empty() || arrived[rank].size() == from[rank].size(),
          "a rank sends another size than was expected");
  }
  from = std::move(arrived);
}

std::vector<std::vector<std::int64_t>> RankCollectives::exchange(
    const std::vector<std::vector<std::int64_t>>& to) {
  return exchanged(to);
}

std::vector<std::vector<DeviceIndex>> members_of_groups(const TrainingJob& job, DeviceIndex device,
                                                        std::int64_t rank) {
  std::vector<std::vector<DeviceIndex>> groups;
  const TrainingDevice own = job.device_of(device, rank);
  for (const FormIndex form : job.forms_on(device)) {
    for_each_group(own.in(form), [&](const auto& in, std::int64_t stride) {
      groups.push_back(members_of(job, device, rank, {in.rank, in.ranks, stride}));
    });
  }
  return groups;
}

std::vector<std::vector<DeviceIndex>> members_of_expert_groups(const TrainingJob& job,
                                                               DeviceIndex device,
                                                               std::int64_t rank) {
  std::vector<std::vector<DeviceIndex>> groups;
  const TrainingDevice own = job.device_of(device, rank);
  for (const FormIndex form : job.forms_on(device)) {
    const nn::GroupRank& experts = own.in(form).layers.experts;
    const nn::GroupRank& sharing = own.in(form).layers.expert_tensor;
    const auto add = [&](const nn::GroupRank& some, std::int64_t stride) {
      if (some.ranks == 1) return;
      groups.push_back(members_of(job, device, rank, {some.rank, some.ranks, stride}));
    };
    add(experts, sharing.ranks);
    add(sharing, 1);
  }
  return groups;
}

DeviceSchedule schedule_of_rank(const TrainingJob& job, DeviceIndex device, std::int64_t rank) {
  const TrainingDevice own = job.device_of(device, rank);
  DeviceSchedule schedule = job.schedule_of(device);
  schedule.device = job.number_of(device, rank);
  for (DeviceAction& entry : schedule.actions) {
    const bool is_resharded = job.reshards() && set_peers(job, own, entry);
    if (is_resharded) continue;
    for (SchedulePeer& peer : entry.peers) peer.device = job.number_of(peer.device, rank);
  }
  return schedule;
}

RankGroups::RankGroups(const TrainingJob& job, const TrainingDevice& device, Transport& transport)
    : transport_(transport), device_(device), schedule_(job.schedule_of(device.device)) {
  if (job.ranks() == 1 && !job.reshards()) return;
  for (const FormIndex form : job.forms_on(device.device)) connect(job, form);
  between_ = std::make_unique<BetweenDevices>(job, device.number, groups_, transport);
  if (!job.reshards()) return;
  for (DeviceAction& entry : schedule_.actions) set_peers(job, device_, entry);
}

/// Before the first iteration, groups of different forms may be used on one device, each in an
/// action of its form.
void RankGroups::connect(const TrainingJob& job, FormIndex form) {
  std::int32_t number = 0;
  for_each_group(device_.forms[form.position()], [&](auto& own, std::int64_t stride) {
    groups_.push_back(std::make_unique<RankCollectives>(
        members_of(job, device_.device, device_.number, {own.rank, own.ranks, stride}), own.rank,
        number++, transport_));
    groups_.back()->begin({ActionKind::OptimizerStep, form.value, StageIndex{0}});
    own.group = groups_.back().get();
  });
}

void RankGroups::begin(std::int64_t iteration) {
  for (const auto& group : groups_) group->begin(iteration);
}

void RankGroups::begin(const Action& action) {
  for (const auto& group : groups_) group->begin(action);
}

}  // namespace dapple::exec
