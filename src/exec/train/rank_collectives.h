// What connects the ranks of groups: collectives among the ranks of one group, and messages between
// ranks of the same number in different groups.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "dapple/exec/message/all_reduce.h"
#include "dapple/exec/message/transport.h"
#include "dapple/exec/train/training_job.h"
#include "dapple/nn/tensor_parallel.h"

namespace dapple::exec {

/// The collectives of one rank within its group, as messages of the action that needs them. They
/// are called by one thread.
class RankCollectives : public nn::RankGroup {
 public:
  /// `members` are the devices of the ranks, in their order. The transport must outlive this.
  RankCollectives(std::vector<DeviceIndex> members, std::int64_t rank, Transport& transport);

  void begin(std::int64_t iteration) { key_.iteration = iteration; }
  /// Sets the action of whose computation later collectives are a part. Requires: no action begins
  /// twice in an iteration.
  void begin(const Action& action);

  void all_reduce(std::span<float> values) override;
  void all_gather(std::span<const float> own, std::span<float> all) override;
  void reduce_scatter(std::span<float> all, std::span<float> own) override;

 private:
  MessageKey next_key();

  ReductionGroup ring_;
  Transport& transport_;
  MessageKey key_;
};

/// Returns part `rank` of the range, of `ranks` parts, as collectives divide it among the ranks.
ElementRange part_of_rank(ElementRange all, std::int64_t rank, std::int64_t ranks);

/// Returns an endpoint for messages between the plan's devices, which passes on those of one rank
/// of each. What is announced to it begins in all of `collectives`, of which some may be null.
/// `below` connects devices by job.number_of(). All arguments must outlive the result.
std::unique_ptr<Transport> between_groups(const TrainingJob& job, std::int64_t rank,
                                          std::vector<RankCollectives*> collectives,
                                          Transport& below);

}  // namespace dapple::exec
