#include "dapple/search/dapple_search/dapple_search.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "dapple/core/indexed_vector.h"
#include "dapple/search/bounds/bound.h"
#include "dapple/search/indices.h"
#include "dapple/search/placement/placement.h"
#include "search/bounds/prefix_bound.h"
#include "search/bounds/stage_column.h"
#include "search/bounds/stage_options.h"
#include "search/bounds/transfer_shape.h"
#include "search/table_count.h"

namespace dapple::search {
namespace {

/// A partial plan: one stage in front of another partial plan.
struct Node {
  BoundLabel label;
  // Lower bound on every completion.
  Duration bound;
  NodeIndex behind = kNoNode;
  PlacementIndex placement;
  // The cuts in front of and behind the first stage.
  CutIndex begin;
  CutIndex end;
  std::int32_t stages = 1;
  StageForm form = {};
};

/// The partial plans that begin at one layer, by the placement of their first stage, which also
/// determines the devices in use.
using CutStates = IndexedVector<PlacementIndex, std::vector<NodeIndex>>;

class DappleSearch {
 public:
  DappleSearch(const CostModel& costs, const SearchProblem& problem, const SearchEffort& effort)
      : costs_(costs),
        problem_(problem),
        effort_(effort),
        allowance_(effort.limits),
        tables_(costs),
        micro_batches_(problem.num_micro_batches()),
        forms_(stage_forms(costs)),
        placements_(costs.topology()),
        prefix_(costs, problem.micro_batch_size, problem.global_batch_size),
        shapes_(costs, problem.micro_batch_size, Replicas::Together),
        end_of_model_{costs.layer_count()},
        cuts_(static_cast<std::size_t>(costs.layer_count()) + 1) {
    // Placements are of single devices.
    std::erase_if(forms_, [](const StageForm& form) { return form.devices_per_replica > 1; });
    for (std::int32_t d = 0; d < costs.topology().device_count(); ++d) {
      const double speed = prefix_.speed(costs.topology().device({d}).kind);
      all_devices_ += speed;
      quickest_ = std::max(quickest_, speed);
      slowest_ = std::min(slowest_, speed);
    }
  }

  SearchOutcome run();

 private:
  /// Where a stage is: its cuts and the placement of its devices.
  struct StagePlace {
    CutIndex begin;
    CutIndex end;
    PlacementIndex placement;
  };

  void expand(CutIndex cut, PlacementIndex placement, const std::vector<NodeIndex>& behind);
  void prepend_stages(CutIndex cut, PlacementIndex placement, const std::vector<NodeIndex>& behind);
  void extend(const StageOption& option, const StagePlace& place, const PrefixBound::Rest& rest,
              const std::vector<NodeIndex>& behind, std::optional<BoundaryBound>& boundary);
  BoundaryBound boundary_between(CutIndex cut, PlacementIndex front, PlacementIndex back);
  const StageOptions& options(CutIndex cut, PlacementIndex placement);
  StageOptions make_options(CutIndex cut, const Placement& place, CutIndex first,
                            const AllReduceModel& reduction);
  void forget_options();
  void count_placements();
  bool has_too_much_work(CutIndex cut, std::int32_t replicas, double free) const;
  double free_capacity(const Placement& placement) const;
  const std::vector<PrefixBound::Rest>& rests(double free);
  bool is_within_pins(const Node& node, const Placement& place) const;
  bool compete(const Node& a, const Node& b) const;
  void insert_unless_dominated(const Node& node);
  std::vector<PlacementIndex> promising(CutIndex cut);
  Candidate candidate_of(NodeIndex node) const;

  const CostModel& costs_;
  const SearchProblem& problem_;
  const SearchEffort& effort_;
  Allowance allowance_;
  TableCount tables_;
  std::int64_t micro_batches_;
  std::vector<StageForm> forms_;
  PlacementTable placements_;
  PrefixBound prefix_;
  TransferShapeCache<PlacementPair> shapes_;
  CutIndex end_of_model_;
  // The sum of the speeds of all devices, and the largest and the least of them.
  double all_devices_ = 0;
  double quickest_ = 0;
  double slowest_ = 1;
  // The bounds for the layers in front of each cut, by the speeds of the devices that are left.
  std::map<double, std::vector<PrefixBound::Rest>> rests_;
  IndexedVector<NodeIndex, Node> nodes_;
  IndexedVector<CutIndex, CutStates> cuts_;
  // The stages that end at the current cut, by the first placement alike, and by placement.
  std::map<PlacementIndex, StageOptions> options_;
  std::map<PlacementIndex, const StageOptions*> options_of_placements_;
  SearchOutcome outcome_;
  // All placements in front of it are counted against the allowance.
  PlacementIndex next_to_count_;
};

SearchOutcome DappleSearch::run() {
  expand(end_of_model_, PlacementTable::kNothing, {kNoNode});
  for (CutIndex cut = end_of_model_.previous(); cut > CutIndex{} && !allowance_.is_over();
       cut = cut.previous()) {
    forget_options();
    for (const PlacementIndex placement : promising(cut)) {
      if (!allowance_.spend(1)) break;
      expand(cut, placement, cuts_[cut][placement]);
    }
    cuts_[cut].clear();
  }
  std::vector<NodeIndex> complete;
  for (const auto& state : cuts_.front()) {
    complete.insert(complete.end(), state.begin(), state.end());
  }
  std::sort(complete.begin(), complete.end(), [&](NodeIndex a, NodeIndex b) {
    return std::pair(nodes_[a].bound, a) < std::pair(nodes_[b].bound, b);
  });
  for (const NodeIndex node : complete) {
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
std::vector<PlacementIndex> DappleSearch::promising(CutIndex cut) {
  std::vector<std::pair<Duration, PlacementIndex>> order;
  const CutStates& states = cuts_[cut];
  for (const PlacementIndex placement : states.indices()) {
    if (states[placement].empty()) continue;
    Duration best = Duration::infinite();
    for (const NodeIndex node : states[placement]) best = std::min(best, nodes_[node].bound);
    order.emplace_back(best, placement);
  }
  std::sort(order.begin(), order.end());
  std::vector<PlacementIndex> chosen;
  for (const auto& [bound, placement] : order) {
    if (chosen.size() == static_cast<std::size_t>(effort_.states_per_cut)) {
      outcome_.narrowed += static_cast<std::int64_t>(states[placement].size());
      continue;
    }
    chosen.push_back(placement);
  }
  return chosen;
}

/// Puts every stage that ends at `cut` in front of the partial plans `behind`, whose first stage
/// has placement `placement`. At the end of the model, `behind` is {kNoNode} and `placement`
/// PlacementTable::kNothing.
void DappleSearch::expand(CutIndex cut, PlacementIndex placement,
                          const std::vector<NodeIndex>& behind) {
  const bool is_nothing_used = placement == PlacementTable::kNothing;
  const std::int32_t used = is_nothing_used ? 0 : placements_.at(placement).used_count;
  const std::int64_t most =
      std::min<std::int64_t>(costs_.topology().device_count() - used, problem_.micro_batch_size);
  const double free = is_nothing_used ? all_devices_ : free_capacity(placements_.at(placement));
  for (std::int32_t replicas = 1; replicas <= most && !allowance_.is_over(); ++replicas) {
    const auto largest_share = [&](std::int64_t r) {
      return replica_share(problem_.micro_batch_size, r, 0).size();
    };
    const bool has_smaller_share =
        replicas == 1 || largest_share(replicas) < largest_share(replicas - 1);
    const std::optional<std::int32_t> pinned = problem_.pins.replicas;
    if (pinned ? replicas != *pinned : !effort_.all_replica_counts && !has_smaller_share) continue;
    if (has_too_much_work(cut, replicas, free)) continue;
    const std::vector<PlacementIndex>& options = placements_.options(placement, replicas);
    count_placements();
    for (const PlacementIndex option : options) prepend_stages(cut, option, behind);
  }
}

/// Whether no stage of so many replicas that ends at `cut`, on devices whose speeds sum to `free`,
/// leaves every device with less work than the incumbent allows.
bool DappleSearch::has_too_much_work(CutIndex cut, std::int32_t replicas, double free) const {
  const double own = replicas * quickest_;
  const LayerRange last = layers_between(cut.previous(), cut);
  if (prefix_.busiest(last, own) >= effort_.incumbent) return true;
  const CutIndex first = prefix_.first_begin_within(cut, own, effort_.incumbent);
  const double others = free - replicas * slowest_;
  return first > CutIndex{} &&
         (others <= 0 || prefix_.rest(first, others).busiest >= effort_.incumbent);
}

/// Returns the stages that end at `cut` on the devices of a placement, in the forms in which they
/// may be best.
const StageOptions& DappleSearch::options(CutIndex cut, PlacementIndex placement) {
  const StageOptions*& known = options_of_placements_[placement];
  if (known != nullptr) return *known;
  const Placement& place = placements_.at(placement);
  // Replicas have equal shares, so the slowest device limits the stage.
  double slowest = 1;
  for (const std::int32_t kind : place.kinds) slowest = std::min(slowest, prefix_.speed(kind));
  const CutIndex first = prefix_.first_begin_within(
      cut, slowest * static_cast<double>(place.devices.size()), effort_.incumbent);
  // They count for every placement, so that the search does not depend on which of them are alike.
  allowance_.spend((cut.value - first.value) * std::ssize(forms_));
  const PlacementIndex key = placements_.first_alike(placement);
  auto alike = options_.find(key);
  if (alike == options_.end()) {
    StageOptions made = make_options(cut, place, first, placements_.reduction(placement));
    allowance_.keep(made.kept_bytes());
    tables_.add_to(allowance_);
    alike = options_.emplace(key, std::move(made)).first;
  }
  known = &alike->second;
  return *known;
}

/// Makes the options. All-reduces are remembered, as most buckets are alike in several forms.
StageOptions DappleSearch::make_options(CutIndex cut, const Placement& place, CutIndex first,
                                        const AllReduceModel& reduction) {
  constexpr std::size_t kTimesToRemember = 64;
  const StageDevices devices =
      stage_devices(costs_.topology(), place.devices, kEqualShares,
                    FastestReduction({&reduction}, kTimesToRemember), problem_.micro_batch_size);
  return {forms_, problem_.pins, [&](StageForm form) {
            ColumnRequest request = request_of(problem_, devices, form);
            request.first = first;
            request.last = cut.previous();
            request.end = cut;
            request.limit = effort_.incumbent;
            return make_stage_column(costs_, devices, request);
          }};
}

/// Counts new placements against the allowance: their devices, the use of each server, and the load
/// of their rings on the ports, in and out, of each device and its NIC.
void DappleSearch::count_placements() {
  constexpr std::int64_t kOfAPort = 24;
  for (; next_to_count_ < placements_.end_index(); next_to_count_ = next_to_count_.next()) {
    const Placement& place = placements_.at(next_to_count_);
    const auto devices = static_cast<std::int64_t>(place.devices.size());
    const auto servers = static_cast<std::int64_t>(place.used_after.size());
    allowance_.keep({devices * (4 + 4 * kOfAPort) + 3 * servers * 4});
    allowance_.spend(devices + servers);
  }
}

void DappleSearch::forget_options() {
  for (const auto& [placement, options] : options_) allowance_.keep(-1 * options.kept_bytes());
  options_.clear();
  options_of_placements_.clear();
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

/// Returns the bounds for the layers in front of each cut on devices whose speeds sum to `free`.
const std::vector<PrefixBound::Rest>& DappleSearch::rests(double free) {
  constexpr std::int64_t kMostKept = 1 << 18;
  if (std::ssize(rests_) * end_of_model_.value > kMostKept && !rests_.contains(free)) {
    rests_.clear();
  }
  std::vector<PrefixBound::Rest>& rests = rests_[free];
  if (rests.empty()) {
    for (CutIndex cut; cut < end_of_model_; cut = cut.next()) {
      // Without devices nothing but the whole model is left.
      rests.push_back(free > 0 ? prefix_.rest(cut, free) : PrefixBound::Rest{});
    }
  }
  return rests;
}

void DappleSearch::prepend_stages(CutIndex cut, PlacementIndex placement,
                                  const std::vector<NodeIndex>& behind) {
  const StageOptions& stages = options(cut, placement);
  if (!allowance_.spend(cut.value - stages.first().value)) return;
  const double free = free_capacity(placements_.at(placement));
  const std::vector<PrefixBound::Rest>& rests = this->rests(free);
  // It is bounded once a partial plan needs it.
  std::optional<BoundaryBound> boundary;
  for (CutIndex begin = cut.previous(); begin >= stages.first(); begin = begin.previous()) {
    if (begin > CutIndex{} && free <= 0) continue;
    for (const StageOption& stage : stages.at(begin)) {
      extend(stage, {.begin = begin, .end = cut, .placement = placement}, rests[begin.position()],
             behind, boundary);
      if (allowance_.is_over()) return;
    }
  }
}

/// Puts a stage in front of partial plans. `boundary` is the one between them, once it is known.
void DappleSearch::extend(const StageOption& option, const StagePlace& place,
                          const PrefixBound::Rest& rest, const std::vector<NodeIndex>& behind,
                          std::optional<BoundaryBound>& boundary) {
  const StageBound& stage = option.figures;
  const Placement& placement = placements_.at(place.placement);
  if (!problem_.pins.empty() &&
      !problem_.pins.allow(layers_between(place.begin, place.end), std::ssize(placement.devices),
                           option.form.recompute)) {
    return;
  }
  if (std::max(rest.busiest, stage.forward + stage.backward) >= effort_.incumbent) return;
  if (!allowance_.spend(std::ssize(behind))) return;
  const auto bound_of = [&](const BoundLabel& label) {
    return std::max({rest.busiest, label.end + rest.forward, label.span + rest.round_trip});
  };
  // The label of the stage alone is no larger than that of any partial plan that begins with it.
  if (bound_of(initial_label(stage, micro_batches_)) >= effort_.incumbent) {
    outcome_.states += std::ssize(behind);
    return;
  }
  const bool is_last = behind.front() == kNoNode;
  for (const NodeIndex node : behind) {
    ++outcome_.states;
    BoundLabel label = is_last ? initial_label(stage, micro_batches_)
                               : extend_label(stage, boundary.value_or(BoundaryBound{}),
                                              nodes_[node].label, micro_batches_);
    if (!is_last && !boundary && bound_of(label) < effort_.incumbent) {
      boundary = boundary_between(place.end, place.placement, nodes_[node].placement);
      label = extend_label(stage, *boundary, nodes_[node].label, micro_batches_);
    }
    const Duration bound = bound_of(label);
    if (bound >= effort_.incumbent) continue;
    const Node grown{.label = label,
                     .bound = bound,
                     .behind = node,
                     .placement = place.placement,
                     .begin = place.begin,
                     .end = place.end,
                     .stages = is_last ? 1 : nodes_[node].stages + 1,
                     .form = option.form};
    if (is_within_pins(grown, placement)) insert_unless_dominated(grown);
  }
}

/// Bounds the boundary between stages at `cut` whose devices are those of two placements.
BoundaryBound DappleSearch::boundary_between(CutIndex cut, PlacementIndex front,
                                             PlacementIndex back) {
  const TransferShape& shape = shapes_.shape(placements_.pair(front, back), [&] {
    return BoundarySides{.front = {.devices = placements_.at(front).devices, .samples = {}},
                         .back = {.devices = placements_.at(back).devices, .samples = {}}};
  });
  return boundary_bound(shape, boundary_volume(costs_, cut, problem_.micro_batch_size),
                        problem_.num_micro_batches(), problem_.transfers);
}

/// Whether the partial plan can be completed to the pinned number of stages. Each missing stage
/// needs a layer and a device.
bool DappleSearch::is_within_pins(const Node& node, const Placement& place) const {
  if (!problem_.pins.stages) return true;
  const std::int32_t missing = *problem_.pins.stages - node.stages;
  const std::int32_t devices_left = costs_.topology().device_count() - place.used_count;
  if (node.begin == CutIndex{}) return missing == 0;
  return 0 < missing && missing <= std::min(node.begin.value, devices_left);
}

/// Whether one of two partial plans may be dropped for the other. If the number of stages is
/// pinned, they must have equally many.
bool DappleSearch::compete(const Node& a, const Node& b) const {
  return !problem_.pins.stages || a.stages == b.stages;
}

/// Whether no component by which this heuristic compares labels is larger in `a`.
bool dominates(const BoundLabel& a, const BoundLabel& b) {
  return a.round_trip <= b.round_trip && a.span <= b.span && a.end <= b.end;
}

/// Adds a partial plan to its state, unless one there is no worse in any respect or the state is
/// full of plans with bounds that are no larger.
void DappleSearch::insert_unless_dominated(const Node& node) {
  CutStates& states = cuts_[node.begin];
  if (!states.contains(node.placement)) states.resize(placements_.end_index().position());
  std::vector<NodeIndex>& state = states[node.placement];
  std::int32_t rivals = 0;
  for (const NodeIndex other : state) {
    if (!compete(nodes_[other], node)) continue;
    if (dominates(nodes_[other].label, node.label)) return;
    ++rivals;
  }
  rivals -= static_cast<std::int32_t>(std::erase_if(state, [&](NodeIndex other) {
    return compete(nodes_[other], node) && dominates(node.label, nodes_[other].label);
  }));
  if (rivals == effort_.labels_per_state) {
    ++outcome_.narrowed;
    auto worst = state.end();
    for (auto other = state.begin(); other != state.end(); ++other) {
      if (!compete(nodes_[*other], node)) continue;
      if (worst == state.end() || nodes_[*worst].bound < nodes_[*other].bound) worst = other;
    }
    if (nodes_[*worst].bound <= node.bound) return;
    state.erase(worst);
  }
  allowance_.keep({sizeof(Node)});
  state.push_back(nodes_.push_back(node));
}

Candidate DappleSearch::candidate_of(NodeIndex index) const {
  Candidate candidate;
  candidate.micro_batch_size = problem_.micro_batch_size;
  candidate.gradients = problem_.gradients;
  candidate.bound = nodes_[index].bound;
  for (; index != kNoNode; index = nodes_[index].behind) {
    const Node& node = nodes_[index];
    StagePlan stage;
    stage.layers = layers_between(node.begin, node.end);
    stage.devices = placements_.at(node.placement).devices;
    set_form(stage, node.form);
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
