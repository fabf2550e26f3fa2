#include "search/exact/completion_stages.h"

#include <algorithm>

namespace dapple::search {

CompletionStages::CompletionStages(const CostModel& costs, PlacementSpace& placements,
                                   const SearchProblem& problem, Duration threshold)
    : problem_(problem),
      end_of_model_{costs.layer_count()},
      threshold_(threshold),
      forms_(stage_forms(costs, problem.may_deal && placements.is_complete())),
      classes_(costs, placements, problem),
      columns_(costs, problem, threshold),
      work_(costs, problem.micro_batch_size, problem.global_batch_size) {
  for (const AllocationClassIndex devices : classes_.not_empty()) {
    if (!classes_.counts_for_itself(devices)) continue;
    for (const bool deals : {false, true}) {
      const Kind kind{devices, deals};
      const auto is_of_kind = [&](StageForm form) { return is_tried(form, kind); };
      if (std::any_of(forms_.begin(), forms_.end(), is_of_kind)) kinds_.push_back(kind);
    }
  }
}

/// Whether a stage of that kind may run in that form.
bool CompletionStages::is_tried(StageForm form, Kind kind) const {
  return form.deals == kind.deals && problem_.allows(form, classes_.replicas(kind.devices)) &&
         (form.devices_per_replica == 1 ||
          classes_.has_replicas_of(kind.devices, form.devices_per_replica));
}

/// Returns the highest beginning of a stage on devices of a class that ends at `end` and leaves no
/// more layers than the other devices have time for (P1).
CutIndex CompletionStages::last_begin(CutIndex end, AllocationClassIndex devices) const {
  const double others = classes_.capacity(classes_.rest(devices), work_);
  return std::min(end.previous(), work_.last_begin_within(end, others, threshold_));
}

/// Returns the least figures of the stages that end at `end` on devices of a class, up to the last
/// beginning.
const StageColumn& CompletionStages::column(CutIndex end, AllocationClassIndex devices,
                                            StageForm form, Allowance& allowance) {
  const std::tuple key{end, devices, form};
  const auto found = least_columns_.find(key);
  if (found != least_columns_.end()) return found->second;
  std::vector<StageDevices> representatives;
  for (const DeviceAllocation* allocation : classes_.allocations(devices)) {
    if (allocation->devices_per_replica != form.devices_per_replica) continue;
    if (form.deals && !allocation->samples.empty()) continue;
    representatives.push_back({.devices = allocation->devices,
                               .samples = allocation->samples,
                               .reductions = {&allocation->reduction}});
  }
  const StageColumn& column =
      least_columns_
          .emplace(key, columns_.least(end, representatives, last_begin(end, devices), form))
          .first->second;
  allowance.spend(static_cast<std::int64_t>(column.stages.size() * representatives.size()));
  allowance.keep({static_cast<std::int64_t>(column.stages.size() * sizeof(StageBound))});
  return column;
}

const std::vector<CompletionStages::Stage>& CompletionStages::stages(CutIndex cut, std::size_t kind,
                                                                     Allowance& allowance) {
  if (cut != cut_ || stages_.empty()) {
    cut_ = cut;
    stages_.assign(kinds_.size(), std::nullopt);
  }
  std::optional<std::vector<Stage>>& known = stages_[kind];
  if (known) return *known;
  known.emplace();
  for (const StageForm form : forms_) {
    if (is_tried(form, kinds_[kind])) add_stages(cut, kinds_[kind], form, *known, allowance);
  }
  return *known;
}

/// Adds the stages of one form.
void CompletionStages::add_stages(CutIndex cut, Kind kind, StageForm form,
                                  std::vector<Stage>& stages, Allowance& allowance) {
  const std::int32_t devices = classes_.replicas(kind.devices);
  const StageWork work{.num_micro_batches = problem_.micro_batches_of(form, devices),
                       .lanes = form.deals ? devices : 1};
  const std::int64_t replicas = devices / form.devices_per_replica;
  for (CutIndex end = cut.next(); end <= end_of_model_; end = end.next()) {
    if (!allowance.spend(1)) return;
    if (cut > last_begin(end, kind.devices)) continue;
    const StageColumn& plain = column(end, kind.devices, form.plain(), allowance);
    if (cut < plain.first) return;
    // Recomputation does not lower the bound of a stage that can hold all micro-batches without it.
    if (form.recompute && !is_worth_recomputing(plain, problem_.pins)) continue;
    const StageBound& stage = column(end, kind.devices, form, allowance).at(cut);
    if (stage.work(work.num_micro_batches) >= threshold_) return;
    if (stage.depth_limit == 0) continue;
    if (!problem_.pins.allow(layers_between(cut, end), replicas, form.recompute)) continue;
    stages.push_back({.end = end, .figures = stage, .work = work});
  }
}

bool CompletionStages::may_be_in_front(CutIndex cut, AllocationClassIndex devices) const {
  return may_be_on(layers_between({}, cut), devices);
}

bool CompletionStages::may_be_behind(CutIndex cut, AllocationClassIndex others) const {
  return cut == end_of_model_ ||
         may_be_on(layers_between(cut, end_of_model_), classes_.rest(others));
}

bool CompletionStages::may_be_on(LayerRange layers, AllocationClassIndex devices) const {
  const double capacity = classes_.capacity(devices, work_);
  return capacity > 0 && work_.busiest(layers, capacity) < threshold_;
}

const BoundaryBound* CompletionStages::between(CutIndex cut, Kind front, Kind back) {
  if (front.deals || back.deals) return &bound_dealt(cut, side(front), side(back));
  const BoundaryLowerBound& bound = classes_.between(cut, front.devices, back.devices);
  return bound ? &*bound : nullptr;
}

const BoundaryBound& CompletionStages::bound_dealt(CutIndex cut, AllocationClasses::Side front,
                                                   AllocationClasses::Side back) {
  const auto [entry, is_new] = dealt_boundaries_.try_emplace({cut, front, back});
  if (is_new) entry->second = classes_.bound_dealt(cut, front, back);
  return entry->second;
}

void CompletionStages::release_columns(Allowance& allowance) {
  for (const auto& [key, stages] : least_columns_) {
    allowance.keep({-static_cast<std::int64_t>(stages.stages.size() * sizeof(StageBound))});
  }
  least_columns_.clear();
}

}  // namespace dapple::search
