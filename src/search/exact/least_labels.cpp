#include "search/exact/least_labels.h"

#include <algorithm>

namespace dapple::search {
namespace {

/// The label of no part, which is no smaller than any other.
BoundLabel label_of_none() {
  const Duration never = Duration::infinite();
  return {never, never, never, never, never, never};
}

/// Returns a label with the boundary in front of it: (C3) as a line of the label. The port's terms
/// are (B4) and (B9), those of transfers that block are (B13).
BoundLabel with_boundary(const BoundLabel& behind, const BoundaryBound& boundary,
                         std::int64_t num_micro_batches) {
  const Duration there_and_back = boundary.forward + boundary.backward;
  const Duration span =
      std::max(behind.span, behind.occupied + (num_micro_batches - 1) * boundary.occupied);
  BoundLabel label;
  label.round_trip = there_and_back + behind.round_trip;
  label.last_trip = there_and_back + behind.last_trip;
  label.span = std::max({there_and_back + span,
                         boundary.forward_queue + behind.round_trip + boundary.backward,
                         boundary.forward + behind.round_trip + boundary.backward_queue});
  label.end = std::max(boundary.forward + behind.end, boundary.forward_queue + behind.tail);
  label.tail = boundary.forward + behind.tail;
  return label;
}

}  // namespace

LeastLabels::LeastLabels(CompletionStages& stages, Duration threshold,
                         std::int64_t num_micro_batches, Bytes most, Allowance& allowance)
    : stages_(stages),
      threshold_(threshold),
      micro_batches_(num_micro_batches),
      allowance_(allowance) {
  const std::size_t cuts = stages.end_of_model().position();
  const std::size_t states = stages.classes().size() * stages.kinds().size();
  const Wide bytes = Wide{static_cast<std::int64_t>(cuts)} * static_cast<std::int64_t>(states) *
                     static_cast<std::int64_t>(sizeof(BoundLabel));
  if (bytes > most.count) return;
  kept_ = {static_cast<std::int64_t>(bytes)};
  allowance.keep(kept_);
  labels_.resize(cuts);
  for (CutIndex cut = stages.end_of_model().previous(); cut > CutIndex{}; cut = cut.previous()) {
    if (allowance.is_over()) break;
    labels_[cut].resize(states, label_of_none());
    compute(cut);
  }
  if (allowance.is_over()) labels_.clear();
}

/// Computes the labels of a cut, for all devices with which the layers in front of it may take less
/// than the threshold.
void LeastLabels::compute(CutIndex cut) {
  const std::vector<CompletionStages::Kind>& kinds = stages_.kinds();
  // By kind of the stage in front, then of the stage behind.
  std::vector<const BoundaryBound*> boundaries;
  for (const CompletionStages::Kind front : kinds) {
    for (const CompletionStages::Kind back : kinds) {
      boundaries.push_back(stages_.between(cut, front, back));
    }
  }
  for (const AllocationClassIndex used : stages_.classes().not_empty()) {
    if (!stages_.may_be_in_front(cut, used)) continue;
    const std::vector<BoundLabel> behind = labels_of_kinds(cut, used);
    if (!allowance_.spend(static_cast<std::int64_t>(kinds.size()))) return;
    for (std::size_t front = 0; front < kinds.size(); ++front) {
      BoundLabel& least = labels_[cut][position(front, used)];
      // A replica to which micro-batches are dealt sends fewer; one is counted.
      const std::int64_t transfers = kinds[front].deals ? 1 : micro_batches_;
      for (std::size_t back = 0; back < kinds.size(); ++back) {
        const BoundaryBound* boundary = boundaries[front * kinds.size() + back];
        if (boundary == nullptr || behind[back].end >= threshold_) continue;
        least = componentwise_minimum(least, with_boundary(behind[back], *boundary, transfers));
      }
    }
  }
}

/// Returns the least label of the parts behind `cut` whose first stage is of each kind.
std::vector<BoundLabel> LeastLabels::labels_of_kinds(CutIndex cut, AllocationClassIndex used) {
  std::vector<BoundLabel> labels;
  for (const CompletionStages::Kind kind : stages_.kinds()) {
    BoundLabel& least = labels.emplace_back(label_of_none());
    const auto used_after = stages_.classes().sum(used, kind.devices);
    if (!used_after) continue;
    const std::size_t position = labels.size() - 1;
    least = least_label(cut, position, *used_after);
  }
  return labels;
}

/// Returns the least label of the parts whose first stage begins at `cut`, of which `used_after`
/// are all devices in use behind that stage.
BoundLabel LeastLabels::least_label(CutIndex cut, std::size_t kind,
                                    AllocationClassIndex used_after) {
  BoundLabel least = label_of_none();
  const std::vector<CompletionStages::Stage>& stages = stages_.stages(cut, kind, allowance_);
  allowance_.spend(std::ssize(stages));
  for (const CompletionStages::Stage& stage : stages) {
    if (!stages_.may_be_behind(stage.end, used_after)) continue;
    if (stage.end == stages_.end_of_model()) {
      least =
          componentwise_minimum(least, initial_label(stage.figures, stage.work.num_micro_batches));
      continue;
    }
    const BoundLabel* next = behind(stage.end, kind, used_after);
    if (next == nullptr) continue;
    // The boundary is part of the label.
    const BoundLabel longer = extend_label(stage.figures, {}, *next, stage.work.num_micro_batches);
    least = componentwise_minimum(least, longer);
  }
  return least;
}

}  // namespace dapple::search
