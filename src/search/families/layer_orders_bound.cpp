#include "dapple/search/families/layer_orders_bound.h"

#include <algorithm>
#include <utility>

#include "dapple/search/families/family_bound.h"
#include "search/families/down_set_figures.h"

namespace dapple::search {
namespace {

/// The largest part, 1 / n, of the time asked about by which the bound may be too low.
constexpr std::int64_t kPrecision = 65'536;
/// The most figures of down-sets by number of replicas that are kept.
constexpr std::int64_t kMostFigures = 8'000'000;

/// Partial plans: stages of the layers of a down-set, in a state of DownSetChains.
///
/// | member    | symbol, docs/bounds.md | unit | equations  |
/// | --------- | ---------------------- | ---- | ---------- |
/// | head      | least head             | ns   | (G3)       |
/// | both_ways | least head + way       | ns   | (G3)       |
/// | entering  | least y                | B    | (G4)       |
/// | gradients | least z                | B    | (G3)       |
struct ChainLabel {
  // The time to the end of the first forward of the last stage.
  Duration head = Duration::infinite();
  // That, and the way from the start of its last backward to the end of all.
  Duration both_ways = Duration::infinite();
  // What enters the server of the last stages for each micro-batch, where they are on one.
  Bytes entering = Bytes::infinite();
  // The gradients of the last stages, where they are on several servers.
  Bytes gradients = Bytes::infinite();

  bool is_reached() const { return !head.is_infinite(); }
};

/// The devices of partial plans: the number of all, the last stage's replicas (a position in the
/// counts), and the number of those of the last stages on one server, or zero if these are on
/// several. The last stages are those that have the servers of the last one.
struct ChainState {
  std::int32_t used = 0;
  std::size_t count = 0;
  std::int32_t together = 0;
};

/// A stage between two down-sets with one number of replicas.
struct ChainStage {
  DownSetIndex begin;
  DownSetIndex end;
  std::size_t count = 0;
  std::int32_t replicas = 1;
  DownSetStage figures;
};

/// The boundary in front of a stage.
struct ChainCrossing {
  // The time of one transfer, and the least interval between two.
  Duration time;
  Duration pace;
  // What enters the server of the last stages for each micro-batch, where they are on one.
  Bytes entering;
  // The gradients of the last stages in front of the stage that have its servers.
  Bytes gradients;
};

/// Chains of stages over all orders at one micro-batch size.
class DownSetChains {
 public:
  DownSetChains(const DownSetFigures& figures, const DownSets& sets,
                const LayerOrdersProblem& problem, Allowance& allowance)
      : figures_(figures),
        sets_(sets),
        problem_(problem),
        allowance_(allowance),
        devices_(figures.devices()),
        largest_server_(figures.largest_server()),
        labels_(static_cast<std::size_t>(sets.size())),
        seen_(static_cast<std::size_t>(sets.size()), -1) {}

  /// Whether stages are found that could all be done within a time (G5). It means nothing once the
  /// allowance is over.
  bool is_enough(Duration within);

 private:
  std::size_t label_count() const {
    return (static_cast<std::size_t>(devices_) + 1) * figures_.counts().size() *
           (static_cast<std::size_t>(largest_server_) + 1);
  }
  std::size_t position_of(const ChainState& state) const {
    return (static_cast<std::size_t>(state.used) * figures_.counts().size() + state.count) *
               (static_cast<std::size_t>(largest_server_) + 1) +
           static_cast<std::size_t>(state.together);
  }
  ChainState state_at(std::size_t position) const;
  void grow_from(DownSetIndex begin);
  bool grow_to(DownSetIndex begin, DownSetIndex end);
  void add_stage(const ChainStage& stage, const ChainState& state, const ChainLabel& label);
  void add_first(const ChainStage& stage);
  void add(const ChainStage& stage, const ChainState& behind, const ChainLabel& front,
           const ChainCrossing& crossing);
  void add_on_others(const ChainStage& stage, const ChainState& state, const ChainLabel& label,
                     bool is_on_several);
  bool is_within(const ChainStage& stage, bool is_on_several, const ChainLabel& front,
                 const ChainCrossing& crossing) const;
  bool is_within_server(const ChainLabel& front, const ChainState& state, Bytes leaving) const;
  ChainCrossing on_same_servers(const ChainStage& stage, const ChainState& state,
                                const ChainLabel& label) const;
  ChainCrossing to_other_servers(const ChainStage& stage, const ChainState& state,
                                 bool is_on_several) const;

  const DownSetFigures& figures_;
  const DownSets& sets_;
  const LayerOrdersProblem& problem_;
  Allowance& allowance_;
  std::int32_t devices_;
  std::int32_t largest_server_;
  Duration within_;
  // By down-set, then state; empty where none is reached, and once all stages behind are tried.
  std::vector<std::vector<ChainLabel>> labels_;
  // The states that are reached at the current down-set.
  std::vector<std::pair<ChainState, ChainLabel>> reached_;
  // By down-set, the last one from which it was found as a larger one.
  std::vector<std::int32_t> seen_;
  std::vector<DownSetIndex> larger_;
};

ChainState DownSetChains::state_at(std::size_t position) const {
  const std::size_t servers = static_cast<std::size_t>(largest_server_) + 1;
  const std::size_t counts = figures_.counts().size();
  return {.used = static_cast<std::int32_t>(position / servers / counts),
          .count = position / servers % counts,
          .together = static_cast<std::int32_t>(position % servers)};
}

/// Returns a boundary between stages on the same servers (G2): over it some pair of replicas
/// exchanges the average flow.
ChainCrossing DownSetChains::on_same_servers(const ChainStage& stage, const ChainState& state,
                                             const ChainLabel& label) const {
  ChainCrossing crossing{
      .time = {}, .pace = {}, .entering = label.entering, .gradients = label.gradients};
  const Bytes size =
      figures_.crossing(stage.begin, figures_.average_flow(state.count, stage.count));
  if (size == Bytes{}) return crossing;
  crossing.pace = figures_.on_widest_route(size.count);
  crossing.time = figures_.latency() + crossing.pace;
  return crossing;
}

/// Returns a boundary between stages that do not have the same servers (G2). Between two single
/// servers all samples pass; otherwise at least those of a replica of a side on several servers.
ChainCrossing DownSetChains::to_other_servers(const ChainStage& stage, const ChainState& state,
                                              bool is_on_several) const {
  std::int64_t samples = figures_.counts().front().samples;
  if (state.together == 0) samples = std::min(samples, figures_.least_share(state.count));
  if (is_on_several) samples = std::min(samples, figures_.least_share(stage.count));
  const Bytes size = figures_.crossing(stage.begin, samples);
  if (size == Bytes{}) return {};
  const Duration pace = figures_.through_nics(size.count);
  return {.time = figures_.latency() + pace, .pace = pace, .entering = size, .gradients = {}};
}

/// Whether a stage can be done within the time, behind a boundary and stages with that label (G3).
bool DownSetChains::is_within(const ChainStage& stage, bool is_on_several, const ChainLabel& front,
                              const ChainCrossing& crossing) const {
  const std::int64_t all = figures_.micro_batches();
  const Duration once = stage.figures.forward + stage.figures.backward;
  const auto reduction = [&](Bytes gradients) {
    return is_on_several ? figures_.reduction_across(gradients, stage.replicas)
                         : figures_.reduction_within(gradients, stage.replicas);
  };
  Duration after = reduction(stage.figures.gradients);
  if (problem_.optimizer == OptimizerTiming::AtEnd) after += stage.figures.step;
  if (is_on_several && problem_.links_are_shared) {
    after = std::max(after, reduction(stage.figures.gradients + crossing.gradients));
  }
  const Duration reduced = all * once - stage.figures.backward + after;
  const Duration end = std::max(all * once + stage.figures.step, reduced);
  const Duration paced = once + (all - 1) * std::max(once, crossing.pace);
  return front.head + crossing.time + end <= within_ &&
         front.both_ways + 2 * crossing.time + paced <= within_;
}

/// Whether the NICs of the last stages' server can carry, within the time, what enters and leaves
/// it (G4).
bool DownSetChains::is_within_server(const ChainLabel& front, const ChainState& state,
                                     Bytes leaving) const {
  if (state.together == 0 || !problem_.links_are_shared) return true;
  const Wide bytes = Wide{figures_.micro_batches()} * (Wide{front.entering.count} + leaving.count);
  return figures_.through_nics(bytes) <= within_;
}

/// Improves the label of a state with one more stage.
void DownSetChains::add(const ChainStage& stage, const ChainState& behind, const ChainLabel& front,
                        const ChainCrossing& crossing) {
  std::vector<ChainLabel>& labels = labels_[stage.end.position()];
  if (labels.empty()) {
    labels.resize(label_count());
    allowance_.keep({static_cast<std::int64_t>(label_count() * sizeof(ChainLabel))});
  }
  ChainLabel& label = labels[position_of(behind)];
  // (F3): on the first stage the optimizer step follows its backward.
  Duration back = stage.figures.backward;
  if (stage.begin == DownSetIndex{}) back += stage.figures.step;
  label.head = std::min(label.head, front.head + crossing.time + stage.figures.forward);
  label.both_ways =
      std::min(label.both_ways, front.both_ways + 2 * crossing.time + stage.figures.forward + back);
  label.entering = std::min(label.entering, crossing.entering);
  label.gradients = std::min(label.gradients, crossing.gradients + stage.figures.gradients);
}

void DownSetChains::add_first(const ChainStage& stage) {
  const ChainLabel none{.head = {}, .both_ways = {}, .entering = {}, .gradients = {}};
  if (stage.replicas <= largest_server_ && is_within(stage, false, none, {})) {
    add(stage, {stage.replicas, stage.count, stage.replicas}, none, {});
  }
  if (stage.replicas > 1 && is_within(stage, true, none, {})) {
    add(stage, {stage.replicas, stage.count, 0}, none, {});
  }
}

/// Puts a stage on one server or on several behind partial plans, whose last stages have other
/// servers.
void DownSetChains::add_on_others(const ChainStage& stage, const ChainState& state,
                                  const ChainLabel& label, bool is_on_several) {
  const ChainCrossing crossing = to_other_servers(stage, state, is_on_several);
  if (!is_within(stage, is_on_several, label, crossing)) return;
  if (!is_within_server(label, state, crossing.entering)) return;
  add(stage, {state.used + stage.replicas, stage.count, is_on_several ? 0 : stage.replicas}, label,
      crossing);
}

/// Puts a stage behind partial plans in every way.
void DownSetChains::add_stage(const ChainStage& stage, const ChainState& state,
                              const ChainLabel& label) {
  if (stage.replicas <= largest_server_) add_on_others(stage, state, label, false);
  if (stage.replicas > 1) add_on_others(stage, state, label, true);
  const bool is_on_several = state.together == 0;
  const std::int32_t together = state.together + stage.replicas;
  // Each stage has devices on all of the servers.
  const bool has_room =
      is_on_several ? stage.replicas > 1 && largest_server_ > 1 : together <= largest_server_;
  if (!has_room) return;
  const ChainCrossing crossing = on_same_servers(stage, state, label);
  if (!is_within(stage, is_on_several, label, crossing)) return;
  add(stage, {state.used + stage.replicas, stage.count, is_on_several ? 0 : together}, label,
      crossing);
}

/// Tries the stages from one down-set to another. Returns whether the work of any is within the
/// time; otherwise that of stages with more layers is not either.
bool DownSetChains::grow_to(DownSetIndex begin, DownSetIndex end) {
  bool is_any_within = false;
  const Wide behind = figures_.device_time_behind(end);
  for (std::size_t count = 0; count < figures_.counts().size(); ++count) {
    ChainStage stage{.begin = begin,
                     .end = end,
                     .count = count,
                     .replicas = figures_.counts()[count].least,
                     .figures = figures_.stage(begin, end, count)};
    const Duration once = stage.figures.forward + stage.figures.backward;
    if (figures_.micro_batches() * once > within_) continue;
    is_any_within = true;
    if (!allowance_.spend(1 + static_cast<std::int64_t>(reached_.size()))) return false;
    if (begin == DownSetIndex{}) add_first(stage);
    for (const auto& [state, label] : reached_) {
      const std::int32_t left = devices_ - state.used - stage.replicas;
      if (left < 0 || Wide{left} * within_.ns < behind) continue;
      if (end != sets_.last() && left == 0) continue;
      add_stage(stage, state, label);
    }
  }
  return is_any_within;
}

/// Tries all stages that begin at a down-set, whose ends are the larger down-sets.
void DownSetChains::grow_from(DownSetIndex begin) {
  larger_.assign(1, begin);
  for (std::size_t i = 0; i < larger_.size(); ++i) {
    const DownSetIndex end = larger_[i];
    if (!allowance_.spend(1)) return;
    if (end != begin && !grow_to(begin, end)) continue;
    for (const DownSets::Step& step : sets_.steps(end)) {
      if (seen_[step.next.position()] == begin.value) continue;
      seen_[step.next.position()] = begin.value;
      larger_.push_back(step.next);
    }
  }
}

bool DownSetChains::is_enough(Duration within) {
  within_ = within;
  std::fill(seen_.begin(), seen_.end(), -1);
  bool is_found = false;
  for (DownSetIndex begin; begin <= sets_.last() && !allowance_.is_over(); begin = begin.next()) {
    std::vector<ChainLabel> labels = std::exchange(labels_[begin.position()], {});
    if (labels.empty() && begin != DownSetIndex{}) continue;
    allowance_.keep({-static_cast<std::int64_t>(labels.size() * sizeof(ChainLabel))});
    is_found = begin == sets_.last();
    reached_.clear();
    for (std::size_t position = 0; position < labels.size(); ++position) {
      if (labels[position].is_reached()) {
        reached_.emplace_back(state_at(position), labels[position]);
      }
    }
    grow_from(begin);
  }
  for (std::vector<ChainLabel>& labels : labels_) {
    allowance_.keep({-static_cast<std::int64_t>(labels.size() * sizeof(ChainLabel))});
    labels.clear();
    labels.shrink_to_fit();
  }
  return is_found;
}

/// Returns the bound at one micro-batch size, and whether it is that of the work alone; `most` if
/// no plan is below.
std::pair<Duration, bool> bound_at(const CostModel& costs, const DownSets& sets,
                                   const LayerOrdersProblem& problem, std::int64_t micro_batch_size,
                                   Duration most, Allowance& allowance) {
  const Duration work =
      std::min(most, bound_of_work_alone(costs, {.global_batch_size = problem.global_batch_size,
                                                 .micro_batch_size = micro_batch_size}));
  if (work == most) return {most, false};
  const std::int64_t shares =
      std::min<std::int64_t>(micro_batch_size, costs.topology().device_count());
  if (allowance.is_over() || shares * sets.size() > kMostFigures) return {work, true};
  const DownSetFigures figures(costs, sets, problem.global_batch_size, micro_batch_size);
  DownSetChains chains(figures, sets, problem, allowance);
  // No plan takes `too_little`; some may take `enough`.
  std::int64_t too_little = work.ns - 1;
  std::int64_t enough = most.ns;
  std::int64_t tried = most.ns - 1;
  while (enough - too_little > 1 + (enough == most.ns ? 0 : most.ns / kPrecision)) {
    const bool is_found = chains.is_enough({tried});
    if (allowance.is_over()) return {{too_little + 1}, too_little < work.ns};
    (is_found ? enough : too_little) = tried;
    tried = too_little + (enough - too_little) / 2;
  }
  return {{too_little + 1}, false};
}

}  // namespace

std::optional<DownSets> down_sets_of(const ModelProfile& profile) {
  std::vector<std::vector<std::int32_t>> inputs;
  for (const Layer& layer : profile.layers) {
    std::vector<std::int32_t>& of_layer = inputs.emplace_back();
    for (const LayerIndex input : layer.inputs) of_layer.push_back(input.value);
  }
  return DownSets::of(inputs);
}

LayerOrdersBound bound_of_layer_orders(const CostModel& costs, const DownSets& sets,
                                       const LayerOrdersProblem& problem, Duration most) {
  LayerOrdersBound result{.bound = most};
  Allowance allowance(problem.limits);
  for (const std::int64_t size : problem.micro_batch_sizes) {
    const auto [bound, is_of_work] = bound_at(costs, sets, problem, size, result.bound, allowance);
    result.bound = bound;
    result.is_of_work = result.is_of_work || is_of_work;
  }
  return result;
}

}  // namespace dapple::search
