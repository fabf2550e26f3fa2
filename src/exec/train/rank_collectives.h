// What connects the ranks of groups: collectives among the ranks of one group, and messages between
// ranks of different groups: of the same number or, where stages have different groups, of any.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "dapple/exec/message/all_reduce.h"
#include "dapple/exec/message/transport.h"
#include "dapple/exec/train/training_job.h"
#include "dapple/nn/shared_layers.h"

namespace dapple::exec {

/// The collectives of one rank within its group, as messages of the action that needs them. They
/// are called by one thread.
class RankCollectives : public nn::RankGroup {
 public:
  /// `members` are the devices of the ranks, in their order; `number` tells groups of the same
  /// devices apart that are used in one action, at most 7. The transport must outlive this.
  RankCollectives(std::vector<DeviceIndex> members, std::int64_t rank, std::int32_t number,
                  Transport& transport);

  void begin(std::int64_t iteration) { key_.iteration = iteration; }
  /// Sets the action of whose computation later collectives are a part. Requires: no action begins
  /// twice in an iteration.
  void begin(const Action& action);

  void all_reduce(std::span<float> values) override;
  void all_gather(std::span<const float> own, std::span<float> all) override;
  void reduce_scatter(std::span<float> all, std::span<float> own) override;
  void all_to_all(const std::vector<std::vector<float>>& to,
                  std::vector<std::vector<float>>& from) override;

 private:
  MessageKey next_key();

  std::vector<DeviceIndex> members_;
  ReductionGroup ring_;
  Transport& transport_;
  const std::int32_t first_step_;
  MessageKey key_;
};

/// Returns part `rank` of the range, of `ranks` parts, as collectives divide it among the ranks.
ElementRange part_of_rank(ElementRange all, std::int64_t rank, std::int64_t ranks);

/// What connects one rank of one of the plan's devices to all others.
class RankGroups {
 public:
  /// The transport connects devices by job.number_of(). Job and transport must outlive this.
  RankGroups(const TrainingJob& job, DeviceIndex device, std::int64_t rank, Transport& transport);

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
  void connect(const TrainingJob& job, FormRank& form, std::int64_t rank);
  nn::RankGroup* add(const TrainingJob& job, std::int64_t own, std::int64_t count,
                     std::int64_t stride, std::int64_t rank, std::int32_t number);

  Transport& transport_;
  TrainingDevice device_;
  DeviceSchedule schedule_;
  std::vector<std::unique_ptr<RankCollectives>> groups_;
  std::unique_ptr<Transport> between_;
};

}  // namespace dapple::exec
