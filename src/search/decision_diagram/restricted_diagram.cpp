#include "search/decision_diagram/restricted_diagram.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

namespace dapple::search {
namespace {

/// Returns the number of devices after which the topology looks the same again: those of a server
/// or of several whose devices take turns, where all servers are alike and in no racks, otherwise
/// all.
std::int32_t period_of(const Topology& topology, std::int32_t interleaved) {
  const TopologyDescription& description = topology.description();
  const bool are_alike = description.servers.size() == 1 && description.racks.empty();
  return are_alike ? interleaved * description.servers.front().devices : topology.device_count();
}

}  // namespace

RestrictedDiagram::RestrictedDiagram(const CostModel& costs, ClassStages& classes,
                                     const PrefixCompletions& completions,
                                     const SearchProblem& problem, Duration threshold,
                                     Allowance& allowance, const DeviceOrder& order)
    : costs_(costs),
      classes_(classes),
      completions_(completions),
      problem_(problem),
      micro_batches_(problem.num_micro_batches()),
      end_of_model_{costs.layer_count()},
      threshold_(threshold),
      allowance_(allowance),
      tables_(costs),
      work_(classes.work()),
      order_(order.devices),
      in_front_(classes.classes_in_front(order.devices)),
      period_(period_of(costs.topology(), order.interleaved)),
      capacity_(classes.capacity(classes.classes().rest(AllocationClasses::kNoDevices))),
      others_(other_shares(costs, problem)) {
  find_blocks(order.interleaved);
}

/// Finds where the servers and the kinds begin in the order.
void RestrictedDiagram::find_blocks(std::int32_t interleaved) {
  const Topology& topology = costs_.topology();
  for (std::int32_t place = 0; place < std::ssize(order_); ++place) {
    const Device& device = topology.device(order_[static_cast<std::size_t>(place)]);
    const std::int32_t block = interleaved * topology.server(device.server).device_count;
    first_of_server_.push_back({interleaved == 1 ? place - device.number : place / block * block});
    const bool is_first =
        place == 0 ||
        topology.device(order_[static_cast<std::size_t>(place) - 1]).kind != device.kind;
    first_of_kind_.push_back(is_first ? DeviceIndex{place} : first_of_kind_.back());
  }
}

std::vector<DeviceIndex> RestrictedDiagram::list_of(const Devices& devices) const {
  const auto first = order_.begin() + devices.first.value;
  std::vector<DeviceIndex> list(first, first + devices.count);
  std::sort(list.begin(), list.end());
  return list;
}

const std::vector<std::int64_t>& RestrictedDiagram::samples_of(const Devices& devices) {
  const auto [entry, is_new] = samples_.try_emplace({devices.first, devices.count});
  if (is_new && problem_.shares_by_speed) entry->second = others_(list_of(devices));
  return devices.has_other_shares ? entry->second : kEqualShares;
}

BoundarySide RestrictedDiagram::side_of(const Devices& devices) {
  return {.devices = list_of(devices), .samples = samples_of(devices)};
}

/// Returns the numbers of replicas that stages are tried with, ascending.
std::vector<std::int32_t> RestrictedDiagram::replica_counts() const {
  std::set<std::int32_t> counts;
  for (const StageClassIndex index : classes_.stage_classes()) {
    counts.insert(static_cast<std::int32_t>(classes_.replicas(index)));
  }
  const Topology& topology = costs_.topology();
  const std::int64_t most =
      std::min<std::int64_t>(topology.device_count(), problem_.micro_batch_size);
  for (std::int32_t replicas = 2; replicas <= most; ++replicas) {
    const bool is_more = are_first_to_fill_servers(topology, replicas, problem_.micro_batch_size);
    if (is_more && problem_.pins.replicas.value_or(replicas) == replicas) counts.insert(replicas);
  }
  return {counts.begin(), counts.end()};
}

std::vector<Candidate> RestrictedDiagram::compile(std::size_t width) {
  width_ = width;
  const std::int32_t devices = costs_.topology().device_count();
  states_.resize(end_of_model_.next().position());
  counts_ = replica_counts();
  expand(end_of_model_, {devices}, {});
  for (CutIndex cut = end_of_model_.previous(); cut > CutIndex{}; cut = cut.previous()) {
    if (states_[cut].empty()) continue;
    thin_out(cut);
    for (DeviceIndex first{devices - 1}; first.value > 0; first = first.previous()) {
      const Nodes nodes = std::move(states_[cut][first]);
      if (nodes.empty()) continue;
      expand(cut, first, nodes);
      leave_idle(cut, first, nodes);
      if (allowance_.is_over()) return {};
    }
    states_[cut].clear();
  }
  std::vector<Candidate> candidates;
  for (const auto& [stages, node] : complete_) candidates.push_back(candidate_of(node));
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.bound < b.bound; });
  return candidates;
}

/// Drops the nodes of a layer beyond a fixed number for each node of the width, those with the
/// largest bounds on their completions.
void RestrictedDiagram::thin_out(CutIndex cut) {
  std::vector<Duration> estimates;
  for (const Nodes& nodes : states_[cut]) {
    for (const NodeIndex node : nodes) estimates.push_back(nodes_[node].estimate);
  }
  const std::size_t most = kNodesOfALayer * width_;
  if (estimates.size() <= most) return;
  const auto last = estimates.begin() + static_cast<std::ptrdiff_t>(most) - 1;
  std::nth_element(estimates.begin(), last, estimates.end());
  for (Nodes& nodes : states_[cut]) {
    std::erase_if(nodes, [&](NodeIndex node) { return nodes_[node].estimate > *last; });
  }
}

/// Tries every stage that ends at `cut` on the devices that directly precede `first_used`, in front
/// of each of the nodes, or as the last stage where there are none.
void RestrictedDiagram::expand(CutIndex cut, DeviceIndex first_used, const Nodes& nodes) {
  for (const std::int32_t replicas : counts_) {
    if (replicas > first_used.value) return;
    Devices devices{.first = {first_used.value - replicas}, .count = replicas};
    expand_on(devices, cut, nodes);
    devices.has_other_shares = true;
    if (!samples_of(devices).empty()) expand_on(devices, cut, nodes);
    if (allowance_.is_over()) return;
  }
}

/// Tries every stage that ends at `cut` on these devices.
void RestrictedDiagram::expand_on(const Devices& devices, CutIndex cut, const Nodes& nodes) {
  std::vector<BoundaryBound> between;
  for (const NodeIndex index : nodes) {
    between.push_back(boundary(cut, devices, devices_of(nodes_[index])));
  }
  const StageOptions& stages = options(cut, devices);
  if (nodes.empty()) extend({}, kNoNode, devices, {}, {cut, stages});
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    // A copy, because nodes are added while it is in use.
    const Node behind = nodes_[nodes[i]];
    extend(behind, nodes[i], devices, between[i], {cut, stages});
  }
}

/// Puts stages in front of a node.
void RestrictedDiagram::extend(const Node& behind, NodeIndex index, const Devices& devices,
                               const BoundaryBound& between, const Extension& extension) {
  Node node{.behind = index,
            .end = extension.cut,
            .first_device = devices.first,
            .replicas = devices.count,
            .has_other_shares = devices.has_other_shares,
            .stages = index == kNoNode ? 1 : behind.stages + 1};
  for (node.begin = extension.stages.begins_end().previous();
       node.begin >= extension.stages.first(); node.begin = node.begin.previous()) {
    if (!classes_.is_allowed(node.begin)) continue;
    for (const StageOption& stage : extension.stages.at(node.begin)) {
      if (stage.figures.work(micro_batches_) >= threshold_) continue;
      if (!allowance_.spend(1)) return;
      extend_by(stage, node, behind, between);
    }
  }
}

/// Puts a stage in front of a node at all its depths. Of `node`, what depends on the stage is set.
void RestrictedDiagram::extend_by(const StageOption& option, Node& node, const Node& behind,
                                  const BoundaryBound& between) {
  const StageBound& stage = option.figures;
  const bool is_last = node.behind == kNoNode;
  const LayerRange layers = layers_between(node.begin, node.end);
  if (!problem_.pins.allow(layers, node.replicas, option.form.recompute)) return;
  if (!has_allowed_stages(node)) return;
  const bool is_complete = node.begin == CutIndex{};
  const PrefixCompletions::PrefixCompletion* front =
      is_complete ? nullptr : completions_.at(node.begin, in_front_[node.first_device.position()]);
  if (!is_complete && front == nullptr) return;
  node.form = option.form;
  node.first.both = stage.forward + stage.backward;
  const auto ranges =
      is_last ? DepthRanges::of_last_stage(problem_, stage.depth_limit)
              : DepthRanges::in_front_of(behind.first.depth, problem_, stage.depth_limit);
  StageBound limited = stage;
  for (const DepthRange& depths : ranges) {
    limited.depth_limit = depths.most;
    node.first.depth = depths.least;
    node.most_depth = depths.most;
    node.label = is_last ? initial_label(stage, micro_batches_)
                         : extend_label(limited, between, behind.label, micro_batches_,
                                        span_of_order(stage, between, behind.first, behind.label,
                                                      problem_, depths));
    node.estimate = is_complete ? node.label.end : completed(front->function, node.label);
    if (node.estimate >= threshold_) continue;
    if (is_complete) {
      finish(node);
    } else if (depths.least <= front->depth_limit) {
      insert(node);
    }
  }
}

/// Whether the number of stages is as pinned or, of a partial plan, can still become so.
bool RestrictedDiagram::has_allowed_stages(const Node& node) const {
  const std::optional<std::int32_t>& pinned = problem_.pins.stages;
  if (!pinned) return true;
  return node.begin == CutIndex{} ? node.stages == *pinned : node.stages < *pinned;
}

/// Leaves the devices of a server idle that precede the devices in use, so that the next stage
/// begins at the end of a server, or those of a kind, so that it begins at the end of another kind.
void RestrictedDiagram::leave_idle(CutIndex cut, DeviceIndex first_used, const Nodes& nodes) {
  const DeviceIndex of_server = first_of_server_[first_used.position()];
  const DeviceIndex of_kind = first_of_kind_[first_used.position()];
  for (const DeviceIndex first : std::set{of_server, of_kind}) {
    if (first_used == first || first.value == 0) continue;
    Nodes& others = states_[cut][first];
    for (const NodeIndex index : nodes) insert_index(others, index);
  }
}

/// Adds a node to its state unless another one there dominates its label.
void RestrictedDiagram::insert(const Node& node) {
  if (states_[node.begin].empty()) {
    states_[node.begin].resize(static_cast<std::size_t>(costs_.topology().device_count()));
  }
  Nodes& nodes = states_[node.begin][node.first_device];
  const bool is_wide = nodes.size() == width_;
  if (is_wide && nodes_[nodes.back()].estimate <= node.estimate) return;
  const auto dominates = [&](const Node& other) {
    if (problem_.pins.stages && other.stages != node.stages) return false;
    return other.first.depth <= node.first.depth && is_no_larger(other.label, node.label);
  };
  for (const NodeIndex other : nodes) {
    if (dominates(nodes_[other])) return;
  }
  insert_index(nodes, nodes_.push_back(node));
  allowance_.keep({sizeof(Node)});
}

/// Adds a node to a list, which stays sorted by estimate and no longer than the width.
void RestrictedDiagram::insert_index(Nodes& nodes, NodeIndex index) const {
  const auto comes_first = [&](NodeIndex a, NodeIndex b) {
    return nodes_[a].estimate < nodes_[b].estimate;
  };
  nodes.insert(std::upper_bound(nodes.begin(), nodes.end(), index, comes_first), index);
  if (nodes.size() > width_) nodes.pop_back();
}

/// Adds a complete plan, unless one with as many stages has no larger bound.
void RestrictedDiagram::finish(const Node& node) {
  const auto [known, is_new] = complete_.try_emplace(node.stages, node);
  if (!is_new && node.label.end < known->second.label.end) known->second = node;
}

Candidate RestrictedDiagram::candidate_of(const Node& first) {
  Candidate candidate{.micro_batch_size = problem_.micro_batch_size,
                      .gradients = problem_.gradients,
                      .stages = {},
                      .bound = first.label.end};
  std::int64_t depth = micro_batches_;
  for (const Node* node = &first;; node = &nodes_[node->behind]) {
    StagePlan& stage = candidate.stages.emplace_back();
    stage.layers = layers_between(node->begin, node->end);
    set_form(stage, node->form);
    // Depths do not rise from stage to stage.
    depth = std::min(depth, node->most_depth);
    candidate.depths.push_back(depth);
    BoundarySide side = side_of(devices_of(*node));
    stage.devices = std::move(side.devices);
    stage.samples = std::move(side.samples);
    if (node->behind == kNoNode) return candidate;
  }
}

/// Returns the first of devices that are alike: those at the same place in the first period.
RestrictedDiagram::Devices RestrictedDiagram::representative(const Devices& devices) const {
  return {.first = {devices.first.value % period_},
          .count = devices.count,
          .has_other_shares = devices.has_other_shares};
}

/// Returns the stages that end at `end` on devices, in the forms in which they may be best (D9).
const StageOptions& RestrictedDiagram::options(CutIndex end, const Devices& devices) {
  const Devices alike = representative(devices);
  const std::tuple key{end, alike.first, alike.count, alike.has_other_shares};
  const auto found = options_.find(key);
  if (found != options_.end()) return found->second;
  StageOptions made = make_options(end, alike);
  allowance_.keep(made.kept_bytes());
  tables_.add_to(allowance_);
  return options_.emplace(key, std::move(made)).first->second;
}

StageOptions RestrictedDiagram::make_options(CutIndex end, const Devices& devices) {
  const std::vector<DeviceIndex> list = list_of(devices);
  const auto reduction =
      reductions_.try_emplace({devices.first, devices.count}, list, costs_.topology()).first;
  const StageDevices stage =
      stage_devices(costs_.topology(), list, samples_of(devices),
                    FastestReduction({&reduction->second}), problem_.micro_batch_size);
  const CutIndex first = work_.first_begin_within(end, devices.count, threshold_);
  const CutIndex last =
      std::max(first, work_.last_begin_within(end, capacity_ - devices.count, threshold_));
  return {classes_.forms(), problem_.pins, [&](StageForm form) {
            ColumnRequest request = request_of(problem_, stage, form);
            request.first = first;
            request.last = last;
            request.end = end;
            request.limit = threshold_;
            StageColumn made = make_stage_column(costs_, stage, request);
            allowance_.spend(made.steps_from(end));
            return made;
          }};
}

BoundaryBound RestrictedDiagram::boundary(CutIndex cut, const Devices& front, const Devices& back) {
  const Devices alike = representative(front);
  const std::int32_t distance = back.first.value - front.first.value;
  const std::tuple key{alike.first, alike.count, alike.has_other_shares,
                       distance,    back.count,  back.has_other_shares};
  auto found = shapes_.find(key);
  if (found == shapes_.end()) {
    const Devices behind{.first = {alike.first.value + distance},
                         .count = back.count,
                         .has_other_shares = back.has_other_shares};
    found = shapes_
                .emplace(key, transfer_shape({.front = side_of(alike), .back = side_of(behind)},
                                             problem_.micro_batch_size, costs_, problem_.replicas))
                .first;
  }
  return boundary_bound(found->second, boundary_volume(costs_, cut, problem_.micro_batch_size),
                        micro_batches_, problem_.transfers);
}

}  // namespace dapple::search
