// The depth-first walk of one thread through the paths of a RelaxedTree.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "dapple/core/indexed_vector.h"
#include "dapple/search/allowance.h"
#include "dapple/search/bounds/bound.h"
#include "dapple/search/search_problem.h"
#include "search/bounds/order_bound.h"
#include "search/decision_diagram/class_stages.h"
#include "search/decision_diagram/prefix_completions.h"

namespace dapple::search {

class PathWalk {
 public:
  /// What the walks of one tree have in common. They look up stages and boundaries of `stages`,
  /// and spend the allowance, one at a time.
  struct Shared {
    const CostModel& costs;
    const PrefixCompletions& completions;
    const SearchProblem& problem;
    ClassStages& stages;
    Allowance& allowance;
    std::mutex mutex = {};
  };
  /// A path to go on from.
  struct Begun;

  explicit PathWalk(Shared& shared);

  /// Returns the beginnings, as seen from the last stage, of all paths that may have a bound below
  /// `threshold`, in the order of a depth-first search: of one stage each, or of more where these
  /// are few. Lowers the threshold to the least bound of the paths met that cover all layers.
  std::vector<Begun> begin(Duration& threshold);

  /// Goes through the paths that begin with `begun`. Returns the least bound of those that cover
  /// all layers, at most `threshold`; not a bound if the allowance ends first.
  Duration go_through(const Begun& begun, Duration threshold);

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
  /// The stages that end at one cut on devices of a class, in front of the path.
  struct Extension {
    CutIndex cut;
    AllocationClassIndex used_after;
    const StageOptions& stages;
  };

  void prepend_stages(CutIndex cut, AllocationClassIndex used);
  void extend(const Step& next, const Extension& extension);
  void extend_by(const StageOption& option, CutIndex begin, Step& step, const Extension& extension);
  void go_on_from(const Begun& begun);
  void go_on(CutIndex begin, AllocationClassIndex used);
  Duration bound_of_stages(const BeforePart& before);
  Duration bound_of_depths();
  const StageOptions* options(CutIndex end, StageClassIndex devices, std::int32_t most);
  const BoundaryLowerBound& boundary(CutIndex cut, StageClassIndex devices, const Step& behind);
  bool spend(std::int64_t steps);
  void settle_steps();

  Shared& shared_;
  std::int64_t micro_batches_;
  CutIndex end_of_model_;
  // That of the plans that are still of interest.
  Duration threshold_;
  // Steps that the allowance does not know of yet, and whether it has ended.
  std::int64_t steps_ = 0;
  bool is_over_ = false;
  // Where paths are collected in place of going on from them; null otherwise.
  std::vector<Begun>* begun_ = nullptr;
  // Last stage first.
  std::vector<Step> path_;
  // Working memory of bound_of_stages().
  OrderedStages ordered_;
  // Those that were looked up: by cut; and by end, class and the most devices on a server.
  IndexedVector<CutIndex, std::optional<ClassStages::Boundaries>> boundaries_;
  std::unordered_map<std::uint64_t, const StageOptions*> options_;
};

struct PathWalk::Begun {
  // Last stage first.
  std::vector<Step> path;
  // The first layer of its stages, and the devices that they use.
  CutIndex begin;
  AllocationClassIndex used;
};

}  // namespace dapple::search
