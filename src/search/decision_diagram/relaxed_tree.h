// Branch and bound over the same relaxation as a relaxed diagram, without merging nodes: a node is
// a path, so that what the order of 1F1B makes of all its stages together can be counted (D7).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "dapple/core/indexed_vector.h"
#include "dapple/search/allowance.h"
#include "dapple/search/bounds/bound.h"
#include "dapple/search/bounds/earliest_start_bound.h"
#include "dapple/search/search_problem.h"
#include "search/bounds/order_bound.h"
#include "search/decision_diagram/class_stages.h"
#include "search/decision_diagram/prefix_completions.h"

namespace dapple::search {

class RelaxedTree {
 public:
  /// All arguments must outlive the tree.
  RelaxedTree(const CostModel& costs, ClassStages& stages, const PrefixCompletions& completions,
              const SearchProblem& problem, Duration threshold, Allowance& allowance);

  /// Returns the least bound of all paths that cover all layers, at most the threshold; not a bound
  /// if the allowance ends first.
  Duration search();

 private:
  /// A stage of the path and the partial plan that begins with it.
  struct Step {
    StageBound stage;
    // Behind the stage; all zero behind the last one.
    BoundaryBound boundary;
    BoundLabel label;
    // Lower bound on every plan with the path up to here.
    Duration bound;
    StageClassIndex devices;
    BoundaryKind front = BoundaryKind::Any;
    // The stages that share servers, this one the first of them.
    ClassStages::SharedServers shared = 0;
  };
  /// The stages of one column, in front of the path.
  struct Extension {
    CutIndex cut;
    AllocationClassIndex used_after;
    const StageColumn& stages;
    StageForm form = {};
  };

  void prepend_stages(CutIndex cut, AllocationClassIndex used);
  void extend(const Step& next, const Extension& extension);
  Duration bound_of_stages(const BeforePart& before);
  Duration bound_of_depths() const;
  ClassStages::Boundaries& boundaries(CutIndex cut);

  const CostModel& costs_;
  ClassStages& stages_;
  const PrefixCompletions& completions_;
  const SearchProblem& problem_;
  std::int64_t micro_batches_;
  CutIndex end_of_model_;
  // That of the plans that are still of interest.
  Duration threshold_;
  Allowance& allowance_;
  // Last stage first.
  std::vector<Step> path_;
  // Working memory of bound_of_stages().
  OrderedStages ordered_;
  IndexedVector<CutIndex, std::optional<ClassStages::Boundaries>> boundaries_;
};

}  // namespace dapple::search
