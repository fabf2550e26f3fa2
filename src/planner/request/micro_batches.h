// The micro-batch sizes that a search tries.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dapple/planner/request/planner_options.h"

namespace dapple::planner {

struct MicroBatchSizes {
  std::vector<std::int64_t> sizes;  // ascending
  // The sizes that were left out and why, as lines of the plan's record.
  std::vector<std::string> cut;
};

/// Returns the divisors of the global batch, or the requested size. Throws Error(BadInput) where
/// the requested size is no divisor, where every size makes too many micro-batches, or where pins
/// ask for equal shares, or for a number of micro-batches, that no size allows. O(sqrt of the
/// global batch).
MicroBatchSizes micro_batch_sizes(const PlannerOptions& options);

}  // namespace dapple::planner
