#include "dapple/plan/plan.h"

#include <algorithm>

namespace dapple {

std::string_view to_string(ScheduleFamily family) {
  switch (family) {
    case ScheduleFamily::GPipe:
      return "gpipe";
    case ScheduleFamily::OneFOneB:
      return "1f1b";
  }
  throw Bug("a schedule family without a name");
}

std::string_view to_string(Replication replication) {
  switch (replication) {
    case Replication::Split:
      return "split";
    case Replication::Deal:
      return "deal";
  }
  throw Bug("a replication without a name");
}

SampleRange replica_share(std::int64_t micro_batch_size, std::int64_t replicas,
                          std::int64_t replica) {
  const std::int64_t share = micro_batch_size / replicas;
  const std::int64_t larger_shares = micro_batch_size % replicas;
  const std::int64_t begin = replica * share + std::min(replica, larger_shares);
  return {.begin = begin, .end = begin + share + (replica < larger_shares ? 1 : 0)};
}

SampleRange samples_of(const Plan& plan, const StagePlan& stage, std::size_t replica) {
  if (stage.replication == Replication::Deal) return {.begin = 0, .end = plan.micro_batch_size};
  return replica_share(plan.micro_batch_size, static_cast<std::int64_t>(stage.devices.size()),
                       static_cast<std::int64_t>(replica));
}

std::int64_t micro_batches_of(const Plan& plan, const StagePlan& stage, std::size_t replica) {
  if (stage.replication == Replication::Split) return plan.num_micro_batches;
  // Replica i gets i, i + r, i + 2r, ...: as many as the i-th of r shares.
  return replica_share(plan.num_micro_batches, static_cast<std::int64_t>(stage.devices.size()),
                       static_cast<std::int64_t>(replica))
      .size();
}

}  // namespace dapple
