#include "dapple/search/placement/other_shares.h"

namespace dapple::search {

OtherShares equal_shares_only() {
  return [](const std::vector<DeviceIndex>&) { return std::vector<std::int64_t>(); };
}

OtherShares other_shares(const CostModel& costs, const SearchProblem& problem) {
  if (!problem.shares_by_speed) return equal_shares_only();
  const std::int64_t samples = problem.micro_batch_size;
  return [&costs, samples](const std::vector<DeviceIndex>& devices) {
    const auto replicas = static_cast<std::int64_t>(devices.size());
    return replicas <= samples ? costs.shares_by_speed(samples, devices)
                               : std::vector<std::int64_t>();
  };
}

}  // namespace dapple::search
