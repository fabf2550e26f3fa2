#include "dapple/search/exact/exact_search.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <utility>

#include "dapple/core/error.h"
#include "dapple/search/bounds/bound.h"
#include "dapple/search/placement/placement_space.h"
#include "search/bounds/order_bound.h"
#include "search/bounds/prefix_bound.h"
#include "search/bounds/transfer_shape.h"
#include "search/exact/completion_bounds.h"
#include "search/exact/device_links.h"
#include "search/exact/stage_columns.h"

namespace dapple::search {
namespace {

/// Lower bounds for the boundary behind a stage.
struct Crossing {
  // One transfer in each direction.
  Duration there;
  Duration back;
  // The interval between consecutive transfers.
  Duration pace;
  Duration back_pace;
};

/// A partial plan: one stage in front of another partial plan.
struct Node {
  // The node behind, or -1.
  std::int32_t behind = -1;
  // The device allocation of the first stage, and all devices in use.
  std::int32_t allocation = 0;
  std::int32_t used = 0;
  // The layers [begin, end) of the first stage.
  std::int32_t begin = 0;
  std::int32_t end = 0;
  std::int32_t stages = 1;
  // The number of stages that recompute although memory holds the stash of all micro-batches.
  std::int32_t needless = 0;
  // Whether the first stage recomputes, and its figures.
  bool recompute = false;
  StageBound stage;
  Crossing crossing;

  BoundLabel label;
  // Lower bound on every completion.
  Duration bound;
};

/// The open nodes, in two orders from which nodes are taken in turn. The first is by least bound,
/// which raises the bound of the search; ties by lowest first layer. The second is by fewest
/// needless recomputations, then by lowest first layer, which completes plans; ties by least bound.
/// Remaining ties go to the node that was pushed first.
class OpenNodes {
 public:
  bool empty() const { return left_ == 0; }
  bool contains(std::size_t node) const { return node < is_open_.size() && is_open_[node]; }

  void push(const Node& node, std::int32_t number) {
    by_bound_.push({node.bound.ns, node.begin, 0, number});
    by_progress_.push({node.needless, node.begin, node.bound.ns, number});
    is_open_.resize(static_cast<std::size_t>(number) + 1);
    is_open_.back() = true;
    ++left_;
  }

  /// Requires: not empty.
  std::int32_t take() {
    takes_best_ = !takes_best_;
    Heap& heap = takes_best_ ? by_bound_ : by_progress_;
    const std::int32_t node = heap.top().node;
    is_open_[static_cast<std::size_t>(node)] = false;
    --left_;
    drop_taken(by_bound_);
    drop_taken(by_progress_);
    return node;
  }

  /// The least bound of all open nodes; INT64_MAX if there is none.
  Duration least_bound() const { return {by_bound_.empty() ? INT64_MAX : by_bound_.top().first}; }

 private:
  struct Entry {
    std::int64_t first = 0;
    std::int32_t second = 0;
    std::int64_t third = 0;
    std::int32_t node = 0;

    friend auto operator<=>(const Entry&, const Entry&) = default;
  };
  using Heap = std::priority_queue<Entry, std::vector<Entry>, std::greater<>>;

  void drop_taken(Heap& heap) const {
    while (!heap.empty() && !is_open_[static_cast<std::size_t>(heap.top().node)]) heap.pop();
  }

  Heap by_bound_;
  Heap by_progress_;
  // Indexed by node.
  std::vector<bool> is_open_;
  std::int64_t left_ = 0;
  bool takes_best_ = false;
};

/// Complete plans by rising bound; ties go to the one that came first.
using Waiting = std::priority_queue<std::pair<Duration, std::int32_t>,
                                    std::vector<std::pair<Duration, std::int32_t>>, std::greater<>>;

}  // namespace

class ExactSearch::Search {
 public:
  Search(const ModelProfile& profile, const Topology& topology, const SearchProblem& problem)
      : costs_(profile, topology),
        problem_(problem),
        micro_batches_(problem.global_batch_size / problem.micro_batch_size),
        placements_(topology, problem.pins.in_order),
        shapes_(costs_, problem.micro_batch_size, problem.replicas) {}

  void prepare(Duration threshold, const Allowance::Limits& limits);

  void advance(Duration threshold, const SearchBudget& budget);
  Candidate take();

  Duration bound() const {
    Duration least = threshold_;
    if (!root_is_expanded_) least = std::min(least, root_bound_);
    if (!waiting_.empty()) least = std::min(least, waiting_.top().first);
    return std::min(least, open_.least_bound());
  }

  Duration bound_anywhere() const {
    return placements_.is_complete() ? bound() : std::min(bound(), root_bound_);
  }

  bool is_prepared() const { return can_go_on_; }
  const Waiting& waiting() const { return waiting_; }
  bool is_exhausted() const { return (root_is_expanded_ || !can_go_on_) && open_.empty(); }
  const PlacementSpace& placements() const { return placements_; }
  std::int64_t open_count(Duration below) const {
    if (!root_is_expanded_) return root_bound_ < below ? 1 : 0;
    std::int64_t count = 0;
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      const Node& node = nodes_[i];
      const bool is_open = node.begin == 0 ? !is_taken_[i] : open_.contains(i);
      if (is_open && node.bound < below) ++count;
    }
    return count;
  }
  std::int64_t states() const { return states_; }
  std::int64_t kept() const {
    return static_cast<std::int64_t>(nodes_.size()) +
           (completions_ ? completions_->function_count() : 0) + released_functions_;
  }
  Bytes kept_bytes() const {
    // A node has an entry in two heaps of open nodes, or in that of the waiting plans.
    constexpr auto kPerNode = static_cast<std::int64_t>(sizeof(Node) + 2 * 32 + 1);
    Bytes bytes{static_cast<std::int64_t>(nodes_.capacity()) * kPerNode};
    if (completions_) bytes += completions_->kept_bytes();
    if (columns_) bytes += columns_->kept_bytes();
    bytes += costs_.kept_by_tables() - tables_of_completion_;
    return bytes;
  }
  std::int64_t work() const { return work_; }

 private:
  void release_completion_bounds();

  /// What is behind the stages to be tried: nothing, or a partial plan.
  struct Behind {
    std::int32_t number = -1;
    // A copy, because nodes are added while it is in use.
    Node node;
    std::int32_t cut = 0;
    bool is_nothing() const { return number < 0; }
  };
  void expand(std::int32_t node);
  void prepend_stage(const Behind& behind, const PlacementChoice& option, bool recompute);
  BoundaryBound boundary_to(const Node& next, std::int32_t allocation);
  bool is_within_pins(const Node& node) const;
  Duration bound_of(const Node& node);
  void list_stages(const Node& node);
  void keep(const Node& node);

  CostModel costs_;
  SearchProblem problem_;
  std::int64_t micro_batches_;
  PlacementSpace placements_;
  TransferShapes shapes_;
  Duration threshold_;
  // Lower bound on all plans.
  Duration root_bound_;
  // Whether preparation was completed. While the root bound is below the threshold, the following
  // three are then present.
  bool can_go_on_ = false;
  std::optional<DeviceLinks> links_;
  std::optional<CompletionBounds> completions_;
  std::optional<StageColumns> columns_;
  bool root_is_expanded_ = false;
  std::vector<Node> nodes_;
  // Indexed by node: whether it is a complete plan that has been taken.
  std::vector<bool> is_taken_;
  // Working memory of list_stages().
  std::vector<OrderedStage> stages_;
  OpenNodes open_;
  Waiting waiting_;
  std::int64_t states_ = 0;
  std::int64_t work_ = 0;
  // Layer tables that the completion bounds count.
  Bytes tables_of_completion_;
  // The number of completion functions that were released when their bound closed the search.
  std::int64_t released_functions_ = 0;
};

/// Releases the completion bounds and the layer tables that were made for them.
void ExactSearch::Search::release_completion_bounds() {
  completions_.reset();
  costs_.forget_tables();
}

void ExactSearch::Search::prepare(Duration threshold, const Allowance::Limits& limits) {
  threshold_ = threshold;
  const PrefixBound work(costs_, problem_.micro_batch_size, problem_.global_batch_size);
  root_bound_ = std::min(threshold, work.work_alone());
  const bool is_stopped = limits.should_stop && limits.should_stop();
  if (costs_.topology().device_count() > kMostDevices || is_stopped) return;
  if (!CompletionBounds::has_room(costs_, placements_, limits)) return;
  completions_.emplace(costs_, placements_, problem_, threshold, limits);
  work_ = completions_->work();
  if (completions_->is_stopped()) {
    release_completion_bounds();
    return;
  }
  states_ = completions_->function_count();
  root_bound_ = completions_->least();
  can_go_on_ = true;
  root_is_expanded_ = root_bound_ >= threshold;
  if (root_is_expanded_) {
    // No plan is below the threshold.
    released_functions_ = completions_->function_count();
    release_completion_bounds();
    return;
  }
  tables_of_completion_ = costs_.kept_by_tables();
  links_.emplace(costs_.topology());
  columns_.emplace(costs_, problem_, threshold);
}

void ExactSearch::Search::advance(Duration threshold, const SearchBudget& budget) {
  threshold_ = threshold;
  const std::int64_t last = states_ + budget.states;
  if (!root_is_expanded_ && can_go_on_) {
    root_is_expanded_ = true;
    expand(-1);
  }
  while (!open_.empty() && waiting_.size() < budget.candidates && states_ < last) {
    const std::int32_t node = open_.take();
    if (nodes_[static_cast<std::size_t>(node)].bound < threshold_) expand(node);
  }
  while (!waiting_.empty() && waiting_.top().first >= threshold_) waiting_.pop();
}

/// Expands a node: tries every stage in front of it. Node -1 is the root, with nothing behind.
void ExactSearch::Search::expand(std::int32_t node) {
  Behind behind{.number = node, .node = {}, .cut = costs_.layer_count()};
  if (!behind.is_nothing()) {
    behind.node = nodes_[static_cast<std::size_t>(node)];
    behind.cut = behind.node.begin;
  }
  const std::int32_t used = behind.is_nothing() ? PlacementSpace::kNothing : behind.node.used;
  const std::int64_t most =
      std::min<std::int64_t>(placements_.free_devices(used), problem_.micro_batch_size);
  const bool skips_counts = !placements_.is_complete() && placements_.families().size() == 1 &&
                            !problem_.pins.replicas && problem_.replicas == Replicas::Together;
  const auto largest_share = [&](std::int64_t replicas) {
    return replica_share(problem_.micro_batch_size, replicas, 0).size();
  };
  for (std::int32_t replicas = 1; replicas <= most; ++replicas) {
    if (skips_counts && replicas > 1 && largest_share(replicas) == largest_share(replicas - 1)) {
      continue;
    }
    // A copy, because the space may find new choices during the loop.
    const std::vector<PlacementChoice> options = placements_.options(used, replicas);
    for (const PlacementChoice& option : options) {
      for (const bool recompute : {false, true}) prepend_stage(behind, option, recompute);
    }
  }
}

void ExactSearch::Search::prepend_stage(const Behind& behind, const PlacementChoice& option,
                                        bool recompute) {
  const DeviceAllocation& allocation = placements_.allocation(option.allocation);
  const StageColumn& stages =
      columns_->column(behind.cut, allocation, option.allocation, recompute);
  const StageColumn& whole = columns_->column(behind.cut, allocation, option.allocation, false);
  Node node;
  node.behind = behind.number;
  node.allocation = option.allocation;
  node.used = option.used;
  node.end = behind.cut;
  node.recompute = recompute;
  BoundaryBound boundary;
  if (!behind.is_nothing()) {
    node.stages = behind.node.stages + 1;
    boundary = boundary_to(behind.node, option.allocation);
    node.crossing = {.there = boundary.forward,
                     .back = boundary.backward,
                     .pace = boundary.forward_pace,
                     .back_pace = boundary.backward_pace};
  }
  const bool is_room_left = placements_.free_devices(option.used) > 0;
  for (node.begin = behind.cut - 1; node.begin >= stages.first; --node.begin) {
    node.stage = stages.at(node.begin);
    if (node.stage.work(micro_batches_) >= threshold_) return;
    if (node.stage.depth_limit == 0 || (node.begin > 0 && !is_room_left)) continue;
    if (!is_within_pins(node)) continue;
    ++states_;
    ++work_;
    node.label = behind.is_nothing()
                     ? bound_of_last(node.stage, micro_batches_)
                     : bound_with_front(node.stage, boundary, behind.node.label, micro_batches_);
    const bool is_needless = recompute && whole.at(node.begin).depth_limit >= micro_batches_;
    node.needless = behind.node.needless + (is_needless ? 1 : 0);
    node.bound = std::max(behind.node.bound, bound_of(node));
    keep(node);
  }
}

bool ExactSearch::Search::is_within_pins(const Node& node) const {
  const Pins& pins = problem_.pins;
  if (pins.stages) {
    // Remaining layers need at least one more stage.
    const bool fits = node.begin > 0 ? node.stages < *pins.stages : node.stages == *pins.stages;
    if (!fits) return false;
  }
  return pins.allow({node.begin, node.end}, placements_.allocation(node.allocation).replicas,
                    node.recompute);
}

/// Returns the bounds of the boundary between a stage with that device allocation and a partial
/// plan and, where links are shared, those of the transfers over both boundaries of the partial
/// plan's first stage.
BoundaryBound ExactSearch::Search::boundary_to(const Node& next, std::int32_t allocation) {
  const TransferShape& shape = shapes_.shape(allocation, next.allocation, [&] {
    auto sides = placements_.devices_of({allocation, next.allocation});
    return BoundarySides{.front = std::move(sides[0]), .back = std::move(sides[1])};
  });
  const BoundaryVolume volume = boundary_volume(costs_, next.begin, problem_.micro_batch_size);
  BoundaryBound boundary = boundary_bound(shape, volume);
  if (!problem_.links_are_shared || next.behind < 0) return boundary;
  const DeviceShapes shapes =
      links_->busiest(placements_.allocation(next.allocation).devices, problem_.micro_batch_size);
  const BothBoundaries both{.before = volume,
                            .behind = boundary_volume(costs_, next.end, problem_.micro_batch_size),
                            .num_micro_batches = micro_batches_};
  boundary.sent_by_next = next.stage.forward + busy_with_both(shapes.out, both);
  boundary.received_by_next = next.stage.backward + busy_with_both(shapes.in, both);
  return boundary;
}

/// Lower bound on every completion of a partial plan, without the bound of the node behind (C8).
Duration ExactSearch::Search::bound_of(const Node& node) {
  if (node.label.end >= threshold_) return node.label.end;
  const auto pairs = static_cast<std::int64_t>(node.stages) * node.stages;
  if (node.begin == 0) {
    if (problem_.any_order) return node.label.end;
    list_stages(node);
    work_ += pairs;
    return std::max(node.label.end, bound_of_order(stages_, {}, micro_batches_));
  }
  const std::vector<CompletionFunction>& choices =
      completions_->choices({.cut = node.begin, .used = node.used, .allocation = node.allocation});
  Duration least{INT64_MAX};
  bool is_listed = false;
  for (const CompletionFunction& function : choices) {
    Duration bound = std::max(node.label.end, completed(function, node.label));
    if (bound < threshold_ && !problem_.any_order) {
      if (!is_listed) list_stages(node);
      is_listed = true;
      work_ += pairs;
      const BeforePart before{
          .end = function.end, .span = function.span, .slowest = function.slowest};
      bound = std::max(bound, bound_of_order(stages_, before, micro_batches_));
    }
    least = std::min(least, bound);
  }
  return least;
}

/// Fills stages_ with the figures that bound_of_order() needs of a partial plan's stages.
void ExactSearch::Search::list_stages(const Node& node) {
  stages_.clear();
  Duration start;
  Duration back;
  Duration finish;
  Duration slowest;
  for (const Node* here = &node;; here = &nodes_[static_cast<std::size_t>(here->behind)]) {
    const StageBound& stage = here->stage;
    finish = std::max(finish, stage.after_backward);
    stages_.push_back({.forward = stage.forward,
                       .backward = stage.backward,
                       .backward_pace = std::max(stage.backward, here->crossing.back_pace),
                       .start = start,
                       .round_trip = here->label.round_trip,
                       .tail = here->label.tail,
                       .finish = finish,
                       .back = back,
                       .most_in_flight = stage.depth_limit,
                       .slowest_before = slowest});
    if (here->behind < 0) return;
    // What ends on the next stage is followed by the transfer back and this stage's backward.
    start += stage.forward + here->crossing.there;
    back += here->crossing.back + stage.backward;
    finish += here->crossing.back + stage.backward;
    slowest = std::max({slowest, stage.forward, here->crossing.pace});
  }
}

void ExactSearch::Search::keep(const Node& node) {
  if (node.bound >= threshold_) return;
  const auto number = static_cast<std::int32_t>(nodes_.size());
  if (node.begin == 0) {
    waiting_.emplace(node.bound, number);
  } else {
    open_.push(node, number);
  }
  nodes_.push_back(node);
  is_taken_.push_back(false);
}

Candidate ExactSearch::Search::take() {
  check(!waiting_.empty(), "a candidate was taken where none waits");
  std::int32_t index = waiting_.top().second;
  Candidate candidate{.micro_batch_size = problem_.micro_batch_size,
                      .gradients = problem_.gradients,
                      .stages = {},
                      .bound = waiting_.top().first};
  waiting_.pop();
  is_taken_[static_cast<std::size_t>(index)] = true;
  std::vector<std::int32_t> allocations;
  for (; index >= 0; index = nodes_[static_cast<std::size_t>(index)].behind) {
    const Node& node = nodes_[static_cast<std::size_t>(index)];
    StagePlan& stage = candidate.stages.emplace_back();
    stage.layers = {node.begin, node.end};
    stage.recompute = node.recompute;
    allocations.push_back(node.allocation);
  }
  std::vector<std::vector<DeviceIndex>> devices = placements_.devices_of(allocations);
  for (std::size_t s = 0; s < allocations.size(); ++s) {
    candidate.stages[s].devices = std::move(devices[s]);
  }
  return candidate;
}

ExactSearch::ExactSearch(const ModelProfile& profile, const Topology& topology,
                         const SearchProblem& problem)
    : search_(std::make_unique<Search>(profile, topology, problem)) {}
ExactSearch::~ExactSearch() = default;

void ExactSearch::prepare(Duration threshold, const Allowance::Limits& limits) {
  search_->prepare(threshold, limits);
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
