#include "search/decision_diagram/relaxed_diagram.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <utility>

namespace dapple::search {
namespace {

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

Duration RelaxedDiagram::compile(std::size_t width, std::vector<ProofNode>* nodes) {
  // Nodes of different kinds of boundaries do not stand for each other.
  width_ = width * stages_.boundary_kinds().size();
  go_through(nodes);
  return allowance_.is_over() ? threshold_ : least_;
}

/// Expands the nodes of all states, from the end of the model on.
void RelaxedDiagram::go_through(std::vector<ProofNode>* nodes) {
  ClassStages::Boundaries none(stages_, end_of_model_);
  expand(end_of_model_, AllocationClasses::kNoDevices, {}, none);
  for (CutIndex cut = end_of_model_.previous(); cut > CutIndex{}; cut = cut.previous()) {
    ClassStages::Boundaries boundaries(stages_, cut);
    for (const AllocationClassIndex used : states_[cut].indices()) {
      const Nodes expanded = std::exchange(states_[cut][used], {});
      if (expanded.empty()) continue;
      expand(cut, used, expanded, boundaries);
      allowance_.keep({-static_cast<std::int64_t>(expanded.size() * sizeof(Node))});
      if (allowance_.is_over() || (given_ && given_->fault)) return;
      if (nodes == nullptr) continue;
      for (const Node& node : expanded) nodes->push_back(proof_node(cut, used, node));
    }
    states_[cut] = {};
  }
}

std::optional<DiagramFault> RelaxedDiagram::check(std::span<const ProofNode> nodes) {
  given_.emplace();
  if (!take(nodes)) return given_->fault;
  go_through(nullptr);
  if (given_->fault || allowance_.is_over()) return given_->fault;
  if (least_ < threshold_) {
    return DiagramFault{.kind = DiagramFault::Kind::Below, .end = least_};
  }
  for (const auto& of_cut : given_->states) {
    for (const auto& of_state : of_cut) {
      for (const GivenNode& given : of_state) {
        if (given.attained == kAllFigures) continue;
        return DiagramFault{.kind = DiagramFault::Kind::NotLeast, .position = given.position};
      }
    }
  }
  return std::nullopt;
}

/// Takes the nodes as those of the states that are to be expanded. Returns whether all of them can
/// be nodes of the problem.
bool RelaxedDiagram::take(std::span<const ProofNode> nodes) {
  given_->states.resize(states_.size());
  const auto key = [](const ProofNode& node) { return std::pair{-node.layer, node.used}; };
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (const std::optional<std::size_t> figure = impossible_figure(nodes[i])) {
      given_->fault =
          DiagramFault{.kind = DiagramFault::Kind::Impossible, .position = i, .figure = *figure};
      return false;
    }
    if (i > 0 && (key(nodes[i]) < key(nodes[i - 1]) || nodes[i] == nodes[i - 1])) {
      given_->fault = DiagramFault{.kind = DiagramFault::Kind::Disordered, .position = i};
      return false;
    }
    const CutIndex cut{nodes[i].layer};
    const AllocationClassIndex used{nodes[i].used};
    if (states_[cut].empty()) {
      states_[cut].resize(stages_.classes().size());
      given_->states[cut].resize(stages_.classes().size());
    }
    const Node node = node_of(nodes[i]);
    states_[cut][used].push_back(node);
    given_->states[cut][used].push_back({.node = node, .position = i});
    allowance_.keep({2 * static_cast<std::int64_t>(sizeof(Node))});
  }
  return true;
}

/// Returns the position, among the ProofFigures, of the first figure that no node of the problem
/// can have; nullopt if there is none. Requires: no figure is negative.
std::optional<std::size_t> RelaxedDiagram::impossible_figure(const ProofNode& proven) const {
  const AllocationClassIndex used{proven.used};
  // Nodes of all kinds may have been merged.
  const auto& kinds = stages_.boundary_kinds();
  const bool is_any = proven.front == BoundaryKind::Any;
  const bool is_possible[] = {
      proven.layer > 0 && proven.layer<end_of_model_.value, used> AllocationClasses::kNoDevices &&
          used.position() < stages_.classes().size(),
      !proven.devices || stages_.find(AllocationClassIndex{*proven.devices}).has_value(),
      is_any || std::find(kinds.begin(), kinds.end(), proven.front) != kinds.end(),
      proven.shared <= (is_any ? 0 : kMostShared),
      proven.depth >= 1 && proven.depth <= micro_batches_};
  const auto wrong = std::find(std::begin(is_possible), std::end(is_possible), false);
  if (wrong != std::end(is_possible)) {
    return static_cast<std::size_t>(wrong - std::begin(is_possible));
  }
  // Times of the threshold or above would be of no plan below it.
  const ProofFigures figures = figures_of(proven);
  const auto late = std::find_if(figures.begin() + std::ssize(is_possible), figures.end(),
                                 [&](std::int64_t time) { return time >= threshold_.ns; });
  if (late == figures.end()) return std::nullopt;
  return static_cast<std::size_t>(late - figures.begin());
}

/// Requires: there is no impossible_figure().
RelaxedDiagram::Node RelaxedDiagram::node_of(const ProofNode& proven) const {
  return {.label = {.round_trip = proven.round_trip,
                    .last_trip = proven.last_trip,
                    .span = proven.span,
                    .end = proven.end,
                    .tail = proven.tail,
                    .occupied = proven.occupied},
          .first = {.both = proven.both, .depth = proven.depth},
          .devices = proven.devices ? *stages_.find(AllocationClassIndex{*proven.devices})
                                    : kAnyStageClass,
          .front = proven.front,
          .shared = proven.shared};
}

ProofNode RelaxedDiagram::proof_node(CutIndex cut, AllocationClassIndex used,
                                     const Node& node) const {
  ProofNode proven{.layer = cut.value,
                   .used = used.value,
                   .front = node.front,
                   .shared = node.shared,
                   .depth = node.first.depth,
                   .both = node.first.both,
                   .round_trip = node.label.round_trip,
                   .last_trip = node.label.last_trip,
                   .span = node.label.span,
                   .end = node.label.end,
                   .tail = node.label.tail,
                   .occupied = node.label.occupied};
  if (node.devices != kAnyStageClass) proven.devices = stages_.class_of(node.devices).value;
  return proven;
}

/// Looks for the given nodes that may stand for a node (D8), and notes which of its figures they
/// have.
void RelaxedDiagram::find_given(CutIndex cut, AllocationClassIndex used, const Node& node) {
  if (given_->fault) return;
  bool is_found = false;
  if (!given_->states[cut].empty()) {
    for (GivenNode& given : given_->states[cut][used]) {
      if (!dominates(given.node, node)) continue;
      is_found = true;
      given.attained |= equal_figures(given.node, node);
    }
  }
  if (is_found) return;
  given_->fault =
      DiagramFault{.kind = DiagramFault::Kind::Missing, .node = proof_node(cut, used, node)};
}

/// Returns a bit for each figure that both nodes have alike.
std::uint32_t RelaxedDiagram::equal_figures(const Node& a, const Node& b) {
  const std::array<bool, kFigures> equal{
      a.label.round_trip == b.label.round_trip, a.label.last_trip == b.label.last_trip,
      a.label.span == b.label.span, a.label.end == b.label.end, a.label.tail == b.label.tail,
      a.label.occupied == b.label.occupied, a.first.both == b.first.both,
      a.first.depth == b.first.depth,
      // It counts for nothing where the boundary may be any.
      a.shared == b.shared || a.front == BoundaryKind::Any};
  std::uint32_t bits = 0;
  for (std::size_t i = 0; i < equal.size(); ++i) {
    if (equal[i]) bits |= std::uint32_t{1} << i;
  }
  return bits;
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
        const StageOptions* stages = stages_.options(cut, devices, most);
        if (stages == nullptr) continue;
        extend(alike, {cut, devices, *used_after, *stages, front});
        if (allowance_.is_over()) return;
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

/// Puts stages in front of nodes. Stages are left out that reach the threshold by their work (B1),
/// and labels that reach it with the least completion (C1).
void RelaxedDiagram::extend(const Reached& reached, const Extension& extension) {
  for (CutIndex begin = extension.stages.begins_end().previous(); begin >= extension.stages.first();
       begin = begin.previous()) {
    for (const StageOption& stage : extension.stages.at(begin)) {
      if (stage.figures.work(micro_batches_) >= threshold_) continue;
      if (!allowance_.spend(1 + static_cast<std::int64_t>(reached.nodes.size()))) return;
      extend_by(stage, begin, reached, extension);
    }
  }
}

/// Puts a stage in front of nodes, or makes it the last stage where there are none.
void RelaxedDiagram::extend_by(const StageOption& stage, CutIndex begin, const Reached& reached,
                               const Extension& extension) {
  const AllocationClassIndex left = stages_.classes().rest(extension.used_after);
  const PrefixCompletions::PrefixCompletion* front =
      begin == CutIndex{} ? nullptr : completions_.at(begin, left);
  if (begin > CutIndex{} && front == nullptr) return;
  // No boundary is in front of a first stage.
  if (begin == CutIndex{} && extension.front == BoundaryKind::Local) return;
  if (!problem_.pins.allow(layers_between(begin, extension.cut),
                           stages_.replicas(extension.devices), stage.form.recompute)) {
    return;
  }
  const Nodes& nodes = reached.nodes;
  if (nodes.empty()) extend_one(nullptr, nullptr, front, stage.figures, begin, extension);
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    extend_one(&nodes[i], reached.boundaries[i], front, stage.figures, begin, extension);
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
  if (given_) {
    find_given(cut, used, node);
    return;
  }
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
