// The shares of a micro-batch that replicas may have besides equal ones.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "dapple/core/index.h"
#include "dapple/cost/cost_model.h"
#include "dapple/search/search_problem.h"

namespace dapple::search {

/// Returns the shares, replica by replica, that a stage on these devices may have besides those of
/// replica_share(); an empty list if it may have no others.
using OtherShares =
    std::function<std::vector<std::int64_t>(const std::vector<DeviceIndex>& devices)>;

/// Returns no others, whatever the devices.
OtherShares equal_shares_only();

/// Returns the shares by speed (CostModel::shares_by_speed()) if the problem has them. `costs` must
/// outlive the result.
OtherShares other_shares(const CostModel& costs, const SearchProblem& problem);

}  // namespace dapple::search
