#include "dapple/search/dapple_search/dapple_search.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "dapple/search/bounds/bound.h"
#include "dapple/search/placement/placement.h"
#include "search/bounds/prefix_bound.h"
#include "search/bounds/stage_column.h"
#include "search/bounds/transfer_shape.h"
#include "search/table_count.h"

namespace dapple::search {
namespace {

/// A partial plan: one stage in front of another partial plan.
struct Node {
  BoundLabel label;
  // Lower bound on every completion.
  Duration bound;
  // The node behind, or -1.
  std::int32_t behind = -1;
  std::int32_t placement = 0;
  // The layers [begin, end) of the first stage.
  std::int32_t begin = 0;
  std::int32_t end = 0;
  std::int32_t stages = 1;
  bool recompute = false;
};

/// The partial plans that begin at one layer, by the placement of their first stage, which also
/// determines the devices in use.
using CutStates = std::vector<std::vector<std::int32_t>>;

class DappleSearch {
 public:
  DappleSearch(const CostModel& costs, const SearchProblem& problem, const SearchEffort& effort)
      : costs_(costs),
        problem_(problem),
        effort_(effort),
        allowance_(effort.limits),
        tables_(costs),
        micro_batches_(problem.global_batch_size / problem.micro_batch_size),
        placements_(costs.topology()),
        prefix_(costs, problem.micro_batch_size, problem.global_batch_size),
        shapes_(costs, problem.micro_batch_size, Replicas::Together),
        cuts_(static_cast<std::size_t>(costs.layer_count()) + 1) {}

  SearchOutcome run();

 private:
  void grow(std::int32_t cut, std::int32_t placement, const std::vector<std::int32_t>& behind);
  void prepend_stage(std::int32_t cut, std::int32_t placement,
                     const std::vector<std::int32_t>& behind);
  void extend(std::int32_t cut, std::int32_t placement, const std::vector<std::int32_t>& behind,
              bool recompute);
  const StageColumn& column(std::int32_t cut, std::int32_t placement, bool recompute);
  void forget_columns();
  void count_placements();
  double free_capacity(const Placement& placement) const;
  bool is_within_pins(const Node& node, const Placement& place) const;
  bool compete(const Node& a, const Node& b) const;
  void keep(const Node& node);
  std::vector<std::int32_t> promising(std::int32_t cut);
  Candidate candidate_of(std::int32_t node) const;

  const CostModel& costs_;
  const SearchProblem& problem_;
  const SearchEffort& effort_;
  Allowance allowance_;
  TableCount tables_;
  std::int64_t micro_batches_;
  PlacementTable placements_;
  PrefixBound prefix_;
  TransferShapes shapes_;
  std::vector<Node> nodes_;
  std::vector<CutStates> cuts_;
  // Stage columns of the current cut, by placement and recomputation.
  std::map<std::pair<std::int32_t, bool>, StageColumn> columns_;
  SearchOutcome outcome_;
  std::int32_t counted_placements_ = 0;
};

SearchOutcome DappleSearch::run() {
  grow(costs_.layer_count(), -1, {-1});
  for (std::int32_t cut = costs_.layer_count() - 1; cut > 0 && !allowance_.is_over(); --cut) {
    forget_columns();
    for (const std::int32_t placement : promising(cut)) {
      if (!allowance_.spend(1)) break;
      grow(cut, placement,
           cuts_[static_cast<std::size_t>(cut)][static_cast<std::size_t>(placement)]);
    }
    cuts_[static_cast<std::size_t>(cut)].clear();
  }
  std::vector<std::int32_t> complete;
  for (const auto& state : cuts_.front()) {
    complete.insert(complete.end(), state.begin(), state.end());
  }
  std::sort(complete.begin(), complete.end(), [&](std::int32_t a, std::int32_t b) {
    return std::pair(nodes_[static_cast<std::size_t>(a)].bound, a) <
           std::pair(nodes_[static_cast<std::size_t>(b)].bound, b);
  });
  for (const std::int32_t node : complete) {
    if (outcome_.candidates.size() == static_cast<std::size_t>(effort_.candidates)) {
      ++outcome_.narrowed;
      continue;
    }
    outcome_.candidates.push_back(candidate_of(node));
  }
  return std::move(outcome_);
}

/// Returns the placements of the first stage at a cut with the least bounds, by rising bound, as
/// many as the effort allows.
std::vector<std::int32_t> DappleSearch::promising(std::int32_t cut) {
  std::vector<std::pair<Duration, std::int32_t>> order;
  const CutStates& states = cuts_[static_cast<std::size_t>(cut)];
  for (std::size_t placement = 0; placement < states.size(); ++placement) {
    if (states[placement].empty()) continue;
    Duration best{INT64_MAX};
    for (const std::int32_t node : states[placement]) {
      best = std::min(best, nodes_[static_cast<std::size_t>(node)].bound);
    }
    order.emplace_back(best, static_cast<std::int32_t>(placement));
  }
  std::sort(order.begin(), order.end());
  std::vector<std::int32_t> chosen;
  for (const auto& [bound, placement] : order) {
    if (chosen.size() == static_cast<std::size_t>(effort_.states_per_cut)) {
      outcome_.narrowed +=
          static_cast<std::int64_t>(states[static_cast<std::size_t>(placement)].size());
      continue;
    }
    chosen.push_back(placement);
  }
  return chosen;
}

/// Puts every stage that ends at `cut` in front of the partial plans `behind`, whose first stage
/// has placement `placement`. At the end of the model, `behind` is {-1} and `placement` -1.
void DappleSearch::grow(std::int32_t cut, std::int32_t placement,
                        const std::vector<std::int32_t>& behind) {
  const std::int32_t used = placement < 0 ? 0 : placements_.at(placement).used_count;
  const std::int64_t most =
      std::min<std::int64_t>(costs_.topology().device_count() - used, problem_.micro_batch_size);
  for (std::int32_t replicas = 1; replicas <= most && !allowance_.is_over(); ++replicas) {
    const auto largest_share = [&](std::int64_t r) {
      return replica_share(problem_.micro_batch_size, r, 0).size();
    };
    const bool has_smaller_share =
        replicas == 1 || largest_share(replicas) < largest_share(replicas - 1);
    const std::optional<std::int32_t> pinned = problem_.pins.replicas;
    if (pinned ? replicas != *pinned : !effort_.all_replica_counts && !has_smaller_share) continue;
    const std::vector<std::int32_t>& options = placements_.options(placement, replicas);
    count_placements();
    for (const std::int32_t option : options) prepend_stage(cut, option, behind);
  }
}

void DappleSearch::prepend_stage(std::int32_t cut, std::int32_t placement,
                                 const std::vector<std::int32_t>& behind) {
  extend(cut, placement, behind, false);
  // Recomputation permits a larger depth, so it is tried only where memory limits the depth.
  if (column(cut, placement, false).memory_limits || problem_.pins.recompute == true) {
    extend(cut, placement, behind, true);
  }
}

const StageColumn& DappleSearch::column(std::int32_t cut, std::int32_t placement, bool recompute) {
  const auto found = columns_.find({placement, recompute});
  if (found != columns_.end()) return found->second;
  const Placement& place = placements_.at(placement);
  // Replicas have equal shares, so the slowest device limits the stage.
  double slowest = 1;
  for (const std::int32_t kind : place.kinds) slowest = std::min(slowest, prefix_.speed(kind));
  const std::int32_t first = prefix_.first_layer_within(
      cut, slowest * static_cast<double>(place.devices.size()), effort_.incumbent);
  allowance_.spend(cut - first);
  allowance_.keep((cut - first) * Bytes{sizeof(StageBound)});
  const StageColumn& column =
      columns_
          .emplace(
              std::pair{placement, recompute},
              make_stage_column(costs_, {.devices = place.devices, .reduction = place.reduction},
                                {.first = first,
                                 .end = cut,
                                 .micro_batch_size = problem_.micro_batch_size,
                                 .num_micro_batches = micro_batches_,
                                 .recompute = recompute,
                                 .ignore_memory = problem_.ignore_memory,
                                 .gradients = problem_.gradients,
                                 .hold_all = problem_.gpipe}))
          .first->second;
  tables_.add_to(allowance_);
  return column;
}

/// Counts new placements against the allowance: their devices, the use of each server, and the load
/// of their rings on the ports, in and out, of each device and its NIC.
void DappleSearch::count_placements() {
  constexpr std::int64_t kOfAPort = 24;
  for (; counted_placements_ < placements_.size(); ++counted_placements_) {
    const Placement& place = placements_.at(counted_placements_);
    const auto devices = static_cast<std::int64_t>(place.devices.size());
    const auto servers = static_cast<std::int64_t>(place.used_after.size());
    allowance_.keep({devices * (4 + 4 * kOfAPort) + 3 * servers * 4});
    allowance_.spend(devices + servers);
  }
}

void DappleSearch::forget_columns() {
  for (const auto& [key, column] : columns_) {
    allowance_.keep({-static_cast<std::int64_t>(column.stages.size() * sizeof(StageBound))});
  }
  columns_.clear();
}

/// The sum of the speeds of the devices that a placement leaves free.
double DappleSearch::free_capacity(const Placement& placement) const {
  double capacity = 0;
  for (std::size_t s = 0; s < placement.used_after.size(); ++s) {
    const Server& server = costs_.topology().server(index_at<ServerIndex>(s));
    const std::int32_t kind = costs_.topology().device(server.first_device).kind;
    capacity +=
        static_cast<double>(server.device_count - placement.used_after[s]) * prefix_.speed(kind);
  }
  return capacity;
}

void DappleSearch::extend(std::int32_t cut, std::int32_t placement,
                          const std::vector<std::int32_t>& behind, bool recompute) {
  const StageColumn& stages = column(cut, placement, recompute);
  if (!allowance_.spend(cut - stages.first)) return;
  const Placement& place = placements_.at(placement);
  const double free = free_capacity(place);
  const bool is_last = behind.front() < 0;
  BoundaryBound boundary;
  if (!is_last) {
    const std::int32_t next = nodes_[static_cast<std::size_t>(behind.front())].placement;
    const TransferShape& shape = shapes_.shape(placement, next, [&] {
      return BoundarySides{.front = place.devices, .back = placements_.at(next).devices};
    });
    boundary = boundary_bound(shape, boundary_volume(costs_, cut, problem_.micro_batch_size));
  }
  for (std::int32_t begin = cut - 1; begin >= stages.first; --begin) {
    if (begin > 0 && free <= 0) continue;
    const StageBound& stage = stages.at(begin);
    if (stage.depth_limit == 0) continue;
    const auto replicas = static_cast<std::int64_t>(place.devices.size());
    if (!problem_.pins.allow({begin, cut}, replicas, recompute)) continue;
    const PrefixBound::Rest rest = prefix_.rest(begin, free);
    if (std::max(rest.busiest, stage.forward + stage.backward) >= effort_.incumbent) continue;
    if (!allowance_.spend(static_cast<std::int64_t>(behind.size()))) return;
    for (const std::int32_t node : behind) {
      ++outcome_.states;
      const BoundLabel label =
          is_last ? bound_of_last(stage, micro_batches_)
                  : bound_with_front(stage, boundary, nodes_[static_cast<std::size_t>(node)].label,
                                     micro_batches_);
      const Duration bound =
          std::max({rest.busiest, label.end + rest.forward, label.span + rest.round_trip});
      if (bound >= effort_.incumbent) continue;
      const std::int32_t stages_behind =
          is_last ? 0 : nodes_[static_cast<std::size_t>(node)].stages;
      const Node grown{.label = label,
                       .bound = bound,
                       .behind = node,
                       .placement = placement,
                       .begin = begin,
                       .end = cut,
                       .stages = stages_behind + 1,
                       .recompute = recompute};
      if (is_within_pins(grown, place)) keep(grown);
    }
  }
}

/// Whether the partial plan can be completed to the pinned number of stages. Each missing stage
/// needs a layer and a device.
bool DappleSearch::is_within_pins(const Node& node, const Placement& place) const {
  if (!problem_.pins.stages) return true;
  const std::int32_t missing = *problem_.pins.stages - node.stages;
  const std::int32_t devices_left = costs_.topology().device_count() - place.used_count;
  if (node.begin == 0) return missing == 0;
  return 0 < missing && missing <= std::min(node.begin, devices_left);
}

/// Whether one of two partial plans may be dropped for the other. If the number of stages is
/// pinned, they must have equally many.
bool DappleSearch::compete(const Node& a, const Node& b) const {
  return !problem_.pins.stages || a.stages == b.stages;
}

bool no_worse(const BoundLabel& a, const BoundLabel& b) {
  return a.round_trip <= b.round_trip && a.span <= b.span && a.end <= b.end;
}

/// Adds a partial plan to its state, unless one there is no worse in any respect or the state is
/// full of plans with bounds that are no larger.
void DappleSearch::keep(const Node& node) {
  CutStates& states = cuts_[static_cast<std::size_t>(node.begin)];
  if (states.size() <= static_cast<std::size_t>(node.placement)) {
    states.resize(static_cast<std::size_t>(placements_.size()));
  }
  std::vector<std::int32_t>& state = states[static_cast<std::size_t>(node.placement)];
  const auto at = [&](std::int32_t i) -> const Node& {
    return nodes_[static_cast<std::size_t>(i)];
  };
  std::int32_t rivals = 0;
  for (const std::int32_t other : state) {
    if (!compete(at(other), node)) continue;
    if (no_worse(at(other).label, node.label)) return;
    ++rivals;
  }
  rivals -= static_cast<std::int32_t>(std::erase_if(state, [&](std::int32_t other) {
    return compete(at(other), node) && no_worse(node.label, at(other).label);
  }));
  if (rivals == effort_.labels_per_state) {
    ++outcome_.narrowed;
    auto worst = state.end();
    for (auto other = state.begin(); other != state.end(); ++other) {
      if (!compete(at(*other), node)) continue;
      if (worst == state.end() || at(*worst).bound < at(*other).bound) worst = other;
    }
    if (at(*worst).bound <= node.bound) return;
    state.erase(worst);
  }
  allowance_.keep({sizeof(Node)});
  state.push_back(static_cast<std::int32_t>(nodes_.size()));
  nodes_.push_back(node);
}

Candidate DappleSearch::candidate_of(std::int32_t index) const {
  Candidate candidate;
  candidate.micro_batch_size = problem_.micro_batch_size;
  candidate.gradients = problem_.gradients;
  candidate.bound = nodes_[static_cast<std::size_t>(index)].bound;
  for (; index >= 0; index = nodes_[static_cast<std::size_t>(index)].behind) {
    const Node& node = nodes_[static_cast<std::size_t>(index)];
    StagePlan stage;
    stage.layers = {node.begin, node.end};
    stage.devices = placements_.at(node.placement).devices;
    stage.recompute = node.recompute;
    candidate.stages.push_back(std::move(stage));
  }
  return candidate;
}

}  // namespace

SearchOutcome search_dapple(const CostModel& costs, const SearchProblem& problem,
                            const SearchEffort& effort) {
  return DappleSearch(costs, problem, effort).run();
}

}  // namespace dapple::search
