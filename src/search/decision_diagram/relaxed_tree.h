// Branch and bound over the same relaxation as a relaxed diagram, without merging nodes: a node is
// a path, so that what the order of 1F1B makes of all its stages together can be counted (D7).
#pragma once

#include <condition_variable>
#include <cstddef>
#include <exception>
#include <mutex>
#include <optional>
#include <vector>

#include "dapple/core/parallel.h"
#include "dapple/core/quantity.h"
#include "dapple/search/allowance.h"
#include "dapple/search/search_problem.h"
#include "search/decision_diagram/class_stages.h"
#include "search/decision_diagram/path_walk.h"
#include "search/decision_diagram/prefix_completions.h"

namespace dapple::search {

class RelaxedTree {
 public:
  /// All arguments must outlive the tree.
  RelaxedTree(const CostModel& costs, ClassStages& stages, const PrefixCompletions& completions,
              const SearchProblem& problem, Duration threshold, Allowance& allowance);

  /// Returns the least bound of all paths that cover all layers, at most the threshold; not a bound
  /// if the allowance ends first. Idle threads help; the result and the work do not depend on them.
  Duration search(IdleThreads& idle);

 private:
  /// The paths that begin alike, and the threshold below which they are of interest.
  struct Task {
    std::size_t number = 0;
    Duration threshold;
    // Whether there are further ones.
    bool are_more = false;
  };
  void run(IdleThreads& idle);
  std::optional<Task> next_task();
  void end(std::size_t number, Duration found);

  PathWalk::Shared shared_;
  // The beginnings of paths, in the order in which walks go through them.
  std::vector<PathWalk::Begun> begun_;

  // Guards what follows.
  std::mutex mutex_;
  std::condition_variable has_ended_;
  std::size_t next_ = 0;
  // By beginning, what the walk through its paths found, once it has ended.
  std::vector<std::optional<Duration>> found_;
  // By number of walks, the least that the first so many found, as far as these have all ended.
  std::vector<Duration> least_;
  std::exception_ptr failure_;
};

}  // namespace dapple::search
