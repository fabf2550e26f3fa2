// Every plan of one micro-batch size whose bound is below a threshold, by rising bound.
//
// Source: the bound of bound.h. Plans grow from the last stage to the first; a partial plan's bound
// is that of the best front that may stand before it (the relaxation looks at fronts wherever they
// are put). Nothing is dropped but what cannot be below the threshold: no plan is taken for as good
// as another because their bounds say so, for their simulated times may differ.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/search/allowance.h"
#include "dapple/search/dapple_search/dapple_search.h"

namespace dapple::search {

class ExactSearch {
 public:
  /// More are not searched: their bound is that of the work alone.
  static constexpr std::int32_t kMostDevices = 1024;

  /// Profile and topology must outlive it.
  ExactSearch(const ModelProfile& profile, const Topology& topology, const SearchProblem& problem);
  ~ExactSearch();

  /// Bounds all fronts, a step for each stage that is bounded or tried behind a front. Plans whose
  /// bound is `threshold` or more are dropped from here on. To be called once, before all else.
  /// Where the allowance ends first, what the work alone takes is the bound, and nothing can be
  /// searched.
  void prepare(Duration threshold, const Allowance::Limits& limits);
  bool is_prepared() const;

  /// How far to go.
  struct Stretch {
    Duration threshold;          // plans from it on are dropped; never above the one before
    std::size_t candidates = 1;  // until so many wait
    std::int64_t states = 1;     // or so many stages have been tried
  };
  void advance(const Stretch& stretch);

  /// The waiting candidate with the least bound. Requires: there is one.
  Candidate take();
  std::size_t waiting() const;
  /// Of the next one to take; nothing if none waits.
  std::optional<Duration> next_bound() const;

  /// At least, of every plan that was not taken: the threshold where nothing is left. Of placements
  /// that are tried, where not all are.
  Duration bound() const;
  /// Of every plan, however it is placed: the same where all placements are tried, else what the
  /// fronts have in common, at most the threshold that they were made for.
  Duration bound_anywhere() const;
  bool is_exhausted() const;  // nothing is left but what waits
  /// Plans that wait and partial plans whose bound is below that. O(partial plans).
  std::int64_t open(Duration below) const;
  bool covers_all_placements() const;

  std::int64_t states() const;  // stages tried in front of partial plans, and fronts kept
  std::int64_t kept() const;    // partial plans and fronts in memory, some 200 bytes each
  Bytes kept_bytes() const;     // all that is kept, by the sizes of its elements
  /// Steps so far: of prepare(), and for each stage that is tried since, pairs of stages that its
  /// bounds look at.
  std::int64_t work() const;

 private:
  class Search;
  std::unique_ptr<Search> search_;
};

}  // namespace dapple::search
