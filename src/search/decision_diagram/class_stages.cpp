#include "search/decision_diagram/class_stages.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace dapple::search {
ClassStages::ClassStages(const CostModel& costs, PlacementSpace& placements,
                         const SearchProblem& problem, Duration threshold, Allowance& allowance,
                         Cuts cuts, std::shared_ptr<const SpreadReductions> reductions)
    : problem_(problem),
      allowance_(allowance),
      threshold_(threshold),
      topology_(costs.topology()),
      tables_(costs),
      work_(costs, problem.micro_batch_size, problem.global_batch_size),
      forms_(stage_forms(costs)),
      classes_(costs, placements, problem, std::move(reductions)),
      columns_(costs, problem, threshold),
      kept_(static_cast<std::size_t>(costs.layer_count()) + 1) {
  for (const AllocationClassIndex index : classes_.all()) {
    capacities_.push_back(classes_.capacity(index, work_));
    if (index == AllocationClasses::kNoDevices) continue;
    if (classes_.replicas(index) > problem.micro_batch_size) continue;
    if (!classes_.counts_for_itself(index)) continue;
    stage_classes_.push_back(index);
  }
  representatives_.resize(stage_classes_.size());
  std::map<AllocationClassIndex, std::size_t> numbers;
  for (const AllocationClassIndex index : stage_classes_) {
    const AllocationClassIndex alike = classes_.alike_at_boundaries(index);
    boundary_class_.push_back(numbers.try_emplace(alike, numbers.size()).first->second);
  }
  boundary_classes_ = numbers.size();
  // In larger problems the diagrams would take twice as long for less than that.
  constexpr std::int64_t kMostLayersTimesDevices = 131'072;
  const bool is_large =
      std::int64_t{costs.layer_count()} * costs.topology().device_count() > kMostLayersTimesDevices;
  if (classes_.tells_servers_apart() && !is_large) {
    kinds_ = {BoundaryKind::Across, BoundaryKind::Local};
  }
  allow(CutIndex{costs.layer_count()}, cuts);
  for (const DevicePool& pool : placements.pools()) {
    for (std::int32_t i = 0; i < pool.size; ++i) device_classes_.push_back(pool.device_class);
  }
  allowance_.keep(classes_.kept_bytes());
  tables_.add_to(allowance_);
}

std::vector<AllocationClassIndex> ClassStages::classes_in_front(
    const std::vector<DeviceIndex>& order) const {
  std::vector<AllocationClassIndex> in_front;
  ClassCounts counts(classes_.counts(AllocationClasses::kNoDevices).size());
  for (const DeviceIndex device : order) {
    in_front.push_back(classes_.class_of(counts));
    ++counts[device_classes_[device]];
  }
  return in_front;
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

/// Finds the devices that represent those of a class with at most `limit` devices on a server.
std::vector<StageDevices> ClassStages::represent(StageClassIndex index, std::int32_t limit) const {
  const Topology& topology = topology_;
  // Where the optimizer's state is sharded, memory and the update depend on the number of replicas.
  const bool is_sharded = topology.description().shards_optimizer;
  // Those of a representative: its devices, the kinds of its replicas, and all its reductions.
  std::vector<const DeviceAllocation*> firsts;
  std::vector<std::vector<ReplicaKind>> kinds;
  std::vector<std::vector<const AllReduceModel*>> all_reductions;
  for (const DeviceAllocation* allocation : classes_.allocations(stage_classes_[index])) {
    if (allocation->devices_per_server > limit) continue;
    std::vector<ReplicaKind> some =
        replica_kinds(topology, allocation->devices,
                      {problem_.micro_batch_size, allocation->replicas, allocation->samples});
    std::size_t alike = 0;
    while (alike < kinds.size() &&
           (kinds[alike] != some ||
            (is_sharded && firsts[alike]->devices.size() != allocation->devices.size()))) {
      ++alike;
    }
    if (alike == kinds.size()) {
      firsts.push_back(allocation);
      kinds.push_back(std::move(some));
      all_reductions.emplace_back();
    }
    std::vector<const AllReduceModel*>& reductions = all_reductions[alike];
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
  std::vector<StageDevices> representatives;
  for (std::size_t i = 0; i < firsts.size(); ++i) {
    representatives.push_back(
        {.devices = firsts[i]->devices,
         .samples = firsts[i]->samples,
         .kinds = std::move(kinds[i]),
         .reduction = FastestReduction(std::move(all_reductions[i]), times_to_remember())});
  }
  return representatives;
}

/// Returns how many times of reductions a representative remembers: enough for the buckets of the
/// stages that end at one cut, most of which belong to those that end at the next one, too.
std::size_t ClassStages::times_to_remember() const {
  constexpr std::size_t kTimesOfALayer = 4;
  constexpr std::size_t kMost = 8192;
  return std::bit_ceil(std::min(kMost, kTimesOfALayer * kept_.size()));
}

const std::vector<StageDevices>& ClassStages::representatives(StageClassIndex devices,
                                                              std::int32_t limit) {
  auto& known = representatives_[devices];
  const auto found = known.find(limit);
  if (found != known.end()) return found->second;
  return known.emplace(limit, represent(devices, limit)).first->second;
}

std::int32_t ClassStages::spread_within(StageClassIndex devices, std::int32_t limit) const {
  if (limit == kAnyNumber) return kAnyNumber;
  std::int32_t most = 0;
  bool is_any = true;
  for (const DeviceAllocation* allocation : classes_.allocations(stage_classes_[devices])) {
    const std::int32_t own = allocation->devices_per_server;
    if (own <= limit) {
      most = std::max(most, own);
    } else {
      is_any = false;
    }
  }
  return is_any ? kAnyNumber : most;
}

/// Computes x of (D6).
std::int32_t ClassStages::most_on_a_server(StageClassIndex devices, SharedServers behind,
                                           BoundaryKind front) const {
  // At least one device is of the stage in front.
  const std::int32_t others = front == BoundaryKind::Local ? 1 : 0;
  if (behind == 0 && others == 0) return kAnyNumber;
  return classes_.most_on_a_server(stage_classes_[devices], behind, others);
}

ClassStages::SharedServers ClassStages::shared_with(StageClassIndex devices, SharedServers behind,
                                                    BoundaryKind front) const {
  if (front != BoundaryKind::Local) return 0;
  return behind + classes_.devices_per_sample(stage_classes_[devices]);
}

ClassStages::Known& ClassStages::known(CutIndex end, StageClassIndex devices) {
  if (kept_[end].empty()) kept_[end].resize(stage_classes_.size());
  return kept_[end][devices];
}

const ClassStages::Begins& ClassStages::begins(CutIndex end, StageClassIndex devices) {
  std::optional<Begins>& begins = known(end, devices).begins;
  if (begins) return *begins;
  // Those of all allocations of the class, of which some have more devices.
  std::size_t most = 0;
  for (const StageDevices& some : representatives(devices, kAnyNumber)) {
    most = std::max(most, some.devices.size());
  }
  const double others = capacities_[classes_.rest(stage_classes_[devices])];
  const CutIndex first = work_.first_begin_within(end, static_cast<double>(most), threshold_);
  return begins.emplace(Begins{
      .first = first, .last = std::max(first, work_.last_begin_within(end, others, threshold_))});
}

StageColumn ClassStages::make_column(CutIndex end, StageClassIndex devices, StageForm form,
                                     std::int32_t limit) {
  const std::vector<StageDevices>& some = representatives(devices, limit);
  StageColumn column = columns_.least(end, some, begins(end, devices).last, form);
  allowance_.spend(column.steps_from(end) * std::ssize(some));
  return column;
}

const StageOptions* ClassStages::options(CutIndex end, StageClassIndex devices,
                                         std::int32_t limit) {
  const std::int64_t servers = topology_.server_count();
  if (limit != kAnyNumber && replicas(devices) > limit * servers) return nullptr;
  const std::int32_t spread = spread_within(devices, limit);
  if (representatives(devices, spread).empty()) return nullptr;
  auto& options = known(end, devices).options;
  const auto found = options.find(spread);
  if (found != options.end()) return &found->second;
  StageOptions made(forms_, problem_.pins,
                    [&](StageForm form) { return make_column(end, devices, form, spread); });
  allowance_.keep(made.kept_bytes());
  tables_.add_to(allowance_);
  return &options.emplace(spread, std::move(made)).first->second;
}

std::optional<StageClassIndex> ClassStages::find(AllocationClassIndex devices) const {
  const auto found = std::lower_bound(stage_classes_.begin(), stage_classes_.end(), devices);
  if (found == stage_classes_.end() || *found != devices) return std::nullopt;
  return index_at<StageClassIndex>(static_cast<std::size_t>(found - stage_classes_.begin()));
}

bool ClassStages::is_no_slower_beside(StageClassIndex a, StageClassIndex b) const {
  return a == b || a == kAnyStageClass ||
         (b != kAnyStageClass && classes_.bounds_boundaries_by_shares() &&
          replicas(a) >= replicas(b));
}

std::size_t ClassStages::Boundaries::position_of(StageClassIndex front,
                                                 StageClassIndex back) const {
  // The position of a class that is not known is behind all others.
  const std::size_t count = stages_.boundary_classes_ + 1;
  const auto position = [&](StageClassIndex index) {
    return index == kAnyStageClass ? count - 1 : stages_.boundary_class_[index];
  };
  return position(front) * count + position(back);
}

const BoundaryLowerBound* ClassStages::Boundaries::find(StageClassIndex front, StageClassIndex back,
                                                        BoundaryKind kind) const {
  const auto& bounds = bounds_[kind == BoundaryKind::Across ? 1 : 0];
  if (bounds.empty()) return nullptr;
  const std::optional<BoundaryLowerBound>& bound = bounds[position_of(front, back)];
  return bound ? &*bound : nullptr;
}

const BoundaryLowerBound& ClassStages::Boundaries::between(StageClassIndex front,
                                                           StageClassIndex back,
                                                           BoundaryKind kind) {
  auto& bounds = bounds_[kind == BoundaryKind::Across ? 1 : 0];
  const std::size_t count = stages_.boundary_classes_ + 1;
  if (bounds.empty()) bounds.resize(count * count);
  std::optional<BoundaryLowerBound>& bound = bounds[position_of(front, back)];
  if (!bound) bound = make(front, back, kind);
  return *bound;
}

BoundaryLowerBound ClassStages::Boundaries::make(StageClassIndex front, StageClassIndex back,
                                                 BoundaryKind kind) {
  if (front != kAnyStageClass && back != kAnyStageClass) {
    const AllocationClassIndex one = stages_.class_of(front);
    const AllocationClassIndex other = stages_.class_of(back);
    return kind == BoundaryKind::Across ? stages_.classes_.bound_across_servers(cut_, one, other)
                                        : stages_.classes_.bound_between(cut_, one, other);
  }
  BoundaryLowerBound least;
  for (const StageClassIndex some : stages_.stage_classes()) {
    const BoundaryLowerBound& other =
        front == kAnyStageClass ? between(some, back, kind) : between(front, some, kind);
    if (other) least = least ? least_of(*least, *other) : other;
  }
  return least;
}

}  // namespace dapple::search
