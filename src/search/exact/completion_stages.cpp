#include "search/exact/completion_stages.h"

#include <algorithm>

namespace dapple::search {

CompletionStages::CompletionStages(const CostModel& costs, PlacementSpace& placements,
                                   const SearchProblem& problem, Duration threshold)
    : topology_(costs.topology()),
      problem_(problem),
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
  stages_.resize(kinds_.size());
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

const std::vector<CompletionStages::Stage>& CompletionStages::stages(CutIndex cut, std::size_t kind,
                                                                     Allowance& allowance) {
  std::optional<StagesByCut>& known = stages_[kind];
  if (!known) {
    known = StagesByCut(end_of_model_.position());
    for (const StageForm form : forms_) {
      if (!form.recompute) add_stages(kinds_[kind], form, *known, allowance);
    }
    std::int64_t count = 0;
    for (const std::vector<Stage>& of_cut : *known) count += std::ssize(of_cut);
    allowance.keep({count * static_cast<std::int64_t>(sizeof(Stage))});
  }
  return (*known)[cut];
}

/// Adds the stages of a form that does not recompute whole stages, and those that do in that form.
void CompletionStages::add_stages(Kind kind, StageForm form, StagesByCut& stages,
                                  Allowance& allowance) {
  StageForm recomputing = form;
  recomputing.recompute = true;
  const bool may_recompute = is_tried(recomputing, kind);
  const bool may_be_plain = is_tried(form, kind);
  if (!may_be_plain && !may_recompute) return;
  const std::vector<StageDevices> devices = representatives(kind, form);
  std::vector<CutIndex> recomputing_ends;
  for (CutIndex end{1}; end <= end_of_model_; end = end.next()) {
    if (!allowance.spend(1)) return;
    if (!may_be_behind(end, kind.devices)) continue;
    const CutIndex last = last_begin(end, kind.devices);
    const StageColumn plain = columns_.least(end, devices, last, form);
    allowance.spend(plain.steps_from(end) * std::ssize(devices));
    if (may_be_plain) {
      add_column(plain, {.kind = kind, .form = form, .last = last, .end = end}, stages);
    }
    // Recomputation does not lower the bound of a stage that can hold all micro-batches without it.
    const bool is_worth_it = is_worth_recomputing(plain, problem_.pins);
    if (may_recompute && is_worth_it) recomputing_ends.push_back(end);
  }
  for (const CutIndex end : recomputing_ends) {
    const CutIndex last = last_begin(end, kind.devices);
    const StageColumn column = columns_.least(end, devices, last, recomputing);
    if (!allowance.spend(column.steps_from(end) * std::ssize(devices))) return;
    add_column(column, {.kind = kind, .form = recomputing, .last = last, .end = end}, stages);
  }
}

/// Returns one device allocation for each that differs of those of a kind in that form.
std::vector<StageDevices> CompletionStages::representatives(Kind kind, StageForm form) const {
  std::vector<StageDevices> devices;
  for (const DeviceAllocation* allocation : classes_.allocations(kind.devices)) {
    if (allocation->devices_per_replica != form.devices_per_replica) continue;
    if (form.deals && !allocation->samples.empty()) continue;
    devices.push_back(stage_devices(topology_, allocation->devices, allocation->samples,
                                    FastestReduction({&allocation->reduction}),
                                    problem_.micro_batch_size, form));
  }
  return devices;
}

/// Adds the stages of a column.
void CompletionStages::add_column(const StageColumn& column, const ColumnOf& of,
                                  StagesByCut& stages) const {
  const std::int32_t devices = classes_.replicas(of.kind.devices);
  const StageWork work{.num_micro_batches = problem_.micro_batches_of(of.form, devices),
                       .lanes = of.form.deals ? devices : 1};
  const std::int64_t replicas = devices / of.form.devices_per_replica;
  for (CutIndex begin = column.first; begin <= of.last; begin = begin.next()) {
    const StageBound& stage = column.at(begin);
    if (stage.depth_limit == 0 || stage.work(work.num_micro_batches) >= threshold_) continue;
    if (!problem_.pins.allow(layers_between(begin, of.end), replicas, of.form.recompute)) continue;
    stages[begin].push_back({.end = of.end, .figures = stage, .work = work});
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

void CompletionStages::release_stages(Allowance& allowance) {
  for (std::optional<StagesByCut>& of_kind : stages_) {
    if (!of_kind) continue;
    for (const std::vector<Stage>& of_cut : *of_kind) {
      allowance.keep({-std::ssize(of_cut) * static_cast<std::int64_t>(sizeof(Stage))});
    }
    of_kind.reset();
  }
}

}  // namespace dapple::search
