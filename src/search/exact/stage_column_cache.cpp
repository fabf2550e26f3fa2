#include "search/exact/stage_column_cache.h"

#include <algorithm>

namespace dapple::search {
namespace {

/// Returns figures that bound two stages with the same layers: neither stage is faster or has a
/// larger depth limit. Those of a stage that does not fit bound no plan.
StageBound least_of(const StageBound& a, const StageBound& b) {
  if (a.depth_limit == 0) return b;
  if (b.depth_limit == 0) return a;
  StageBound least = a;
  least.forward = std::min(a.forward, b.forward);
  least.backward = std::min(a.backward, b.backward);
  least.after_backward = std::min(a.after_backward, b.after_backward);
  least.depth_limit = std::max(a.depth_limit, b.depth_limit);
  least.slowest = std::min(a.slowest, b.slowest);
  return least;
}

}  // namespace

StageColumnCache::StageColumnCache(const CostModel& costs, const SearchProblem& problem,
                                   Duration threshold)
    : costs_(costs),
      problem_(problem),
      threshold_(threshold),
      work_(costs, problem.micro_batch_size, problem.global_batch_size) {}

const StageColumn& StageColumnCache::column(CutIndex end, const DeviceAllocation& allocation,
                                            AllocationIndex index, StageForm form) {
  const std::tuple key{end, index, form};
  const auto found = columns_.find(key);
  if (found != columns_.end()) return found->second;
  const StageColumn& made =
      columns_
          .emplace(key,
                   make(end,
                        stage_devices(costs_.topology(), allocation.devices, allocation.samples,
                                      FastestReduction({&allocation.reduction}),
                                      problem_.micro_batch_size, form),
                        end.previous(), form))
          .first->second;
  kept_ += Bytes{static_cast<std::int64_t>(made.stages.size() * sizeof(StageBound))};
  return made;
}

/// Makes a column; that of stages that deal has the figures of (L1).
StageColumn StageColumnCache::make(CutIndex end, const StageDevices& devices, CutIndex last,
                                   StageForm form) {
  // The capacity if all devices were of the quickest kind.
  const auto capacity = static_cast<double>(devices.devices.size());
  ColumnRequest request = request_of(problem_, devices, form);
  request.first = work_.first_begin_within(end, capacity, threshold_);
  request.last = std::max(request.first, last);
  request.end = end;
  request.limit = threshold_;
  return make_stage_column(costs_, devices, request);
}

/// Merges a column into `least`. The column of more replicas may begin at a lower layer. Memory may
/// limit a stage on some devices whose work is too much on others.
void StageColumnCache::merge(StageColumn& least, const StageColumn& other) {
  least.memory_limits = least.memory_limits || other.memory_limits;
  const CutIndex end = std::min(least.begins_end(), other.begins_end());
  for (CutIndex begin = std::max(least.first, other.first); begin < end; begin = begin.next()) {
    least.at(begin) = least_of(least.at(begin), other.at(begin));
  }
  if (other.first >= least.first) return;
  least.stages.insert(least.stages.begin(), other.stages.begin(),
                      other.stages.begin() + (least.first.value - other.first.value));
  least.first = other.first;
}

StageColumn StageColumnCache::least(CutIndex end, const std::vector<StageDevices>& devices,
                                    CutIndex last, StageForm form) {
  StageColumn least;
  bool is_first = true;
  for (const StageDevices& some : devices) {
    StageColumn column = make(end, some, last, form);
    if (is_first) {
      least = std::move(column);
    } else {
      merge(least, column);
    }
    is_first = false;
  }
  return least;
}

}  // namespace dapple::search
