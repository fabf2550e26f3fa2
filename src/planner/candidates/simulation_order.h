// In which order candidates are simulated where not all of them can be.
#pragma once

#include <cstddef>
#include <vector>

#include "dapple/search/dapple_search/dapple_search.h"

namespace dapple::planner {

/// Their positions by rising bound, in steps; within one, those with the fewest micro-batches
/// first, as they take the least to simulate; of equals the first. O(n log n).
std::vector<std::size_t> simulation_order(const std::vector<search::Candidate>& candidates);

}  // namespace dapple::planner
