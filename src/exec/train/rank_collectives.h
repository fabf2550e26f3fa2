// What connects the ranks of groups: collectives among the ranks of one group, and messages between
// ranks of different groups: of the same number or, where stages have different groups, of any.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "dapple/exec/message/all_reduce.h"
#include "dapple/exec/message/all_to_all.h"
#include "dapple/exec/message/transport.h"
#include "dapple/exec/train/training_job.h"
#include "dapple/nn/shared_layers.h"

namespace dapple::exec {

/// The collectives of one rank within its group, as messages of the action that needs them or,
/// where the transport performs them, as collectives of its own. They are called by one thread.
class RankCollectives : public nn::RankGroup {
 public:
  /// `members` are the devices of the ranks, in their order; `number` tells groups of the same
  /// devices apart that are used in one action, at most 7. The transport must outlive this.
  RankCollectives(std::vector<DeviceIndex> members, std::int64_t rank, std::int32_t number,
                  Transport& transport);

  void begin(std::int64_t iteration) { key_.iteration = iteration; }
  /// Sets the action of whose computation later collectives are a part. Requires: no action begins
  /// twice in an iteration. RankGroups begins one for what a device does before its first
  /// iteration.
  void begin(const Action& action);

  std::int64_t ranks() const { return static_cast<std::int64_t>(members_.size()); }
  std::int64_t rank() const { return rank_; }
  /// Returns the part of `count` numbers that is this rank's, as nn::RankGroup divides them.
  ElementRange own_part(std::size_t count) const;

  /// Do what the functions of these names do with numbers on the host. All of them are in one
  /// buffer, wherever it lies, in which the rank's own part is the one that it gathers, or that has
  /// its sum.
  void all_reduce(ReductionBuffer& all);
  void all_gather(ReductionBuffer& all);
  void reduce_scatter(ReductionBuffer& all);
  void all_to_all(ExchangeBuffer& messages);

  void all_reduce(std::span<float> values) override;
  void all_gather(std::span<const float> own, std::span<float> all) override;
  void reduce_scatter(std::span<float> all, std::span<float> own) override;
  void all_to_all(const std::vector<std::vector<float>>& to,
                  std::vector<std::vector<float>>& from) override;
  /// Returns what each rank has sent to this one, which sends `to[r]` to rank r.
  std::vector<std::vector<std::int64_t>> exchange(const std::vector<std::vector<std::int64_t>>& to);

 private:
  MessageKey next_key();
  template <class Value>
  std::vector<std::vector<Value>> exchanged(const std::vector<std::vector<Value>>& to);

  std::vector<DeviceIndex> members_;
  ReductionGroup ring_;
  const std::int64_t rank_;
  Transport& transport_;
  const std::int32_t first_step_;
  MessageKey key_;
};

/// Returns the devices of the groups of several ranks that a rank of one of the plan's devices is
/// in, in the forms of the device's stages, by their numbers, each in ascending order.
std::vector<std::vector<DeviceIndex>> members_of_groups(const TrainingJob& job, DeviceIndex device,
                                                        std::int64_t rank);

/// Returns those of these groups whose ranks have different experts, or parts of the same ones.
std::vector<std::vector<DeviceIndex>> members_of_expert_groups(const TrainingJob& job,
                                                               DeviceIndex device,
                                                               std::int64_t rank);

/// Returns the schedule of a rank of one of the plan's devices, in which all devices are ranks, by
/// their numbers.
DeviceSchedule schedule_of_rank(const TrainingJob& job, DeviceIndex device, std::int64_t rank);

/// Returns part `rank` of the range, of `ranks` parts, as collectives divide it among the ranks.
ElementRange part_of_rank(ElementRange all, std::int64_t rank, std::int64_t ranks);

/// What connects one rank of one of the plan's devices to all others.
class RankGroups {
 public:
  /// The transport connects devices by job.number_of(). Job and transport must outlive this.
  RankGroups(const TrainingJob& job, const TrainingDevice& device, Transport& transport);

  /// Returns the rank with its groups.
  const TrainingDevice& device() const { return device_; }
  /// Returns the schedule of the rank's device. Where stages have different groups, the peers of
  /// its sends and receives are ranks, by their numbers among all devices.
  const DeviceSchedule& schedule() const { return schedule_; }
  /// Returns an endpoint for messages between the plan's devices, which passes on those of ranks of
  /// this number, and of the peers of the schedule. What is announced to it begins in all groups.
  Transport& between_devices() { return between_ ? *between_ : transport_; }
  /// Begins an iteration.
  void begin(std::int64_t iteration);
  /// Begins an action in all groups.
  void begin(const Action& action);

 private:
  void connect(const TrainingJob& job, FormIndex form);

  Transport& transport_;
  TrainingDevice device_;
  DeviceSchedule schedule_;
  std::vector<std::unique_ptr<RankCollectives>> groups_;
  std::unique_ptr<Transport> between_;
};

}  // namespace dapple::exec
