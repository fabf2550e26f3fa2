#include "dapple/search/dapple_search.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "dapple/search/bound.h"
#include "dapple/search/placement.h"
#include "prefix_bound.h"
#include "stage_column.h"
#include "transfer_shape.h"

namespace dapple {
namespace {

/// A partial plan: a stage in front of another partial plan.
struct Node {
  BoundLabel label;
  Duration bound;            // of every plan that it can be completed to
  std::int32_t behind = -1;  // node
  std::int32_t placement = 0;
  std::int32_t begin = 0;  // first layer
  std::int32_t end = 0;
  bool recompute = false;
};

/// Partial plans that begin at one layer, by the placement of their first stage, which also says
/// which devices are used.
using CutStates = std::vector<std::vector<std::int32_t>>;

class DappleSearch {
 public:
  DappleSearch(const CostModel& costs, const SearchProblem& problem, const SearchEffort& effort)
      : costs_(costs),
        problem_(problem),
        effort_(effort),
        micro_batches_(problem.global_batch_size / problem.micro_batch_size),
        placements_(costs.topology()),
        prefix_(costs, problem.micro_batch_size, problem.global_batch_size),
        shapes_(costs, problem.micro_batch_size, Replicas::Together),
        cuts_(static_cast<std::size_t>(costs.layer_count()) + 1) {}

  SearchOutcome run();

 private:
  void grow(std::int32_t cut, std::int32_t placement, const std::vector<std::int32_t>& behind);
  void put_in_front(std::int32_t cut, std::int32_t placement,
                    const std::vector<std::int32_t>& behind);
  void extend(std::int32_t cut, std::int32_t placement, const std::vector<std::int32_t>& behind,
              bool recompute);
  const StageColumn& column(std::int32_t cut, std::int32_t placement, bool recompute);
  double free_capacity(const Placement& placement) const;
  void keep(const Node& node);
  std::vector<std::int32_t> promising(std::int32_t cut);
  Candidate candidate_of(std::int32_t node) const;

  const CostModel& costs_;
  const SearchProblem& problem_;
  const SearchEffort& effort_;
  std::int64_t micro_batches_;
  PlacementTable placements_;
  PrefixBound prefix_;
  TransferShapes shapes_;
  std::vector<Node> nodes_;
  std::vector<CutStates> cuts_;
  std::map<std::pair<std::int32_t, bool>, StageColumn> columns_;  // of the cut being grown
  SearchOutcome outcome_;
};

SearchOutcome DappleSearch::run() {
  grow(costs_.layer_count(), -1, {-1});
  for (std::int32_t cut = costs_.layer_count() - 1; cut > 0; --cut) {
    columns_.clear();
    for (const std::int32_t placement : promising(cut)) {
      if (effort_.should_stop && effort_.should_stop()) break;
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

/// Front placements of a cut, the most promising first, as many as the effort allows.
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

/// Every stage that ends at `cut` in front of the partial plans `behind` (node -1: none).
void DappleSearch::grow(std::int32_t cut, std::int32_t placement,
                        const std::vector<std::int32_t>& behind) {
  const std::int32_t used = placement < 0 ? 0 : placements_.at(placement).used_count;
  const std::int64_t most =
      std::min<std::int64_t>(costs_.topology().device_count() - used, problem_.micro_batch_size);
  for (std::int32_t replicas = 1; replicas <= most; ++replicas) {
    const auto largest_share = [&](std::int64_t r) {
      return replica_share(problem_.micro_batch_size, r, 0).size();
    };
    if (!effort_.all_replica_counts && replicas > 1 &&
        largest_share(replicas) == largest_share(replicas - 1)) {
      continue;
    }
    for (const std::int32_t option : placements_.options(placement, replicas)) {
      put_in_front(cut, option, behind);
    }
  }
}

void DappleSearch::put_in_front(std::int32_t cut, std::int32_t placement,
                                const std::vector<std::int32_t>& behind) {
  extend(cut, placement, behind, false);
  // Recomputation buys depth, so it is for stages that memory keeps from holding everything.
  if (column(cut, placement, false).memory_limits || problem_.pins.recompute == true) {
    extend(cut, placement, behind, true);
  }
}

const StageColumn& DappleSearch::column(std::int32_t cut, std::int32_t placement, bool recompute) {
  const auto found = columns_.find({placement, recompute});
  if (found != columns_.end()) return found->second;
  const Placement& place = placements_.at(placement);
  // Replicas share alike, so the slowest sets the pace of all.
  double slowest = 1;
  for (const std::int32_t kind : place.kinds) slowest = std::min(slowest, prefix_.speed(kind));
  const std::int32_t first = prefix_.first_layer_within(
      cut, slowest * static_cast<double>(place.devices.size()), effort_.incumbent);
  return columns_
      .emplace(std::pair{placement, recompute},
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
}

/// The speeds of the devices that a placement leaves, together.
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
    for (const std::int32_t node : behind) {
      ++outcome_.states;
      const BoundLabel label =
          is_last ? bound_of_last(stage, micro_batches_)
                  : bound_with_front(stage, boundary, nodes_[static_cast<std::size_t>(node)].label,
                                     micro_batches_);
      const Duration bound =
          std::max({rest.busiest, label.end + rest.forward, label.span + rest.round_trip});
      if (bound >= effort_.incumbent) continue;
      keep({.label = label,
            .bound = bound,
            .behind = node,
            .placement = placement,
            .begin = begin,
            .end = cut,
            .recompute = recompute});
    }
  }
}

bool no_worse(const BoundLabel& a, const BoundLabel& b) {
  return a.round_trip <= b.round_trip && a.span <= b.span && a.end <= b.end;
}

/// Adds a partial plan to its state, unless it is no better than one there in any respect or the
/// state is full of more promising ones.
void DappleSearch::keep(const Node& node) {
  CutStates& states = cuts_[static_cast<std::size_t>(node.begin)];
  if (states.size() <= static_cast<std::size_t>(node.placement)) {
    states.resize(static_cast<std::size_t>(placements_.size()));
  }
  std::vector<std::int32_t>& state = states[static_cast<std::size_t>(node.placement)];
  for (const std::int32_t other : state) {
    if (no_worse(nodes_[static_cast<std::size_t>(other)].label, node.label)) return;
  }
  std::erase_if(state, [&](std::int32_t other) {
    return no_worse(node.label, nodes_[static_cast<std::size_t>(other)].label);
  });
  if (state.size() == static_cast<std::size_t>(effort_.labels_per_state)) {
    ++outcome_.narrowed;
    const auto worst =
        std::max_element(state.begin(), state.end(), [&](std::int32_t a, std::int32_t b) {
          return nodes_[static_cast<std::size_t>(a)].bound <
                 nodes_[static_cast<std::size_t>(b)].bound;
        });
    if (nodes_[static_cast<std::size_t>(*worst)].bound <= node.bound) return;
    state.erase(worst);
  }
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

}  // namespace dapple
