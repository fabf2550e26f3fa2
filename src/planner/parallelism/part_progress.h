// The progress of a search through a space with several parts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "dapple/planner/request/planner_options.h"

namespace dapple::planner {

/// Tells how far the search of the whole space is while its parts are searched one by one: with the
/// counts of all parts so far, the best plan of any part, and the least of the parts' bounds.
class PartProgress : public Progress {
 public:
  /// `whole` may be null, and must outlive this object.
  explicit PartProgress(Progress* whole) : whole_(whole) {}

  /// Begins with the next part. `bound_of_others` is a lower bound on every plan of the other
  /// parts, infinite where they have none, and nothing while none is proven.
  void begin(std::string part, std::optional<Duration> bound_of_others) {
    part_ = std::move(part);
    bound_of_others_ = bound_of_others;
    begin_search();
  }

  /// Returns this, or null where nobody follows the whole.
  Progress* follower() { return whole_ == nullptr ? nullptr : this; }

  /// Requires, as the others: follower() is not null.
  void update(const SearchProgress& progress) override {
    // A part may be searched several times, each with counts from zero.
    if (progress.states < in_search_.states) begin_search();
    in_search_ = progress;
    if (progress.best) best_ = std::min(best_.value_or(*progress.best), *progress.best);
    std::optional<Duration> bound;
    if (progress.bound && bound_of_others_) bound = std::min(*progress.bound, *bound_of_others_);
    whole_->update({.states = before_.states + progress.states,
                    .candidates = before_.candidates + progress.candidates,
                    .simulated = before_.simulated + progress.simulated,
                    .best = best_,
                    .bound = bound,
                    .part = part_});
  }
  bool should_stop() override { return whole_->should_stop(); }
  bool should_end_part(double part) override { return whole_->should_end_part(part); }

 private:
  void begin_search() {
    before_.states += in_search_.states;
    before_.candidates += in_search_.candidates;
    before_.simulated += in_search_.simulated;
    in_search_ = {};
  }

  Progress* whole_;
  std::string part_;
  std::optional<Duration> bound_of_others_;
  std::optional<Duration> best_;
  // The counts of the searches before, and those of the current one.
  SearchProgress before_;
  SearchProgress in_search_;
};

}  // namespace dapple::planner
