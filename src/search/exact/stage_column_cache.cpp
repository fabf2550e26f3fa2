#include "search/exact/stage_columns.h"

#include <algorithm>

namespace dapple::search {
namespace {

std::size_t at(std::int32_t position) {
  return static_cast<std::size_t>(position);
}

/// Returns figures that bound two stages with the same layers: neither stage is faster or has a
/// larger depth limit.
StageBound least_of(const StageBound& a, const StageBound& b) {
  StageBound least = a;
  least.forward = std::min(a.forward, b.forward);
  least.backward = std::min(a.backward, b.backward);
  least.after_backward = std::min(a.after_backward, b.after_backward);
  least.depth_limit = std::max(a.depth_limit, b.depth_limit);
  least.slowest = std::min(a.slowest, b.slowest);
  return least;
}

}  // namespace

StageColumns::StageColumns(const CostModel& costs, const SearchProblem& problem, Duration threshold)
    : costs_(costs),
      problem_(problem),
      threshold_(threshold),
      work_(costs, problem.micro_batch_size, problem.global_batch_size) {}

const StageColumn& StageColumns::column(std::int32_t end, const DeviceAllocation& allocation,
                                        std::int32_t number, bool recompute) {
  const std::tuple key{end, number, recompute};
  const auto found = columns_.find(key);
  if (found != columns_.end()) return found->second;
  const StageColumn& made = columns_.emplace(key, make(end, allocation, recompute)).first->second;
  kept_ += Bytes{static_cast<std::int64_t>(made.stages.size() * sizeof(StageBound))};
  return made;
}

StageColumn StageColumns::make(std::int32_t end, const DeviceAllocation& allocation,
                               bool recompute) {
  // The capacity if all devices were of the quickest kind.
  const double capacity = allocation.replicas;
  return make_stage_column(
      costs_, {.devices = allocation.devices, .reduction = allocation.reduction},
      {.first = work_.first_layer_within(end, capacity, threshold_),
       .end = end,
       .micro_batch_size = problem_.micro_batch_size,
       .num_micro_batches = problem_.global_batch_size / problem_.micro_batch_size,
       .recompute = recompute,
       .ignore_memory = problem_.ignore_memory,
       .gradients = problem_.gradients,
       .hold_all = problem_.gpipe,
       .replicas = problem_.replicas});
}

/// Merges a column into `least`. The column of more replicas may begin at a lower layer.
void StageColumns::merge(StageColumn& least, const StageColumn& other) {
  least.memory_limits = least.memory_limits && other.memory_limits;
  const std::int32_t first = std::max(least.first, other.first);
  const auto end =
      first + static_cast<std::int32_t>(std::min(least.stages.size() - at(first - least.first),
                                                 other.stages.size() - at(first - other.first)));
  for (std::int32_t begin = first; begin < end; ++begin) {
    StageBound& stage = least.stages[at(begin - least.first)];
    stage = least_of(stage, other.at(begin));
  }
  if (other.first >= least.first) return;
  least.stages.insert(least.stages.begin(), other.stages.begin(),
                      other.stages.begin() + (least.first - other.first));
  least.first = other.first;
}

StageColumn StageColumns::least(std::int32_t end,
                                const std::vector<const DeviceAllocation*>& allocations,
                                bool recompute) {
  StageColumn least;
  for (const DeviceAllocation* allocation : allocations) {
    StageColumn column = make(end, *allocation, recompute);
    if (allocation == allocations.front()) {
      least = std::move(column);
    } else {
      merge(least, column);
    }
  }
  return least;
}

}  // namespace dapple::search
