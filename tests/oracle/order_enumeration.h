// Every order of a small plan whose devices have one stage each: each stage's own order one after
// another, with those of the others. Shares the simulator with what it checks, and the costs and
// the generator that the simulator is fed with; no search, no list rule, no moves, no bound, and
// memory is counted by memory_count.h.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "dapple/cost/cost_model.h"
#include "dapple/plan/plan.h"
#include "dapple/plan/simulation_mode.h"

namespace dapple::small {

/// Letters of one stage's order, "FFIWIW" or "FBFB"; the n-th of each is of micro-batch n.
using StageWord = std::vector<char>;

/// All orders of one stage, sorted by how many micro-batches are in flight at most; those of more
/// than `most` are left out. `words[k]`: at most k + 1.
std::vector<std::vector<StageWord>> stage_words(std::int64_t micro_batches, bool is_split,
                                                std::int64_t most);

struct OrderSpace {
  const Plan& plan;  // of a family that carries its order
  const CostModel& costs;
  SimulationMode mode = {};

  /// Most micro-batches in flight on a stage, memory apart: the family's own limit.
  std::int64_t most_in_flight() const;
};

/// Numbers in flight, by stage, that fit memory. O(most in flight ^ stages).
std::vector<std::vector<std::int64_t>> depths_that_fit(const OrderSpace& space);

/// Orders with just these numbers, deadlocks among them.
std::int64_t count_orders(const OrderSpace& space,
                          const std::vector<std::vector<std::int64_t>>& depths);

struct BestOrder {
  Duration iteration;
  std::vector<std::vector<Action>> order;
};

/// The fastest of all orders that fit, or nothing if none is faster than `below`. What no order
/// with idle links and no reductions can undercut is passed over. O(orders).
std::optional<BestOrder> best_of_all_orders(const OrderSpace& space, Duration below);

}  // namespace dapple::small
