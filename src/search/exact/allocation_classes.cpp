#include "search/exact/allocation_classes.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "dapple/cost/compatible.h"
#include "dapple/search/placement/placement.h"

namespace dapple::search {
namespace {

/// The most pairs of allocations that are examined for one boundary. With more, the widest links of
/// any device are assumed.
constexpr std::size_t kMostPairs = 16;
/// What a representative keeps of each of its devices: its number.
constexpr std::int64_t kBytesOfADevice = sizeof(DeviceIndex);
/// The all-reduces of more devices count as taking no time.
constexpr std::int32_t kMostReduced = 512;

/// Whether two allocations fit beside each other.
bool fit_together(const DeviceAllocation& a, const DeviceAllocation& b,
                  const std::vector<DevicePool>& pools) {
  for (std::size_t pool = 0; pool < pools.size(); ++pool) {
    if (a.counts[pool] + b.counts[pool] > pools[pool].size) return false;
  }
  return true;
}

/// Whether stages on two allocations have the same bounds: their all-reduces are equally fast, and
/// their devices are of the same kinds with the same memory limits and shares, in the same order.
bool have_same_bounds(const DeviceAllocation& a, const DeviceAllocation& b,
                      const Topology& topology) {
  return a.devices_per_replica == b.devices_per_replica && a.reduction.is_as_fast_as(b.reduction) &&
         a.samples == b.samples && have_same_kinds(a.devices, b.devices, topology);
}

void sort_distinct(std::vector<TransferShape>& shapes) {
  std::sort(shapes.begin(), shapes.end());
  shapes.erase(std::unique(shapes.begin(), shapes.end()), shapes.end());
}

/// Returns the bandwidth and the latency of the widest and of the quickest route from server to
/// server. Requires: the servers are alike, and there are two or more.
PortShape way_across(const Topology& topology) {
  PortShape way{.samples = 0, .bandwidth = {1}, .latency = Duration::infinite()};
  const Server& here = topology.server({0});
  const std::int32_t there = topology.server({1}).first_device.value;
  for (std::int32_t i = 0; i < here.device_count; ++i) {
    const Route route = topology.route({here.first_device.value + i}, {there + i});
    way.bandwidth = std::max(way.bandwidth, route.bandwidth);
    way.latency = std::min(way.latency, route.latency);
  }
  return way;
}

/// Whether the devices of one class stand on both sides of those of another.
bool are_classes_interleaved(const std::vector<DevicePool>& pools) {
  std::set<DeviceClassIndex> seen;
  for (std::size_t pool = 0; pool < pools.size(); ++pool) {
    const bool is_next = pool == 0 || pools[pool].device_class != pools[pool - 1].device_class;
    if (is_next && !seen.insert(pools[pool].device_class).second) return true;
  }
  return false;
}

/// Returns the first devices of the pools, as many of each class as `left` says.
std::vector<DeviceIndex> first_devices(const std::vector<DevicePool>& pools, ClassCounts left) {
  std::vector<DeviceIndex> devices;
  for (const DevicePool& pool : pools) {
    std::int32_t& wanted = left[pool.device_class];
    const std::int32_t taken = std::min(wanted, pool.size);
    for (std::int32_t i = 0; i < taken; ++i) devices.push_back({pool.first.value + i});
    wanted -= taken;
  }
  return devices;
}

TimeSource source_of(std::int32_t kind, const CostModel& costs) {
  const DeviceKind& of_devices =
      costs.topology().description().devices[static_cast<std::size_t>(kind)];
  return time_source(costs.profile(), of_devices).value_or(kOne);
}

/// Returns the kinds with the times of each measured kind, the quickest first.
std::vector<std::vector<std::int32_t>> kinds_by_source(const std::set<std::int32_t>& kinds,
                                                       const CostModel& costs) {
  std::map<std::size_t, std::vector<std::int32_t>> by_source;
  for (const std::int32_t kind : kinds) {
    by_source[source_of(kind, costs).measured].push_back(kind);
  }
  std::vector<std::vector<std::int32_t>> groups;
  for (auto& [measured, group] : by_source) {
    std::stable_sort(group.begin(), group.end(), [&](std::int32_t a, std::int32_t b) {
      return source_of(a, costs).scale < source_of(b, costs).scale;
    });
    groups.push_back(std::move(group));
  }
  return groups;
}

/// Returns the sets of kinds that consist of the quickest ones of each group.
std::vector<std::set<std::int32_t>> sets_of_quickest(
    const std::vector<std::vector<std::int32_t>>& groups) {
  std::vector<std::set<std::int32_t>> sets{{}};
  for (const std::vector<std::int32_t>& group : groups) {
    std::vector<std::set<std::int32_t>> longer;
    for (const std::set<std::int32_t>& chosen : sets) {
      longer.push_back(chosen);
      for (const std::int32_t kind : group) {
        longer.push_back(longer.back());
        longer.back().insert(kind);
      }
    }
    sets = std::move(longer);
  }
  return sets;
}

/// Returns the devices in the orders that bound all others. The first devices of an order have the
/// larger shares: these go to the devices with the least memory, to those with the most and, where
/// the times of kinds differ by factors, to the quickest devices and to the slowest. Where kinds
/// have times of their own, the layers decide which is the quickest: larger shares go to every set
/// of kinds that has all that are no slower than one of them, and each kind comes last once. Shares
/// are of two sizes, so in no other order is the slowest or the quickest replica faster, or the
/// depth limit larger (docs/bounds.md, section 5).
std::vector<std::vector<DeviceIndex>> extreme_orders(const std::vector<DeviceIndex>& devices,
                                                     const CostModel& costs) {
  const Topology& topology = costs.topology();
  std::vector<std::vector<DeviceIndex>> orders;
  const auto add_by = [&](const auto& value) {
    std::vector<DeviceIndex>& order = orders.emplace_back(devices);
    std::stable_sort(order.begin(), order.end(),
                     [&](DeviceIndex a, DeviceIndex b) { return value(a) < value(b); });
  };
  const auto kind_of = [&](DeviceIndex device) { return topology.device(device).kind; };
  const auto memory = [&](DeviceIndex device) { return topology.memory_limit(device).count; };
  const auto slowness = [&](DeviceIndex device) {
    return source_of(kind_of(device), costs).scale.billionths;
  };
  std::set<std::int32_t> kinds;
  for (const DeviceIndex device : devices) kinds.insert(kind_of(device));
  const std::vector<std::vector<std::int32_t>> groups = kinds_by_source(kinds, costs);
  if (groups.size() < 2) {
    add_by(slowness);
    add_by([&](DeviceIndex device) { return -slowness(device); });
  } else {
    for (const std::set<std::int32_t>& first : sets_of_quickest(groups)) {
      add_by([&](DeviceIndex device) { return 1 - first.count(kind_of(device)); });
    }
    for (const std::int32_t last : kinds) {
      add_by([&](DeviceIndex device) { return kind_of(device) == last ? 1 : 0; });
    }
  }
  add_by(memory);
  add_by([&](DeviceIndex device) { return -memory(device); });
  return orders;
}

/// Returns how many classes have each number of devices up to `most`.
std::vector<double> classes_by_size(const PlacementSpace& placements, std::int64_t most) {
  std::vector<double> counts(static_cast<std::size_t>(most) + 1);
  counts[0] = 1;
  for (const DeviceClass& device_class : placements.device_classes()) {
    std::vector<double> grown(counts.size());
    for (std::size_t size = 0; size < counts.size(); ++size) {
      const std::size_t least =
          size - std::min<std::size_t>(size, static_cast<std::size_t>(device_class.size));
      for (std::size_t before = least; before <= size; ++before) grown[size] += counts[before];
    }
    counts = std::move(grown);
  }
  return counts;
}

}  // namespace

BoundarySides sides_of(const PlacementSpace& placements, AllocationIndex front,
                       AllocationIndex back) {
  std::vector<std::vector<DeviceIndex>> devices = placements.devices_of({front, back});
  const auto side = [&](AllocationIndex index, std::vector<DeviceIndex> own) {
    const DeviceAllocation& allocation = placements.allocation(index);
    return BoundarySide{.devices = std::move(own),
                        .samples = allocation.samples,
                        .devices_per_replica = allocation.devices_per_replica};
  };
  return {.front = side(front, std::move(devices[0])), .back = side(back, std::move(devices[1]))};
}

AllocationClasses::AllocationClasses(const CostModel& costs, PlacementSpace& placements,
                                     const SearchProblem& problem,
                                     std::shared_ptr<const SpreadReductions> reductions)
    : costs_(costs),
      placements_(placements),
      reductions_(std::move(reductions)),
      micro_batch_size_(problem.micro_batch_size),
      micro_batches_(problem.num_micro_batches()),
      has_pinned_replicas_(problem.pins.replicas.has_value()),
      replicas_of_stages_(problem.replicas),
      transfers_(problem.transfers),
      links_(placements.topology(), costs.largest_group()) {
  enumerate_classes();
  find_alike_at_boundaries();
  allocations_.resize(counts_.size());
  if (placements_.is_complete()) {
    collect_allocations();
  } else {
    represent_allocations();
  }
}

std::int64_t AllocationClasses::count(const PlacementSpace& placements) {
  std::int64_t count = 1;
  for (const DeviceClass& device_class : placements.device_classes()) {
    if (count > INT64_MAX / (device_class.size + 1)) return INT64_MAX;
    count *= device_class.size + 1;
  }
  return count;
}

namespace {

/// What the representatives of interleaved classes keep, which are as many as there are orders.
Wide kept_by_orders(const CostModel& costs, const PlacementSpace& placements, std::int64_t most) {
  std::set<std::int32_t> kinds;
  for (const DeviceClass& device_class : placements.device_classes()) {
    kinds.insert(device_class.kind);
  }
  double orders = 2;
  const std::vector<std::vector<std::int32_t>> groups = kinds_by_source(kinds, costs);
  if (groups.size() > 1) {
    double sets = 1;
    for (const std::vector<std::int32_t>& group : groups) {
      sets *= static_cast<double>(group.size() + 1);
    }
    orders += sets + static_cast<double>(kinds.size());
  }
  double bytes = 0;
  const std::vector<double> classes = classes_by_size(placements, most);
  for (std::size_t size = 1; size < classes.size(); ++size) {
    bytes += classes[size] * orders *
             static_cast<double>(sizeof(DeviceAllocation) + size * kBytesOfADevice);
  }
  return static_cast<Wide>(std::min(bytes, 1e18));
}

}  // namespace

Bytes AllocationClasses::least_kept(const CostModel& costs, const PlacementSpace& placements,
                                    std::int64_t micro_batch_size) {
  if (placements.is_complete()) return {};
  // One representative for each class of no more devices than a micro-batch has samples and than
  // are reduced; it has half of these devices on average, or more.
  const std::int64_t most = std::min<std::int64_t>(
      {placements.topology().device_count(), micro_batch_size, kMostReduced});
  const std::int64_t classes =
      placements.device_classes().size() == 1 ? most : std::min(count(placements), most);
  Wide bytes = Wide{classes} * most / 2 * kBytesOfADevice;
  if (are_classes_interleaved(placements.pools())) {
    bytes = std::max(bytes, kept_by_orders(costs, placements, std::min(most, micro_batch_size)));
  }
  return {static_cast<std::int64_t>(std::min<Wide>(bytes, Bytes::infinite().count))};
}

void AllocationClasses::enumerate_classes() {
  const auto& sizes = placements_.device_classes();
  counts_.push_back(ClassCounts(sizes.size()));
  // The count of the first device class varies fastest.
  while (true) {
    ClassCounts next = counts_.back();
    DeviceClassIndex place;
    while (next.contains(place) && next[place] == sizes[place].size) {
      next[place] = 0;
      place = place.next();
    }
    if (!next.contains(place)) return;
    ++next[place];
    counts_.push_back(std::move(next));
  }
}

void AllocationClasses::find_alike_at_boundaries() {
  std::map<std::int32_t, AllocationClassIndex> first_with;
  for (const AllocationClassIndex index : all()) {
    alike_at_boundaries_.push_back(
        placements_.is_complete() ? index
                                  : first_with.try_emplace(replicas(index), index).first->second);
  }
}

AllocationClassIndex AllocationClasses::class_of(const ClassCounts& counts) const {
  AllocationClassIndex index;
  for (DeviceClassIndex place = counts.end_index(); place.value-- > 0;) {
    index.value = index.value * (placements_.device_classes()[place].size + 1) + counts[place];
  }
  return index;
}

std::int32_t AllocationClasses::replicas(AllocationClassIndex index) const {
  return std::accumulate(counts(index).begin(), counts(index).end(), 0);
}

double AllocationClasses::capacity(AllocationClassIndex index, const PrefixBound& work) const {
  double sum = 0;
  for (const DeviceClassIndex place : counts(index).indices()) {
    sum += counts(index)[place] * work.speed(placements_.device_classes()[place].kind);
  }
  return sum;
}

std::optional<AllocationClassIndex> AllocationClasses::sum(AllocationClassIndex a,
                                                           AllocationClassIndex b) const {
  for (const DeviceClassIndex place : counts(a).indices()) {
    if (counts(a)[place] + counts(b)[place] > placements_.device_classes()[place].size) {
      return std::nullopt;
    }
  }
  // The counts are the digits of an index in a mixed radix, and no digit overflows.
  return AllocationClassIndex{a.value + b.value};
}

std::vector<AllocationClassIndex> AllocationClasses::with_one_more(
    AllocationClassIndex index) const {
  std::vector<AllocationClassIndex> classes;
  for (const DeviceClassIndex place : counts(index).indices()) {
    ClassCounts more = counts(index);
    if (more[place]++ < placements_.device_classes()[place].size) {
      classes.push_back(class_of(more));
    }
  }
  return classes;
}

AllocationClassIndex AllocationClasses::rest(AllocationClassIndex index) const {
  return AllocationClassIndex{counts_.end_index().previous().value - index.value};
}

void AllocationClasses::collect_allocations() {
  members_.resize(counts_.size());
  const Topology& topology = placements_.topology();
  for (std::int32_t replicas = 1; replicas <= topology.device_count(); ++replicas) {
    for (const auto& option : placements_.options(PlacementSpace::kNothing, replicas)) {
      const ClassCounts& class_counts = placements_.allocation(option.allocation).class_counts;
      members_[class_of(class_counts)].push_back(option.allocation);
    }
  }
  // All allocations are known now, so pointers to them stay valid.
  for (const AllocationClassIndex index : all()) {
    std::vector<const DeviceAllocation*>& different = allocations_[index];
    for (const AllocationIndex member : members_[index]) {
      const DeviceAllocation& candidate = placements_.allocation(member);
      const bool is_known =
          std::any_of(different.begin(), different.end(), [&](const DeviceAllocation* other) {
            return have_same_bounds(*other, candidate, topology);
          });
      if (!is_known) different.push_back(&candidate);
    }
  }
}

void AllocationClasses::add_representative(AllocationClassIndex index,
                                           DeviceAllocation allocation) {
  kept_allocations_ += Bytes{sizeof(DeviceAllocation)} +
                       allocation.replicas * Bytes{kBytesOfADevice} +
                       std::ssize(allocation.samples) * Bytes{sizeof(std::int64_t)};
  allocation.reduction.forget_ports();
  allocations_[index].push_back(&representatives_.emplace_back(std::move(allocation)));
}

/// Makes representatives for spaces that have too many allocations. On equal servers there is one
/// for each of SpreadReductions; elsewhere, and over more than kMostReduced devices, an all-reduce
/// counts as taking no time. If device classes are interleaved, the devices in several orders
/// represent all allocations with equal shares; those with other shares have one representative
/// besides.
void AllocationClasses::represent_allocations() {
  if (reductions_ == nullptr) {
    reductions_ = std::make_shared<const SpreadReductions>(placements_.topology());
  }
  const Topology& topology = reductions_->open_topology();
  const std::vector<DevicePool> pools = device_pools(topology);
  const bool are_interleaved = are_classes_interleaved(pools);
  const bool is_alike = reductions_->has_alike_servers();
  is_alike_ = is_alike && topology.server_count() > 1 && topology.server({0}).device_count > 1;
  if (is_alike_) across_ = way_across(topology);
  for (const AllocationClassIndex index : not_empty()) {
    if (!has_own_figures(index)) continue;
    DeviceAllocation allocation{.counts = {},
                                .class_counts = counts(index),
                                .replicas = replicas(index),
                                .devices = first_devices(pools, counts(index)),
                                .samples = {},
                                .reduction = AllReduceModel({}, topology)};
    if (std::vector<std::int64_t> samples = placements_.other_shares(allocation.devices);
        !samples.empty()) {
      // Which replica of a kind has a larger share does not depend on the order of kinds.
      DeviceAllocation other = allocation;
      other.samples = std::move(samples);
      add_representative(index, std::move(other));
    }
    if (are_interleaved && micro_batch_size_ % replicas(index) != 0) {
      // Real devices stand in the order of their numbers, which determines which shares are larger.
      for (std::vector<DeviceIndex>& order : extreme_orders(allocation.devices, costs_)) {
        allocation.devices = std::move(order);
        add_representative(index, allocation);
      }
    } else if (is_alike && replicas(index) <= kMostReduced) {
      for (const SpreadReductions::Reduction& some : reductions_->over(replicas(index))) {
        allocation.reduction = some.model;
        allocation.devices_per_server = some.devices_per_server;
        add_representative(index, allocation);
      }
    } else {
      add_representative(index, std::move(allocation));
    }
  }
  for (AllocationClassIndex index = counts_.end_index().previous(); index > kNoDevices.next();
       index = index.previous()) {
    if (counts_for_itself(index)) continue;
    std::vector<const DeviceAllocation*>& before = allocations_[index.previous()];
    before.insert(before.end(), allocations_[index].begin(), allocations_[index].end());
  }
}

/// Whether a class needs a representative: no stage has more replicas than a micro-batch has
/// samples, and where all-reduces take no time, all counts but the first that one class represents
/// are alike.
bool AllocationClasses::has_own_figures(AllocationClassIndex index) const {
  if (replicas(index) > micro_batch_size_) return false;
  return replicas(index) <= kMostReduced || counts_for_itself(index) ||
         counts_for_itself(index.previous());
}

bool AllocationClasses::has_replicas_of(AllocationClassIndex index, std::int32_t devices) const {
  return std::any_of(
      allocations_[index].begin(), allocations_[index].end(),
      [&](const DeviceAllocation* some) { return some->devices_per_replica == devices; });
}

bool AllocationClasses::counts_for_itself(AllocationClassIndex index) const {
  if (!placements_.merges_replica_counts() || has_pinned_replicas_) return true;
  const std::int32_t wanted = replicas(index);
  if (wanted < 2 || wanted > micro_batch_size_) return true;
  return replica_share(micro_batch_size_, wanted, 0).size() <
         replica_share(micro_batch_size_, wanted - 1, 0).size();
}

AllocationClasses::BusyTimes AllocationClasses::busy_with_neighbours(Side stage, CutIndex begin,
                                                                     CutIndex end) const {
  // The first of several replicas to which micro-batches are dealt has as many as any.
  const DeviceShapes shapes =
      links_.busiest_anywhere(stage.deals ? 1 : stage.replicas, micro_batch_size_);
  const BothBoundaries both{.before = boundary_volume(costs_, begin, micro_batch_size_),
                            .behind = boundary_volume(costs_, end, micro_batch_size_),
                            .num_micro_batches = stage.deals
                                                     ? divide_up(micro_batches_, stage.replicas)
                                                     : micro_batches_};
  return {.out = busy_with_both(shapes.out, both), .in = busy_with_both(shapes.in, both)};
}

/// The largest number of replicas, at most all devices, whose largest share of a micro-batch is
/// that of `replicas` replicas.
std::int64_t AllocationClasses::last_alike(std::int64_t replicas) const {
  const std::int64_t share = replica_share(micro_batch_size_, replicas, 0).size();
  const std::int64_t last = share == 1 ? micro_batch_size_ : (micro_batch_size_ - 1) / (share - 1);
  return std::min<std::int64_t>(last, placements_.topology().device_count());
}

/// The fewest samples that any of `front` replicas sends to one of `back` replicas, also over the
/// counts that these represent.
std::int64_t AllocationClasses::least_sent(std::int64_t front, std::int64_t back) const {
  if (!placements_.merges_replica_counts()) return least_overlap(micro_batch_size_, front, back);
  const std::int64_t last_front = last_alike(front);
  const std::int64_t last_back = last_alike(back);
  constexpr std::int64_t kMostCounts = 64;
  if ((last_front - front + 1) * (last_back - back + 1) > kMostCounts) return 1;
  std::int64_t least = micro_batch_size_;
  for (std::int64_t f = front; f <= last_front; ++f) {
    for (std::int64_t b = back; b <= last_back; ++b) {
      least = std::min(least, least_overlap(micro_batch_size_, f, b));
    }
  }
  return least;
}

/// Returns a shape of the boundary between `front` and `back` replicas over which the largest
/// shares pass at least as fast as with any placement.
TransferShape AllocationClasses::widest(std::int64_t front, std::int64_t back) const {
  const DeviceShapes here = links_.busiest_anywhere(front, micro_batch_size_);
  const DeviceShapes there = links_.busiest_anywhere(back, micro_batch_size_);
  TransferShape shape{.forward = {here.out, there.in}, .backward = {there.out, here.in}};
  if (replicas_of_stages_ == Replicas::Independent) {
    const std::int64_t samples = least_sent(front, back);
    const auto pair = [&](const PortShape& out, const PortShape& in) {
      return PortShape{.samples = samples,
                       .bandwidth = std::min(out.bandwidth, in.bandwidth),
                       .latency = std::min(out.latency, in.latency),
                       .gathered = samples};
    };
    shape.forward_pairs = {pair(here.out, there.in)};
    shape.backward_pairs = {pair(there.out, here.in)};
  }
  return shape;
}

const std::vector<TransferShape>& AllocationClasses::shapes_between(AllocationClassIndex front,
                                                                    AllocationClassIndex back) {
  front = alike_at_boundaries(front);
  back = alike_at_boundaries(back);
  const auto [entry, is_new] = shapes_between_.try_emplace({front, back});
  std::vector<TransferShape>& shapes = entry->second;
  if (!is_new) return shapes;
  if (members_.empty() || members_[front].size() * members_[back].size() > kMostPairs) {
    shapes.push_back(widest(replicas(front), replicas(back)));
    return shapes;
  }
  for (const AllocationIndex member : members_[back]) {
    const std::vector<TransferShape>& some = shapes_before(front, member);
    shapes.insert(shapes.end(), some.begin(), some.end());
  }
  sort_distinct(shapes);
  return shapes;
}

const std::vector<TransferShape>& AllocationClasses::shapes_before(AllocationClassIndex front,
                                                                   AllocationIndex back) {
  front = alike_at_boundaries(front);
  const auto [entry, is_new] = shapes_before_.try_emplace({front, back});
  std::vector<TransferShape>& shapes = entry->second;
  if (!is_new) return shapes;
  const DeviceAllocation& behind = placements_.allocation(back);
  if (members_.empty()) {
    shapes.push_back(widest(replicas(front), behind.replicas));
    return shapes;
  }
  for (const AllocationIndex member : members_[front]) {
    if (!fit_together(placements_.allocation(member), behind, placements_.pools())) continue;
    shapes.push_back(transfer_shape(sides_of(placements_, member, back), micro_batch_size_, costs_,
                                    replicas_of_stages_));
  }
  sort_distinct(shapes);
  return shapes;
}

BoundaryLowerBound AllocationClasses::boundary_lower_bound(const std::vector<TransferShape>& shapes,
                                                           CutIndex cut) const {
  const BoundaryVolume volume = boundary_volume(costs_, cut, micro_batch_size_);
  BoundaryLowerBound least;
  for (const TransferShape& shape : shapes) {
    const BoundaryBound other = boundary_bound(shape, volume, micro_batches_, transfers_);
    least = least ? least_of(*least, other) : other;
  }
  return least;
}

BoundaryLowerBound AllocationClasses::bound_between(CutIndex cut, AllocationClassIndex front,
                                                    AllocationClassIndex back) {
  return boundary_lower_bound(shapes_between(front, back), cut);
}

/// Computes the figures of (L2) over any devices.
BoundaryBound AllocationClasses::bound_dealt(CutIndex cut, Side front, Side back) const {
  const BoundaryVolume volume = boundary_volume(costs_, cut, micro_batch_size_);
  // A replica has whole micro-batches, as the only replica of a stage has.
  const auto sharing = [](Side side) { return side.deals ? 1 : side.replicas; };
  BoundaryBound bound = dealt_boundary_bound({widest(sharing(front), sharing(back))}, volume);
  if (!front.deals) {
    const DeviceShapes here = links_.busiest_anywhere(front.replicas, micro_batch_size_);
    raise_queues(bound, here.out, here.in, volume, micro_batches_);
  }
  if (!back.deals) {
    const DeviceShapes there = links_.busiest_anywhere(back.replicas, micro_batch_size_);
    raise_queues(bound, there.in, there.out, volume, micro_batches_);
  }
  return bound;
}

/// Computes c and d of (D6).
BoundaryLowerBound AllocationClasses::bound_across_servers(CutIndex cut, AllocationClassIndex front,
                                                           AllocationClassIndex back) const {
  TransferShape shape = widest(replicas(front), replicas(back));
  PortShape across = across_;
  across.samples = least_sent(replicas(front), replicas(back));
  shape.forward.push_back(across);
  shape.backward.push_back(across);
  return boundary_lower_bound({shape}, cut);
}

std::int64_t AllocationClasses::devices_per_sample(AllocationClassIndex index) const {
  return kDeviceParts / replica_share(micro_batch_size_, replicas(index), 0).size();
}

std::int32_t AllocationClasses::most_on_a_server(AllocationClassIndex index,
                                                 std::int64_t others_per_sample,
                                                 std::int32_t more) const {
  const std::int64_t least_share = micro_batch_size_ / last_alike(replicas(index));
  const std::int64_t devices = placements_.topology().server({0}).device_count - more;
  return static_cast<std::int32_t>(devices * kDeviceParts /
                                   (kDeviceParts + least_share * others_per_sample));
}

const BoundaryLowerBound& AllocationClasses::between(CutIndex cut, AllocationClassIndex front,
                                                     AllocationClassIndex back) {
  const std::tuple key{cut, alike_at_boundaries(front), alike_at_boundaries(back)};
  const auto found = boundary_bounds_.find(key);
  if (found != boundary_bounds_.end()) return found->second;
  return boundary_bounds_.emplace(key, bound_between(cut, front, back)).first->second;
}

BoundaryLowerBound AllocationClasses::before(CutIndex cut, AllocationClassIndex front,
                                             AllocationIndex back) {
  return boundary_lower_bound(shapes_before(front, back), cut);
}

}  // namespace dapple::search
