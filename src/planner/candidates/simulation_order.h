// The order in which candidates are simulated where not all of them can be.
#pragma once

#include <cstddef>
#include <vector>

#include "dapple/search/dapple_search/dapple_search.h"

namespace dapple::planner {

/// Returns the positions of the candidates by rising bound, in steps. Within a step those with the
/// fewest micro-batches come first, as they take the least to simulate, then those with the fewest
/// stages, then those with the least bound; of equals, the first. O(n log n).
std::vector<std::size_t> simulation_order(const std::vector<search::Candidate>& candidates);

}  // namespace dapple::planner
