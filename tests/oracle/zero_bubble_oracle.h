// The least objective of all orders of a small problem, by looking at all of them: tasks are put
// one after the other in the order of their starts, and of two ways to have put the same tasks one
// is dropped only if the other leaves every device and every input no later. Shares nothing with
// the search but the problem.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "dapple/schedule_search/tasks/task_order.h"

namespace dapple::small {

class OrderOracle {
 public:
  explicit OrderOracle(const schedule_search::TaskProblem& problem);

  /// The least objective below `limit`; nothing if none is.
  std::optional<std::int64_t> least_below(std::int64_t limit);

 private:
  struct Partial {
    std::vector<std::vector<std::int64_t>> ends;  // by symbol: kind * stages + stage
    std::vector<std::int64_t> free_from;          // by device
    std::vector<std::int64_t> first_start;
    std::vector<std::int64_t> left;
    std::vector<std::int64_t> memory;
    std::int64_t last_start = 0;
  };

  void extend(const Partial& partial);
  void put(const Partial& partial, std::size_t symbol, std::int64_t start);
  std::optional<std::int64_t> input(const Partial& partial, std::size_t symbol) const;
  bool is_hopeless(const Partial& partial) const;
  bool is_dominated(const Partial& partial);
  std::int64_t objective_at_least(const Partial& partial, std::size_t device) const;
  const schedule_search::TaskStage& stage_of(std::size_t symbol) const {
    return problem_.stages[symbol % problem_.stages.size()];
  }

  const schedule_search::TaskProblem& problem_;
  std::size_t symbols_;
  std::int64_t limit_ = 0;
  std::optional<std::int64_t> best_;
  std::map<std::vector<std::size_t>, std::vector<std::vector<std::int64_t>>> seen_;
};

/// The same question asked once.
inline std::optional<std::int64_t> least_objective_below(
    const schedule_search::TaskProblem& problem, std::int64_t limit) {
  return OrderOracle(problem).least_below(limit);
}

}  // namespace dapple::small
