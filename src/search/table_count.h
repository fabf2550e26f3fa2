// Counts the layer tables that a search has its cost model make against the search's allowance.
#pragma once

#include <cstdint>

#include "dapple/cost/cost_model.h"
#include "dapple/search/allowance.h"

namespace dapple::search {

class TableCount {
 public:
  /// Tables that exist already are not counted here.
  explicit TableCount(const CostModel& costs) : costs_(costs), counted_(costs.kept_by_tables()) {}

  /// Counts the tables made since the last call: their bytes as kept, and one step per number.
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
