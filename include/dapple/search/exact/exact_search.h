// Branch and bound over all plans of one micro-batch size: enumerates the plans whose bound is
// below a threshold, by rising bound.
//
// Source: the bound of bound.h and the completion bounds of docs/bounds.md, section 5. Plans are
// built from the last stage to the first. The bound of a partial plan is the least over the
// completion functions of the stages that may stand in front of it; this is a relaxation, because
// completion functions do not say where their devices are. A plan is dropped only if it cannot be
// below the threshold. There is no dominance between plans, because plans with equal bounds may
// have different simulated times.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "dapple/core/quantity.h"
#include "dapple/search/allowance.h"
#include "dapple/search/search_problem.h"
#include "dapple/topology/topology.h"

namespace dapple::search {

class ExactSearch {
 public:
  /// Topologies with more devices are not searched; their bound is that of the work alone.
  static constexpr std::int32_t kMostDevices = 1024;

  /// The profile and the topology must outlive the search.
  ExactSearch(const ModelProfile& profile, const Topology& topology, const SearchProblem& problem);
  ~ExactSearch();

  /// Computes the completion functions of all cuts. A step is counted for each stage that is
  /// bounded or put behind a completion function. From here on, plans whose bound is `threshold` or
  /// more are dropped. If the allowance ends first, the bound is that of the work alone, and
  /// nothing can be searched.
  /// Requires: it is called once, and before it no function but raise_bound() and bound().
  void prepare(Duration threshold, const Allowance::Limits& limits);
  /// Whether prepare() was completed, so that plans can be searched.
  bool is_prepared() const;

  /// Raises the bounds of the search and of its candidates to one that is known of all plans, and
  /// closes the search if that reaches the threshold.
  void raise_bound(Duration bound, Duration threshold);

  /// The limits at which advance() stops.
  struct SearchBudget {
    /// Stop when so many candidates wait.
    std::size_t candidates = 1;
    /// Stop when so many stages have been tried.
    std::int64_t states = 1;
  };
  /// Expands open nodes until a limit of the budget is reached or no node is open. Plans whose
  /// bound is `threshold` or more are dropped. The threshold never rises from call to call.
  void advance(Duration threshold, const SearchBudget& budget);

  /// Returns the waiting candidate with the least bound and removes it.
  /// Requires: a candidate waits.
  Candidate take();
  /// The number of complete plans that wait to be taken.
  std::size_t waiting() const;
  /// The bound of the next candidate to take, or nullopt if none waits.
  std::optional<Duration> next_bound() const;

  /// Lower bound on every plan not yet returned by take(); equals the threshold once nothing is
  /// left. Where not all placements are tried, it covers only those that are.
  Duration bound() const;
  /// Lower bound on every plan not yet returned by take(), whatever its placement. It equals
  /// bound() where all placements are tried; elsewhere it is also at most the root bound, which is
  /// at most the threshold given to prepare().
  Duration bound_anywhere() const;
  /// Whether no node is left to expand, so that at most waiting candidates are left.
  bool is_exhausted() const;
  /// The number of waiting plans and open nodes with a bound below `below`. A root that has not
  /// been expanded counts as one. O(partial plans).
  std::int64_t open(Duration below) const;
  /// Whether all placements are tried, and not only those of the placement policies.
  bool covers_all_placements() const;
  /// Whether all placements are tried that the pins allow, so that bound() and bound_anywhere() are
  /// the same.
  bool covers_allowed_placements() const;

  /// Whether stages may deal their micro-batches, but none does in the plans that are tried, as not
  /// all placements are; bound_anywhere() is then at most the bound of the work alone.
  bool deals_untried() const;

  /// Stages tried in front of partial plans, plus the completion functions kept by prepare().
  std::int64_t states() const;
  /// The number of partial plans, complete plans and completion functions kept, of some 200 bytes
  /// each.
  std::int64_t kept() const;
  /// All that is kept, by the sizes of the elements.
  Bytes kept_bytes() const;
  /// Steps so far: those of prepare(), one for each stage tried since, and one for each pair of
  /// stages that its bounds look at.
  std::int64_t work() const;

 private:
  class Search;
  std::unique_ptr<Search> search_;
};

}  // namespace dapple::search
