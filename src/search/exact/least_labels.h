// The least labels of the parts behind a cut. They drop completion functions that no part behind
// them completes below the threshold: (C10) of docs/bounds.md.
//
// Source: the recursion of bound.h over the states of the completion bounds, from the last cut to
// the first, with one component-wise minimum for each state in place of a list.
#pragma once

#include <cstdint>

#include "dapple/core/indexed_vector.h"
#include "dapple/search/allowance.h"
#include "dapple/search/bounds/bound.h"
#include "dapple/search/indices.h"
#include "search/exact/completion_stages.h"

namespace dapple::search {

class LeastLabels {
 public:
  /// Computes the labels of all states, unless they would take more than `most` bytes or the
  /// allowance ends first, in which case nothing is known of any. `num_micro_batches` are those of
  /// an iteration.
  /// O(cuts * classes * kinds * (kinds + stages that begin at a cut)).
  LeastLabels(CompletionStages& stages, Duration threshold, std::int64_t num_micro_batches,
              Bytes most, Allowance& allowance);

  /// Returns the least label of the parts behind the boundary at `cut`, counted from the start of
  /// the transfer over it, behind a stage of kind `front` (an index into kinds()), where `used` are
  /// all devices in front of the cut; null if every such part makes a plan reach the threshold.
  /// Requires: is_known(). O(1).
  const BoundLabel* behind(CutIndex cut, std::size_t front, AllocationClassIndex used) const {
    const BoundLabel& label = labels_[cut][position(front, used)];
    return label.end == Duration::infinite() ? nullptr : &label;
  }
  bool is_known() const { return !labels_.empty(); }

  Bytes kept_bytes() const { return kept_; }

 private:
  std::size_t position(std::size_t front, AllocationClassIndex used) const {
    return used.position() * stages_.kinds().size() + front;
  }
  void compute(CutIndex cut);
  std::vector<BoundLabel> labels_of_kinds(CutIndex cut, AllocationClassIndex used);
  BoundLabel least_label(CutIndex cut, std::size_t kind, AllocationClassIndex used_after);

  CompletionStages& stages_;
  Duration threshold_;
  std::int64_t micro_batches_;
  Allowance& allowance_;
  // By cut, then devices in use, then kind of the stage in front; the end is infinite where there
  // is none.
  IndexedVector<CutIndex, std::vector<BoundLabel>> labels_;
  Bytes kept_;
};

}  // namespace dapple::search
