#include "search/decision_diagram/relaxed_diagram.h"

#include <algorithm>
#include <map>
#include <utility>

namespace dapple::search {
namespace {

BoundLabel componentwise_minimum(const BoundLabel& a, const BoundLabel& b) {
  return {.round_trip = std::min(a.round_trip, b.round_trip),
          .last_trip = std::min(a.last_trip, b.last_trip),
          .span = std::min(a.span, b.span),
          .end = std::min(a.end, b.end),
          .tail = std::min(a.tail, b.tail),
          .occupied = std::min(a.occupied, b.occupied)};
}

/// The largest difference of two labels in any component.
Duration distance(const BoundLabel& a, const BoundLabel& b) {
  const auto between = [](Duration x, Duration y) { return std::max(x, y) - std::min(x, y); };
  return std::max({between(a.round_trip, b.round_trip), between(a.last_trip, b.last_trip),
                   between(a.span, b.span), between(a.end, b.end), between(a.tail, b.tail),
                   between(a.occupied, b.occupied)});
}

}  // namespace

RelaxedDiagram::RelaxedDiagram(const CostModel& costs, ClassStages& stages,
                               const PrefixCompletions& completions, const SearchProblem& problem,
                               Duration threshold, Allowance& allowance)
    : stages_(stages),
      completions_(completions),
      problem_(problem),
      micro_batches_(problem.num_micro_batches()),
      end_of_model_{costs.layer_count()},
      threshold_(threshold),
      allowance_(allowance),
      least_(threshold),
      states_(end_of_model_.next().position()) {}

Duration RelaxedDiagram::compile(std::size_t width) {
  // Nodes of different kinds of boundaries do not stand for each other.
  width_ = width * stages_.boundary_kinds().size();
  ClassStages::Boundaries none(stages_, end_of_model_);
  expand(end_of_model_, AllocationClasses::kNoDevices, {}, none);
  for (CutIndex cut = end_of_model_.previous(); cut > CutIndex{}; cut = cut.previous()) {
    ClassStages::Boundaries boundaries(stages_, cut);
    for (const AllocationClassIndex used : states_[cut].indices()) {
      const Nodes nodes = std::exchange(states_[cut][used], {});
      if (nodes.empty()) continue;
      expand(cut, used, nodes, boundaries);
      allowance_.keep({-static_cast<std::int64_t>(nodes.size() * sizeof(Node))});
      if (allowance_.is_over()) return threshold_;
    }
    states_[cut] = {};
  }
  return least_;
}

/// Puts every stage that ends at `cut` in front of the nodes of a state, or makes it the last stage
/// where there are none. Where servers are told apart, once with a boundary in front that stays
/// within servers, and once with one that does not (D6).
void RelaxedDiagram::expand(CutIndex cut, AllocationClassIndex used, const Nodes& nodes,
                            ClassStages::Boundaries& boundaries) {
  for (const StageClassIndex devices : stages_.stage_classes()) {
    const auto used_after = stages_.classes().sum(used, stages_.class_of(devices));
    if (!used_after || !has_stage(cut, devices, *used_after)) continue;
    for (const BoundaryKind front : stages_.boundary_kinds()) {
      // By the most devices on a server, on which the stages depend.
      std::map<std::int32_t, Reached> reached;
      if (nodes.empty()) reached[stages_.most_on_a_server(devices, 0, front)];
      for (const Node& node : nodes) {
        const BoundaryLowerBound& boundary = boundaries.between(devices, node.devices, node.front);
        if (!boundary) continue;
        const std::int32_t most = stages_.most_on_a_server(devices, node.shared, front);
        Reached& alike = reached[stages_.spread_within(devices, most)];
        alike.nodes.push_back(node);
        alike.boundaries.push_back(&*boundary);
      }
      for (const auto& [most, alike] : reached) {
        for (const bool recompute : {false, true}) {
          const StageColumn* stages = stages_.column(cut, devices, recompute, most);
          if (stages == nullptr) continue;
          extend(alike, {cut, devices, *used_after, recompute, *stages, front});
          if (allowance_.is_over()) return;
        }
      }
    }
  }
}

/// Whether some stage that ends at `cut` on those devices may be the first one, or has stages in
/// front that belong to a plan below the threshold.
bool RelaxedDiagram::has_stage(CutIndex cut, StageClassIndex devices,
                               AllocationClassIndex used_after) {
  const ClassStages::Begins begins = stages_.begins(cut, devices);
  const AllocationClassIndex left = stages_.classes().rest(used_after);
  for (CutIndex begin = begins.first; begin <= begins.last; begin = begin.next()) {
    if (begin == CutIndex{} || completions_.at(begin, left) != nullptr) return true;
  }
  return false;
}

/// Puts the stages of a column in front of nodes. Stages are left out that reach the threshold by
/// their work (B1), and labels that reach it with the least completion (C1).
void RelaxedDiagram::extend(const Reached& reached, const Extension& extension) {
  const Nodes& nodes = reached.nodes;
  const AllocationClassIndex left = stages_.classes().rest(extension.used_after);
  for (CutIndex begin = extension.stages.begins_end().previous(); begin >= extension.stages.first;
       begin = begin.previous()) {
    const StageBound& stage = extension.stages.at(begin);
    if (stage.work(micro_batches_) >= threshold_) return;
    if (!allowance_.spend(1 + static_cast<std::int64_t>(nodes.size()))) return;
    if (stage.depth_limit == 0) continue;
    const PrefixCompletions::PrefixCompletion* front =
        begin == CutIndex{} ? nullptr : completions_.at(begin, left);
    if (begin > CutIndex{} && front == nullptr) continue;
    // No boundary is in front of a first stage.
    if (begin == CutIndex{} && extension.front == BoundaryKind::Local) continue;
    if (!problem_.pins.allow(layers_between(begin, extension.cut),
                             stages_.replicas(extension.devices), extension.recompute)) {
      continue;
    }
    if (nodes.empty()) extend_one(nullptr, nullptr, front, stage, begin, extension);
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      extend_one(&nodes[i], reached.boundaries[i], front, stage, begin, extension);
    }
  }
}

/// Puts a stage in front of a node, or makes it the last stage if there is none, at all its depths.
/// Nodes that belong to no plan below the threshold are left out (D4).
void RelaxedDiagram::extend_one(const Node* behind, const BoundaryBound* boundary,
                                const PrefixCompletions::PrefixCompletion* front,
                                const StageBound& stage, CutIndex begin,
                                const Extension& extension) {
  const auto ranges = behind == nullptr ? DepthRanges::of_last_stage(problem_, stage.depth_limit)
                                        : DepthRanges::in_front_of(behind->first.depth, problem_,
                                                                   stage.depth_limit);
  Node node{.label = {},
            .first = {.both = stage.forward + stage.backward, .depth = 1},
            .devices = extension.devices,
            .front = extension.front,
            .shared = stages_.shared_with(extension.devices, behind == nullptr ? 0 : behind->shared,
                                          extension.front)};
  StageBound limited = stage;
  for (const DepthRange& depths : ranges) {
    limited.depth_limit = depths.most;
    node.first.depth = depths.least;
    node.label = behind == nullptr ? initial_label(stage, micro_batches_)
                                   : extend_label(limited, *boundary, behind->label, micro_batches_,
                                                  span_of_order(stage, *boundary, behind->first,
                                                                behind->label, problem_, depths));
    if (front == nullptr) {
      least_ = std::min(least_, node.label.end);
    } else if (depths.least <= front->depth_limit &&
               completed(front->function, node.label) < threshold_) {
      insert(begin, extension.used_after, node);
    }
  }
}

/// Whether the depths in front of `a` cover those in front of `b`: those of a pinned policy follow
/// from the depth of the next stage.
bool RelaxedDiagram::may_stand_for(const Node& a, const Node& b) const {
  return !problem_.pins.least_depths || a.first.depth == b.first.depth;
}

/// Adds a node to a state. Dominated nodes are dropped, and beyond the width a node is merged with
/// the nearest one, which may lower bounds but never raises them (D1).
void RelaxedDiagram::insert(CutIndex cut, AllocationClassIndex used, const Node& node) {
  if (states_[cut].empty()) states_[cut].resize(stages_.classes().size());
  Nodes& nodes = states_[cut][used];
  for (const Node& other : nodes) {
    if (dominates(other, node)) return;
  }
  const std::size_t before = nodes.size();
  std::erase_if(nodes, [&](const Node& other) { return dominates(node, other); });
  const auto is_nearer = [&](const Node& a, const Node& b) {
    const bool is_possible = may_stand_for(a, node);
    if (is_possible != may_stand_for(b, node)) return is_possible;
    const bool is_alike = a.front == node.front;
    if (is_alike != (b.front == node.front)) return is_alike;
    return distance(a.label, node.label) < distance(b.label, node.label);
  };
  const auto nearest = std::min_element(nodes.begin(), nodes.end(), is_nearer);
  if (nodes.size() < width_ || !may_stand_for(*nearest, node)) {
    nodes.push_back(node);
  } else {
    *nearest = merged(*nearest, node);
  }
  const auto more = static_cast<std::int64_t>(nodes.size()) - static_cast<std::int64_t>(before);
  allowance_.keep(more * Bytes{sizeof(Node)});
}

/// Whether every plan with `a` behind has a bound no higher than with `b` behind.
bool RelaxedDiagram::dominates(const Node& a, const Node& b) const {
  if (!may_stand_for(a, b)) return false;
  return a.first.depth <= b.first.depth && a.first.both <= b.first.both &&
         is_no_larger(a.label, b.label) && is_no_slower_behind(a, b);
}

/// Whether nothing in front of `a` is slower, for its boundary or its devices, than in front of
/// `b`.
bool RelaxedDiagram::is_no_slower_behind(const Node& a, const Node& b) const {
  if (a.front == BoundaryKind::Any) return stages_.is_no_slower_beside(a.devices, b.devices);
  // More replicas may pass larger parts from server to server, and leave less of a server.
  return a.front == b.front && a.shared <= b.shared &&
         (a.devices == b.devices || a.devices == kAnyStageClass);
}

/// Returns a node that dominates both.
RelaxedDiagram::Node RelaxedDiagram::merged(const Node& a, const Node& b) const {
  Node node{.label = componentwise_minimum(a.label, b.label),
            .first = {.both = std::min(a.first.both, b.first.both),
                      .depth = std::min(a.first.depth, b.first.depth)},
            .devices = kAnyStageClass,
            .front = a.front == b.front ? a.front : BoundaryKind::Any,
            .shared = std::min(a.shared, b.shared)};
  if (node.front == BoundaryKind::Any) node.shared = 0;
  if (is_no_slower_behind(a, b)) {
    node.devices = a.devices;
  } else if (is_no_slower_behind(b, a)) {
    node.devices = b.devices;
  }
  return node;
}

}  // namespace dapple::search
