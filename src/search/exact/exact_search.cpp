#include "dapple/search/exact/exact_search.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <tuple>
#include <utility>
#include <vector>

#include "dapple/core/error.h"
#include "dapple/core/indexed_vector.h"
#include "dapple/search/bounds/bound.h"
#include "dapple/search/indices.h"
#include "dapple/search/placement/placement_space.h"
#include "search/bounds/order_bound.h"
#include "search/bounds/pass_traffic.h"
#include "search/bounds/prefix_bound.h"
#include "search/bounds/transfer_shape.h"
#include "search/exact/allocation_classes.h"
#include "search/exact/completion_bounds.h"
#include "search/exact/device_links.h"
#include "search/exact/search_nodes.h"
#include "search/exact/stage_column_cache.h"

namespace dapple::search {
namespace {

/// Complete plans by rising bound; ties go to the one that came first.
using Waiting = std::priority_queue<std::pair<Duration, NodeIndex>,
                                    std::vector<std::pair<Duration, NodeIndex>>, std::greater<>>;

/// The state of the root, which is the node with no stages.
enum class RootState {
  /// Preparation was not completed, so there are no completion bounds and no children.
  NotBounded,
  /// It is bounded below the threshold, and has no children yet.
  Open,
  /// Its bound reached the threshold, so no plan is below it.
  Fathomed,
  /// It has all of its children.
  Expanded,
};

}  // namespace

class ExactSearch::Search {
 public:
  Search(const ModelProfile& profile, const Topology& topology, const SearchProblem& problem)
      : costs_(profile, topology),
        problem_(problem),
        micro_batches_(problem.num_micro_batches()),
        placements_(topology, problem.pins.in_order, other_shares(costs_, problem_),
                    costs_.larger_groups()),
        forms_(stage_forms(costs_, problem.may_deal && placements_.is_complete())),
        shapes_(costs_, problem.micro_batch_size, problem.replicas) {
    check(placements_.is_complete() || costs_.largest_group() == 1,
          "groups of different sizes are searched where not all placements are tried");
    check(!problem.pins.in_order || costs_.largest_group() == 1,
          "groups of different sizes are searched in the order of their devices");
  }

  void prepare(Duration threshold, const Allowance::Limits& limits);
  void raise_bound(Duration bound, Duration threshold);

  void advance(Duration threshold, const SearchBudget& budget);
  Candidate take();

  /// Returns the bound of a search (C9).
  Duration bound() const {
    Duration least = threshold_;
    if (!is_root_closed()) least = std::min(least, root_bound_);
    if (!waiting_.empty()) least = std::min(least, waiting_.top().first);
    least = std::min(least, open_.least_bound());
    return std::max(least, raised_bound());
  }
  Duration raised_bound() const { return std::min(threshold_, raised_bound_); }

  /// Returns the bound anywhere (C9).
  Duration bound_anywhere() const {
    const Duration bound_of_dealt = deals_untried() ? bound_of_work_ : Duration::infinite();
    const Duration bound_of_untried = std::max(root_bound_, raised_bound());
    return std::min(bound_of_dealt, placements_.has_all_allowed(problem_.pins)
                                        ? bound()
                                        : std::min(bound(), bound_of_untried));
  }

  bool covers_allowed_placements() const { return placements_.has_all_allowed(problem_.pins); }
  /// Whether stages may deal micro-batches, and none does in the plans that are tried.
  bool deals_untried() const { return problem_.may_deal && !forms_.back().deals; }
  bool is_prepared() const { return root_ != RootState::NotBounded; }
  const Waiting& waiting() const { return waiting_; }
  bool is_exhausted() const { return root_ != RootState::Open && open_.empty(); }
  const PlacementSpace& placements() const { return placements_; }
  std::int64_t open_count(Duration below) const;
  std::int64_t states() const { return states_; }
  std::int64_t kept() const {
    return static_cast<std::int64_t>(nodes_.size()) +
           (completions_ ? completions_->function_count() : 0) + released_functions_;
  }
  Bytes kept_bytes() const;
  std::int64_t work() const { return work_; }

 private:
  /// The node that is branched from: the root, or a partial plan that begins at `cut`.
  struct ParentNode {
    NodeIndex index = kNoNode;
    // A copy, because nodes are added while it is in use.
    SearchNode node;
    CutIndex cut;
    bool is_root() const { return index == kNoNode; }
  };

  bool is_root_closed() const {
    return root_ == RootState::Fathomed || root_ == RootState::Expanded;
  }
  void release_completion_bounds();
  void close();
  void branch(NodeIndex index);
  void prepend_stages(const ParentNode& parent, const PlacementChoice& option, StageForm form);
  BoundaryBound boundary_to(const SearchNode& next, AllocationIndex allocation, bool deals);
  BoundaryBound dealt_boundary_to(const SearchNode& next, AllocationIndex allocation, bool deals,
                                  const BoundaryVolume& volume);
  TrafficBound traffic_of_first_stage(const SearchNode& node);
  bool is_within_pins(const SearchNode& node) const;
  Duration bound_of(const SearchNode& node);
  void list_stages(const SearchNode& node);
  void insert_unless_fathomed(const SearchNode& node);

  CostModel costs_;
  SearchProblem problem_;
  std::int64_t micro_batches_;
  PlacementSpace placements_;
  std::vector<StageForm> forms_;
  TransferShapeCache<std::pair<AllocationIndex, AllocationIndex>> shapes_;
  // The same where micro-batches are dealt in front of the boundary, behind it, or both.
  std::map<std::tuple<AllocationIndex, bool, AllocationIndex, bool>, std::vector<TransferShape>>
      dealt_shapes_;
  Duration threshold_;
  RootState root_ = RootState::NotBounded;
  // Lower bound on all plans: (C7), or (P1) while the root is not bounded.
  Duration root_bound_;
  // The same from the work alone (P1).
  Duration bound_of_work_;
  // The same, whatever it follows from.
  Duration raised_bound_;
  // These three are present where the root is open or expanded.
  std::optional<DeviceLinks> links_;
  std::optional<CompletionBounds> completions_;
  std::optional<StageColumnCache> columns_;
  IndexedVector<NodeIndex, SearchNode> nodes_;
  // Whether a node is a complete plan that has been taken.
  IndexedVector<NodeIndex, bool> is_taken_;
  // Working memory of list_stages().
  OrderedStages stages_;
  OpenNodes open_;
  Waiting waiting_;
  std::int64_t states_ = 0;
  std::int64_t work_ = 0;
  // Layer tables that the completion bounds count.
  Bytes tables_of_completion_;
  // The number of completion functions that were released when their bound closed the search.
  std::int64_t released_functions_ = 0;
};

/// Bounds the root: by the work alone (P1), then by the completion functions of all layers (C7).
void ExactSearch::Search::prepare(Duration threshold, const Allowance::Limits& limits) {
  threshold_ = threshold;
  const PrefixBound work(costs_, problem_.micro_batch_size, problem_.global_batch_size);
  bound_of_work_ = std::min(threshold, work.work_alone());
  root_bound_ = bound_of_work_;
  const bool is_stopped = limits.should_stop && limits.should_stop();
  if (costs_.topology().device_count() > kMostDevices || is_stopped) return;
  if (!CompletionBounds::has_room(costs_, placements_, problem_, limits)) return;
  completions_.emplace(costs_, placements_, problem_, threshold, limits);
  work_ = completions_->work();
  if (completions_->is_stopped()) {
    release_completion_bounds();
    return;
  }
  states_ = completions_->function_count();
  root_bound_ = completions_->least();
  if (root_bound_ >= threshold) {
    root_ = RootState::Fathomed;
    released_functions_ = completions_->function_count();
    release_completion_bounds();
    return;
  }
  root_ = RootState::Open;
  tables_of_completion_ = costs_.kept_by_tables();
  links_.emplace(costs_.topology(), costs_.largest_group());
  columns_.emplace(costs_, problem_, threshold);
}

/// Releases the completion bounds and the layer tables that were made for them.
void ExactSearch::Search::release_completion_bounds() {
  completions_.reset();
  costs_.forget_tables();
}

void ExactSearch::Search::raise_bound(Duration bound, Duration threshold) {
  threshold_ = threshold;
  raised_bound_ = std::max(raised_bound_, bound);
  if (raised_bound_ >= threshold) close();
}

/// Drops all nodes, as no plan is below the threshold.
void ExactSearch::Search::close() {
  if (root_ != RootState::Expanded) root_ = RootState::Fathomed;
  open_ = {};
  waiting_ = {};
}

/// Branch and bound: nodes are taken, fathomed if their bound has reached the threshold since they
/// were inserted, and otherwise branched from.
void ExactSearch::Search::advance(Duration threshold, const SearchBudget& budget) {
  threshold_ = threshold;
  const std::int64_t last = states_ + budget.states;
  if (root_ == RootState::Open) {
    root_ = RootState::Expanded;
    branch(kNoNode);
  }
  while (!open_.empty() && waiting_.size() < budget.candidates && states_ < last) {
    const NodeIndex node = open_.take();
    if (nodes_[node].bound < threshold_) branch(node);
  }
  while (!waiting_.empty() && waiting_.top().first >= threshold_) waiting_.pop();
}

/// Expands a node, or the root if it is kNoNode: tries every stage in front of it.
void ExactSearch::Search::branch(NodeIndex index) {
  ParentNode parent{.index = index, .node = {}, .cut = {costs_.layer_count()}};
  if (!parent.is_root()) {
    parent.node = nodes_[index];
    parent.cut = parent.node.begin;
  }
  const UseIndex used = parent.is_root() ? PlacementSpace::kNothing : parent.node.used;
  const std::int64_t most_useful =
      (forms_.back().deals ? std::max(problem_.micro_batch_size, micro_batches_)
                           : problem_.micro_batch_size) *
      costs_.largest_group();
  const std::int64_t most = std::min<std::int64_t>(placements_.free_devices(used), most_useful);
  const bool skips_counts = placements_.merges_replica_counts() && !problem_.pins.replicas &&
                            problem_.replicas == Replicas::Together;
  const auto largest_share = [&](std::int64_t replicas) {
    return replica_share(problem_.micro_batch_size, replicas, 0).size();
  };
  for (std::int32_t replicas = 1; replicas <= most; ++replicas) {
    if (skips_counts && replicas > 1 && largest_share(replicas) == largest_share(replicas - 1) &&
        !are_first_to_fill_servers(costs_.topology(), replicas, problem_.micro_batch_size)) {
      continue;
    }
    // A copy, because the space may find new choices during the loop.
    const std::vector<PlacementChoice> options = placements_.options(used, replicas);
    for (const PlacementChoice& option : options) {
      for (const StageForm form : forms_) {
        const DeviceAllocation& allocation = placements_.allocation(option.allocation);
        const bool is_allowed = problem_.allows(form, replicas) &&
                                form.devices_per_replica == allocation.devices_per_replica &&
                                !(form.deals && !allocation.samples.empty());
        if (is_allowed) prepend_stages(parent, option, form);
      }
    }
  }
}

/// Makes the children of a node whose first stage has the given devices: one for each first layer.
void ExactSearch::Search::prepend_stages(const ParentNode& parent, const PlacementChoice& option,
                                         StageForm form) {
  const DeviceAllocation& allocation = placements_.allocation(option.allocation);
  const std::int64_t micro_batches = problem_.micro_batches_of(form, allocation.replicas);
  const StageColumn& stages = columns_->column(parent.cut, allocation, option.allocation, form);
  const StageColumn& without_recomputation =
      columns_->column(parent.cut, allocation, option.allocation, form.plain());
  SearchNode node;
  node.behind = parent.index;
  node.allocation = option.allocation;
  node.used = option.used;
  node.end = parent.cut;
  node.form = form;
  BoundaryBound boundary;
  if (!parent.is_root()) {
    node.stages = parent.node.stages + 1;
    boundary = boundary_to(parent.node, option.allocation, form.deals);
    node.boundary = times_of(boundary);
  }
  const bool is_room_left = placements_.free_devices(option.used) > 0;
  for (node.begin = parent.cut.previous(); node.begin >= stages.first;
       node.begin = node.begin.previous()) {
    node.stage = stages.at(node.begin);
    if (node.stage.depth_limit == 0 || (!node.is_complete() && !is_room_left)) continue;
    // Longer stages may have less work by (B1), as other layers of theirs recompute.
    if (node.stage.work(micro_batches) >= threshold_) continue;
    if (!is_within_pins(node)) continue;
    ++states_;
    ++work_;
    node.label = parent.is_root()
                     ? initial_label(node.stage, micro_batches)
                     : extend_label(node.stage, boundary, parent.node.label, micro_batches);
    const bool is_needless =
        form.recompute && without_recomputation.at(node.begin).depth_limit >= micro_batches;
    node.needless = parent.node.needless + (is_needless ? 1 : 0);
    // (C8): bounds never fall along a branch.
    node.bound = std::max(parent.node.bound, bound_of(node));
    insert_unless_fathomed(node);
  }
}

bool ExactSearch::Search::is_within_pins(const SearchNode& node) const {
  const Pins& pins = problem_.pins;
  if (pins.stages) {
    // Remaining layers need at least one more stage.
    const bool fits = node.is_complete() ? node.stages == *pins.stages : node.stages < *pins.stages;
    if (!fits) return false;
  }
  return pins.allow(layers_between(node.begin, node.end),
                    placements_.allocation(node.allocation).replicas, node.form.recompute);
}

/// Returns the bounds of the boundary between a stage with that device allocation and a partial
/// plan and, where links are shared, X_out and X_in of (B6): the transfers over both boundaries of
/// the partial plan's first stage.
BoundaryBound ExactSearch::Search::boundary_to(const SearchNode& next, AllocationIndex allocation,
                                               bool deals) {
  const BoundaryVolume volume = boundary_volume(costs_, next.begin, problem_.micro_batch_size);
  BoundaryBound boundary;
  if (deals || next.form.deals) {
    boundary = dealt_boundary_to(next, allocation, deals, volume);
  } else {
    const TransferShape& shape = shapes_.shape({allocation, next.allocation}, [&] {
      return sides_of(placements_, allocation, next.allocation);
    });
    boundary = boundary_bound(shape, volume, micro_batches_, problem_.transfers);
  }
  if (!problem_.links_are_shared || next.behind == kNoNode) return boundary;
  const DeviceAllocation& behind = placements_.allocation(next.allocation);
  // The first replica of a stage that deals micro-batches has as many as any other, and whole ones.
  const DeviceShapes shapes =
      next.form.deals
          ? links_->busiest({behind.devices.front()}, {problem_.micro_batch_size, 1, {}})
          : links_->busiest(behind.devices,
                            {problem_.micro_batch_size, behind.replicas, behind.samples});
  const BothBoundaries both{
      .before = volume,
      .behind = boundary_volume(costs_, next.end, problem_.micro_batch_size),
      .num_micro_batches = problem_.micro_batches_of(next.form, behind.replicas)};
  const TrafficBound traffic = traffic_of_first_stage(next);
  boundary.sent_by_next =
      next.stage.forward + busy_with_both(shapes.out, both) + traffic.sent(both.num_micro_batches);
  boundary.received_by_next = next.stage.backward + busy_with_both(shapes.in, both) +
                              traffic.received(both.num_micro_batches);
  return boundary;
}

/// Returns what the passes of a node's first stage send through NICs, at least.
TrafficBound ExactSearch::Search::traffic_of_first_stage(const SearchNode& node) {
  const Topology& topology = costs_.topology();
  const bool has_any =
      problem_.collectives_share_links && topology.description().servers_of_group > 1;
  if (!has_any) return {};
  const DeviceAllocation& devices = placements_.allocation(node.allocation);
  const std::vector<ReplicaKind> replicas =
      node.form.deals
          ? replica_kinds(topology, devices.devices, {problem_.micro_batch_size, 1, {}})
          : replica_kinds(topology, devices.devices,
                          {problem_.micro_batch_size, devices.replicas, devices.samples});
  return traffic_bound(costs_.in(node.form.form), replicas, layers_between(node.begin, node.end),
                       node.form.recompute, narrowest_nic(devices.devices, topology));
}

/// Returns the bounds of a boundary where micro-batches are dealt on some side (L2): the least over
/// their ways, and the queues at the devices of a side that shares each micro-batch.
BoundaryBound ExactSearch::Search::dealt_boundary_to(const SearchNode& next,
                                                     AllocationIndex allocation, bool deals,
                                                     const BoundaryVolume& volume) {
  const auto [entry, is_new] =
      dealt_shapes_.try_emplace({allocation, deals, next.allocation, next.form.deals});
  if (is_new) {
    BoundarySides sides = sides_of(placements_, allocation, next.allocation);
    sides.front.deals = deals;
    sides.back.deals = next.form.deals;
    entry->second = dealt_shapes(sides, problem_.micro_batch_size, costs_);
  }
  BoundaryBound boundary = dealt_boundary_bound(entry->second, volume);
  const auto shapes_at = [&](AllocationIndex side) {
    const DeviceAllocation& devices = placements_.allocation(side);
    return links_->busiest(devices.devices,
                           {problem_.micro_batch_size, devices.replicas, devices.samples});
  };
  if (!deals) {
    const DeviceShapes here = shapes_at(allocation);
    raise_queues(boundary, here.out, here.in, volume, micro_batches_);
  }
  if (!next.form.deals) {
    const DeviceShapes there = shapes_at(next.allocation);
    raise_queues(boundary, there.in, there.out, volume, micro_batches_);
  }
  return boundary;
}

/// Lower bound on every completion of a partial plan, without the bound of the node behind (C8).
Duration ExactSearch::Search::bound_of(const SearchNode& node) {
  if (node.label.end >= threshold_) return node.label.end;
  const auto pairs = static_cast<std::int64_t>(node.stages) * node.stages;
  if (node.is_complete()) {
    // (F9) leaves out what follows from the order.
    if (problem_.any_order) return node.label.end;
    list_stages(node);
    work_ += pairs;
    return std::max(node.label.end, bound_of_order(stages_.list(), {}, micro_batches_));
  }
  const std::vector<CompletionFunction>& choices =
      completions_->choices({.cut = node.begin,
                             .used = node.used,
                             .allocation = node.allocation,
                             .deals = node.form.deals});
  Duration least = Duration::infinite();
  bool is_listed = false;
  for (const CompletionFunction& function : choices) {
    Duration bound = std::max(node.label.end, completed(function, node.label));
    if (bound < threshold_ && !problem_.any_order) {
      if (!is_listed) list_stages(node);
      is_listed = true;
      work_ += pairs;
      const BeforePart before{
          .end = function.end, .span = function.span, .slowest = function.slowest};
      bound = std::max(bound, bound_of_order(stages_.list(), before, micro_batches_));
    }
    least = std::min(least, bound);
  }
  return least;
}

/// Fills stages_ with the figures of a partial plan's stages for (O1) to (O5).
void ExactSearch::Search::list_stages(const SearchNode& node) {
  stages_.clear();
  for (const SearchNode* here = &node;; here = &nodes_[here->behind]) {
    const std::int64_t lanes =
        here->form.deals ? placements_.allocation(here->allocation).replicas : 1;
    stages_.append(here->stage, here->boundary, here->label, lanes);
    if (here->behind == kNoNode) return;
  }
}

/// Drops a node whose bound reaches the threshold, and no other: there is no dominance. A complete
/// plan then waits to be taken, and any other node is open.
void ExactSearch::Search::insert_unless_fathomed(const SearchNode& node) {
  if (node.bound >= threshold_) return;
  const NodeIndex index = nodes_.push_back(node);
  is_taken_.push_back(false);
  if (node.is_complete()) {
    waiting_.emplace(node.bound, index);
  } else {
    open_.push(node, index);
  }
}

Candidate ExactSearch::Search::take() {
  check(!waiting_.empty(), "a candidate was taken where none waits");
  NodeIndex index = waiting_.top().second;
  Candidate candidate{.micro_batch_size = problem_.micro_batch_size,
                      .gradients = problem_.gradients,
                      .stages = {},
                      .bound = std::max(waiting_.top().first, raised_bound())};
  waiting_.pop();
  is_taken_[index] = true;
  std::vector<AllocationIndex> allocations;
  for (; index != kNoNode; index = nodes_[index].behind) {
    const SearchNode& node = nodes_[index];
    StagePlan& stage = candidate.stages.emplace_back();
    stage.layers = layers_between(node.begin, node.end);
    set_form(stage, node.form);
    allocations.push_back(node.allocation);
  }
  std::vector<std::vector<DeviceIndex>> devices = placements_.devices_of(allocations);
  for (std::size_t s = 0; s < allocations.size(); ++s) {
    candidate.stages[s].devices = std::move(devices[s]);
    candidate.stages[s].samples = placements_.allocation(allocations[s]).samples;
  }
  return candidate;
}

std::int64_t ExactSearch::Search::open_count(Duration below) const {
  if (!is_root_closed()) return root_bound_ < below ? 1 : 0;
  std::int64_t count = 0;
  for (const NodeIndex index : nodes_.indices()) {
    const SearchNode& node = nodes_[index];
    const bool is_open = node.is_complete() ? !is_taken_[index] : open_.contains(index);
    if (is_open && node.bound < below) ++count;
  }
  return count;
}

Bytes ExactSearch::Search::kept_bytes() const {
  // A node has an entry in two heaps of open nodes, or in that of the waiting plans.
  constexpr auto kPerNode = static_cast<std::int64_t>(sizeof(SearchNode) + 2 * 32 + 1);
  Bytes bytes{static_cast<std::int64_t>(nodes_.capacity()) * kPerNode};
  if (completions_) bytes += completions_->kept_bytes();
  if (columns_) bytes += columns_->kept_bytes();
  bytes += costs_.kept_by_tables() - tables_of_completion_;
  return bytes;
}

ExactSearch::ExactSearch(const ModelProfile& profile, const Topology& topology,
                         const SearchProblem& problem)
    : search_(std::make_unique<Search>(profile, topology, problem)) {}
ExactSearch::~ExactSearch() = default;

void ExactSearch::prepare(Duration threshold, const Allowance::Limits& limits) {
  search_->prepare(threshold, limits);
}
void ExactSearch::raise_bound(Duration bound, Duration threshold) {
  search_->raise_bound(bound, threshold);
}
bool ExactSearch::is_prepared() const {
  return search_->is_prepared();
}
void ExactSearch::advance(Duration threshold, const SearchBudget& budget) {
  search_->advance(threshold, budget);
}
Candidate ExactSearch::take() {
  return search_->take();
}
bool ExactSearch::deals_untried() const {
  return search_->deals_untried();
}
std::size_t ExactSearch::waiting() const {
  return search_->waiting().size();
}
std::optional<Duration> ExactSearch::next_bound() const {
  if (search_->waiting().empty()) return std::nullopt;
  return search_->waiting().top().first;
}
Duration ExactSearch::bound() const {
  return search_->bound();
}
Duration ExactSearch::bound_anywhere() const {
  return search_->bound_anywhere();
}
bool ExactSearch::is_exhausted() const {
  return search_->is_exhausted();
}
bool ExactSearch::covers_all_placements() const {
  return search_->placements().is_complete();
}
bool ExactSearch::covers_allowed_placements() const {
  return search_->covers_allowed_placements();
}
std::int64_t ExactSearch::open(Duration below) const {
  return search_->open_count(below);
}
std::int64_t ExactSearch::states() const {
  return search_->states();
}
std::int64_t ExactSearch::kept() const {
  return search_->kept();
}
Bytes ExactSearch::kept_bytes() const {
  return search_->kept_bytes();
}
std::int64_t ExactSearch::work() const {
  return search_->work();
}

}  // namespace dapple::search
