// Stage columns by taking, made when first asked for and kept.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>

#include "dapple/search/dapple_search/dapple_search.h"
#include "dapple/search/placement/placement_space.h"
#include "search/bounds/prefix_bound.h"
#include "search/bounds/stage_column.h"

namespace dapple::search {

class StageColumns {
 public:
  /// Stages whose work alone takes `threshold` or longer are left out.
  StageColumns(const CostModel& costs, const SearchProblem& problem, Duration threshold);

  /// Stages that end at `end`, from the lowest first layer on whose work is below the threshold.
  /// O(1) once known.
  const StageColumn& column(std::int32_t end, const DeviceAllocation& allocation,
                            std::int32_t number, bool recompute);

  /// The same for any of several takings: of every stage the least bounds and the deepest limit.
  StageColumn least(std::int32_t end, const std::vector<const DeviceAllocation*>& allocations,
                    bool recompute);

  /// By the sizes of their elements.
  Bytes kept_bytes() const { return kept_; }

 private:
  static void merge(StageColumn& least, const StageColumn& other);
  StageColumn make(std::int32_t end, const DeviceAllocation& allocation, bool recompute);

  const CostModel& costs_;
  const SearchProblem& problem_;
  Duration threshold_;
  PrefixBound work_;
  std::map<std::tuple<std::int32_t, std::int32_t, bool>, StageColumn> columns_;
  Bytes kept_;
};

}  // namespace dapple::search
