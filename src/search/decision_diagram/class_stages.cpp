#include "search/decision_diagram/class_stages.h"

#include <algorithm>
#include <utility>

namespace dapple::search {
ClassStages::ClassStages(const CostModel& costs, PlacementSpace& placements,
                         const SearchProblem& problem, Duration threshold, Allowance& allowance,
                         Cuts cuts)
    : problem_(problem),
      allowance_(allowance),
      threshold_(threshold),
      tables_(costs),
      work_(costs, problem.micro_batch_size, problem.global_batch_size),
      classes_(costs, placements, problem),
      columns_(costs, problem, threshold),
      kept_(static_cast<std::size_t>(costs.layer_count()) + 1) {
  for (const AllocationClassIndex index : classes_.all()) {
    capacities_.push_back(classes_.capacity(index, work_));
    if (index == AllocationClasses::kNoDevices) continue;
    if (classes_.replicas(index) > problem.micro_batch_size) continue;
    if (!classes_.counts_for_itself(index)) continue;
    represent(stage_classes_.push_back(index), costs.topology());
  }
  allow(CutIndex{costs.layer_count()}, cuts);
  ClassCounts counts(placements.device_classes().size());
  for (const DevicePool& pool : placements.pools()) {
    for (std::int32_t i = 0; i < pool.size; ++i) {
      in_front_.push_back(classes_.class_of(counts));
      ++counts[pool.device_class];
    }
  }
  allowance_.keep(classes_.kept_bytes());
  tables_.add_to(allowance_);
}

/// Chooses the cuts at which stages may begin: all, or those that come first behind equal parts of
/// the work.
void ClassStages::allow(CutIndex end, Cuts cuts) {
  is_allowed_.resize(end.next().position(), cuts == Cuts::All);
  is_allowed_[{}] = true;
  is_allowed_[end] = true;
  if (cuts == Cuts::All) return;
  constexpr std::int64_t kParts = 200;
  const Duration all = work_.round_trip(layers_between({}, end), 1);
  std::int64_t part = 0;
  for (CutIndex cut{1}; cut < end; cut = cut.next()) {
    const Duration front = work_.round_trip(layers_between({}, cut), 1);
    const std::int64_t reached =
        divide_down(Wide{front.ns} * kParts + all.ns / 2, std::max<Wide>(all.ns, 1));
    is_allowed_[cut] = reached > part;
    part = std::max(part, reached);
  }
}

/// Finds the devices that represent a class.
void ClassStages::represent(StageClassIndex index, const Topology& topology) {
  // Where the optimizer's state is sharded, memory and the update depend on the number of replicas.
  const bool is_sharded = topology.description().shards_optimizer;
  std::vector<std::vector<ReplicaKind>> kinds;
  std::vector<StageDevices> representatives;
  for (const DeviceAllocation* allocation : classes_.allocations(stage_classes_[index])) {
    std::vector<ReplicaKind> some =
        replica_kinds(topology, allocation->devices, problem_.micro_batch_size);
    std::size_t alike = 0;
    while (alike < kinds.size() &&
           (kinds[alike] != some ||
            (is_sharded && representatives[alike].devices.size() != allocation->devices.size()))) {
      ++alike;
    }
    if (alike == kinds.size()) {
      kinds.push_back(std::move(some));
      representatives.push_back({.devices = allocation->devices, .reductions = {}});
    }
    std::vector<const AllReduceModel*>& reductions = representatives[alike].reductions;
    const AllReduceModel& reduction = allocation->reduction;
    const auto is_no_faster = [](const AllReduceModel& a, const AllReduceModel& b) {
      return b.is_never_slower_than(a);
    };
    if (std::any_of(reductions.begin(), reductions.end(),
                    [&](const AllReduceModel* other) { return is_no_faster(reduction, *other); })) {
      continue;
    }
    std::erase_if(reductions,
                  [&](const AllReduceModel* other) { return is_no_faster(*other, reduction); });
    reductions.push_back(&reduction);
  }
  representatives_.push_back(std::move(representatives));
}

ClassStages::Columns& ClassStages::columns(CutIndex end, StageClassIndex devices) {
  if (kept_[end].empty()) kept_[end].resize(stage_classes_.size());
  return kept_[end][devices];
}

const ClassStages::Begins& ClassStages::begins(CutIndex end, StageClassIndex devices) {
  std::optional<Begins>& known = columns(end, devices).begins;
  if (known) return *known;
  // Those of all allocations of the class, of which some have more devices.
  std::size_t most = 0;
  for (const StageDevices& some : representatives_[devices]) {
    most = std::max(most, some.devices.size());
  }
  const double others = capacities_[classes_.rest(stage_classes_[devices])];
  const CutIndex first = work_.first_begin_within(end, static_cast<double>(most), threshold_);
  return known.emplace(Begins{
      .first = first, .last = std::max(first, work_.last_begin_within(end, others, threshold_))});
}

const StageColumn* ClassStages::column(CutIndex end, StageClassIndex devices, bool recompute) {
  Columns& known = columns(end, devices);
  const auto make = [&](bool recomputes) {
    const std::vector<StageDevices>& representatives = representatives_[devices];
    StageColumn column =
        columns_.least(end, representatives, begins(end, devices).last, recomputes);
    // Layers are added one by one from the end.
    allowance_.spend((end.value - column.first.value) *
                     static_cast<std::int64_t>(representatives.size()));
    allowance_.keep({static_cast<std::int64_t>(column.stages.size() * sizeof(StageBound))});
    tables_.add_to(allowance_);
    return column;
  };
  if (!known.plain) known.plain = make(false);
  if (!recompute) return &*known.plain;
  if (!is_worth_recomputing(*known.plain, problem_.pins)) return nullptr;
  if (!known.recomputed) known.recomputed = make(true);
  return &*known.recomputed;
}

bool ClassStages::is_no_slower_beside(StageClassIndex a, StageClassIndex b) const {
  return a == b || a == kAnyStageClass ||
         (b != kAnyStageClass && classes_.bounds_boundaries_by_shares() &&
          replicas(a) >= replicas(b));
}

const BoundaryLowerBound& ClassStages::Boundaries::between(StageClassIndex front,
                                                           StageClassIndex back) {
  const std::size_t count = stages_.stage_classes_.size() + 1;
  if (bounds_.empty()) bounds_.resize(count * count);
  // The position of a class that is not known is behind all others.
  const auto position = [&](StageClassIndex index) {
    return index == kAnyStageClass ? count - 1 : index.position();
  };
  std::optional<BoundaryLowerBound>& bound = bounds_[position(front) * count + position(back)];
  if (!bound) bound = make(front, back);
  return *bound;
}

BoundaryLowerBound ClassStages::Boundaries::make(StageClassIndex front, StageClassIndex back) {
  if (front != kAnyStageClass && back != kAnyStageClass) {
    return stages_.classes_.bound_between(cut_, stages_.class_of(front), stages_.class_of(back));
  }
  BoundaryLowerBound least;
  for (const StageClassIndex some : stages_.stage_classes()) {
    const BoundaryLowerBound& other =
        front == kAnyStageClass ? between(some, back) : between(front, some);
    if (other) least = least ? least_of(*least, *other) : other;
  }
  return least;
}

}  // namespace dapple::search
