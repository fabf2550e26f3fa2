// Counts the tables of layers that a search has its cost model make.
#pragma once

#include <cstdint>

#include "dapple/cost/cost_model.h"
#include "dapple/search/allowance.h"

namespace dapple::search {

class TableCount {
 public:
  /// The tables that are there already count for whoever had them made.
  explicit TableCount(const CostModel& costs) : costs_(costs), counted_(costs.kept_by_tables()) {}

  /// Those since the last time: their bytes, and a step for each number.
  void add_to(Allowance& allowance) {
    const Bytes more = costs_.kept_by_tables() - counted_;
    if (more.count == 0) return;
    counted_ += more;
    allowance.keep(more);
    allowance.spend(more.count / static_cast<std::int64_t>(sizeof(Bytes)));
  }

 private:
  const CostModel& costs_;
  Bytes counted_;
};

}  // namespace dapple::search
