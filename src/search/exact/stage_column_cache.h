// Keeps stage columns by device allocation.
#pragma once

#include <map>
#include <tuple>

#include "dapple/search/indices.h"
#include "dapple/search/placement/placement_space.h"
#include "dapple/search/search_problem.h"
#include "search/bounds/prefix_bound.h"
#include "search/bounds/stage_column.h"

namespace dapple::search {

/// Makes stage columns and keeps those of the allocations of a PlacementSpace.
class StageColumnCache {
 public:
  /// Columns leave out stages whose work alone takes `threshold` or longer.
  StageColumnCache(const CostModel& costs, const SearchProblem& problem, Duration threshold);

  /// Returns the stages that end at `end`, from the lowest first layer on with which their work
  /// alone is below the threshold. `index` is that of the allocation. O(log columns) once known.
  const StageColumn& column(CutIndex end, const DeviceAllocation& allocation, AllocationIndex index,
                            StageForm form);

  /// Returns a column that bounds those of all given devices: for every stage the least times and
  /// the largest depth limit. Stages that begin behind `last` are left out. It is not kept.
  StageColumn least(CutIndex end, const std::vector<StageDevices>& devices, CutIndex last,
                    StageForm form);

  /// The bytes of all columns that are kept, by the sizes of the elements.
  Bytes kept_bytes() const { return kept_; }

 private:
  static void merge(StageColumn& least, const StageColumn& other);
  StageColumn make(CutIndex end, const StageDevices& devices, CutIndex last, StageForm form);

  const CostModel& costs_;
  const SearchProblem& problem_;
  Duration threshold_;
  PrefixBound work_;
  std::map<std::tuple<CutIndex, AllocationIndex, StageForm>, StageColumn> columns_;
  Bytes kept_;
};

}  // namespace dapple::search
