#include <algorithm>
#include <optional>
#include <span>
#include <tuple>
#include <utility>

#include "dapple/core/error.h"
#include "dapple/core/parallel.h"
#include "dapple/plan/record_text.h"
#include "dapple/planner/candidates/plan_pool.h"
#include "dapple/planner/request/planner_options.h"
#include "dapple/search/dapple_search/dapple_search.h"
#include "dapple/search/dapple_search/even_split.h"
#include "planner/candidates/as_pinned.h"
#include "planner/candidates/simulation_order.h"
#include "planner/one_family/dapple_planner.h"
#include "planner/request/gradient_synchronizations.h"
#include "planner/request/micro_batches.h"
#include "planner/request/stop_question.h"

namespace dapple::planner {
namespace {

/// The main search is narrower with more devices than this.
constexpr std::int32_t kSomeDevices = 32;
/// Above this many devices there is only one search, and simulations are long.
constexpr std::int32_t kManyDevices = 128;

/// The quantities that the work of a search grows with.
struct SearchSize {
  std::int64_t layers = 1;
  std::int32_t devices = 1;
};

/// Returns how many states per cut the work allows, between 2 and `most`. With many devices the
/// work is about layers^2 * devices for each state of a cut.
std::int32_t states_that_fit(const SearchSize& size, std::int32_t most) {
  constexpr std::int64_t kWork = 14'000'000;
  const std::int64_t states = kWork / (size.layers * size.layers * size.devices);
  return static_cast<std::int32_t>(std::clamp<std::int64_t>(states, 2, most));
}

/// The effort of a narrow first search that finds a good incumbent.
search::SearchEffort scout(const SearchSize& size, Duration incumbent) {
  const bool few = size.devices <= kFewDevices;
  return {.incumbent = incumbent,
          .states_per_cut = few ? 12 : states_that_fit(size, 12),
          .labels_per_state = 1,
          .candidates = 3,
          .all_replica_counts = few};
}

/// The effort of the main search, for plans faster than the incumbent.
search::SearchEffort thorough(const SearchSize& size, Duration incumbent) {
  search::SearchEffort effort{.incumbent = incumbent,
                              .states_per_cut = 1000,
                              .labels_per_state = 8,
                              .candidates = 200,
                              .all_replica_counts = size.devices <= kFewDevices};
  if (size.devices <= kFewDevices) return effort;
  const bool some = size.devices <= kSomeDevices;
  effort.states_per_cut = states_that_fit(size, some ? 120 : 24);
  effort.labels_per_state = some ? 4 : 2;
  return effort;
}

/// The simulated actions that the planner may spend; unlike time they are deterministic.
std::int64_t action_budget(std::int32_t devices) {
  return devices <= kManyDevices ? 6'000'000 : 30'000'000;
}
/// The fractions 1/n of the action budget for all opening plans together, for one candidate, and
/// for refining the depths of one plan.
constexpr std::int64_t kOpeningPart = 3;
constexpr std::int64_t kCandidatePart = 4;
constexpr std::int64_t kRefinementPart = 8;
/// The limit on the devices and layers of the opening plans that are costed, summed over them.
constexpr std::int64_t kOpeningWork = 100'000'000;
/// The limits on stages tried or costed: over all searches of one effort, and the least for each.
constexpr std::int64_t kSearchWork = 400'000'000;
constexpr std::int64_t kLeastSearchWork = 500'000;
/// The number of parallel searches, which share half of the memory limit. It is fixed, as the limit
/// of a search may end it.
constexpr int kSearchesSideBySide = 8;
/// The number of plans whose depths are refined in the end.
constexpr std::size_t kRefined = 4;
/// The number of candidates in a row that give no faster plan after which the simulation of first
/// plans on many devices ends. The form with the fastest first plan is searched further.
constexpr std::size_t kMostWithoutGain = 64;
/// The number of candidates simulated in parallel; fixed, so that the outcome does not depend on
/// the number of threads.
constexpr std::size_t kBatch = 8;

/// Keeps at most `most` items (at least two) at even distances, among them the first and the last.
template <class Item>
void thin_out(std::vector<Item>& items, std::int64_t most) {
  const auto count = static_cast<std::int64_t>(items.size());
  most = std::max<std::int64_t>(2, most);
  if (count <= most) return;
  std::vector<Item> kept;
  for (std::int64_t i = 0; i < most; ++i) {
    kept.push_back(items[static_cast<std::size_t>(i * (count - 1) / (most - 1))]);
  }
  items = std::move(kept);
}

class DapplePlanner {
 public:
  explicit DapplePlanner(const PlanningContext& context)
      : context_(context),
        is_stopped_(context.progress),
        action_budget_(action_budget(context.topology.device_count())),
        evaluator_(context, [this] { return is_stopped_(); }) {}

  DapplePlans run();

 private:
  // The phases of a run, and their steps.
  void open();
  std::vector<search::Candidate> opening() const;
  std::vector<std::int32_t> opening_stage_counts() const;
  search::Candidate even_candidate(const CostModel& costs, std::int64_t micro_batch_size,
                                   std::int32_t stages) const;
  void bound_opening(std::vector<search::Candidate>& candidates) const;
  void search_at_both_widths();
  std::vector<search::Candidate> search(search::SearchEffort effort);
  void refine_best();

  void simulate_best_first(const std::vector<search::Candidate>& candidates, std::int64_t budget);
  void simulate_side_by_side(const std::vector<search::Candidate>& candidates,
                             std::span<const std::size_t> positions);
  Duration estimate(const search::Candidate& candidate, const LayerTable& table) const;
  void simulate_first_choice(const std::vector<search::Candidate>& candidates);
  bool is_allowed(const search::Candidate& candidate) const;
  bool is_long(const search::Candidate& candidate) const;
  /// Whether first plans are made on so many devices that simulations take long.
  bool may_end_without_gain() const {
    return context_.dapple_steps == DappleSteps::Searches &&
           context_.topology.device_count() > kManyDevices;
  }
  Duration incumbent() const {
    const Duration most = context_.only_faster ? context_.to_beat : Duration::infinite();
    return kept_.empty() ? most : std::min(most, kept_.front().iteration);
  }
  void account(const Score& score);
  void tell_progress();
  SearchRecord record() const;

  const PlanningContext context_;
  StopQuestion is_stopped_;
  std::int64_t action_budget_;
  CandidateEvaluator evaluator_;
  std::vector<std::int64_t> micro_batch_sizes_;
  std::vector<GradientSynchronization> gradients_;
  // The best few plans, of different candidates, best first.
  std::vector<SimulatedPlan> kept_;
  SearchRecord record_;
  std::int64_t narrowed_ = 0;
  std::int64_t not_simulated_ = 0;
  std::int64_t actions_ = 0;
};

DapplePlans DapplePlanner::run() {
  MicroBatchSizes sizes = micro_batch_sizes(context_.options);
  micro_batch_sizes_ = std::move(sizes.sizes);
  record_.cut = std::move(sizes.cut);
  // The exact search, where it follows, tries the other bucket sizes.
  gradients_ = context_.options.planner == PlannerKind::Exact
                   ? std::vector{usual_gradients(context_.options)}
                   : gradient_synchronizations(context_.options, context_.profile);
  open();
  if (context_.dapple_steps != DappleSteps::Opening) search_at_both_widths();
  kept_.resize(std::min(kept_.size(), kRefined));
  if (context_.dapple_steps == DappleSteps::All) refine_best();
  return {.best = std::move(kept_), .record = record()};
}

/// Simulates the opening plans.
void DapplePlanner::open() {
  const std::vector<search::Candidate> first = opening();
  record_.candidates += static_cast<std::int64_t>(first.size());
  simulate_best_first(first, action_budget_ / kOpeningPart);
  if (is_stopped_()) simulate_first_choice(first);
}

/// Returns the opening plans: stages of even load on equal numbers of devices in order, for every
/// number of stages that divides the devices, or with the pinned number of replicas. They give the
/// search its first incumbent.
std::vector<search::Candidate> DapplePlanner::opening() const {
  std::vector<search::Candidate> candidates;
  const std::int32_t devices = context_.topology.device_count();
  const auto layers = static_cast<std::int32_t>(context_.profile.layers.size());
  const CostModel costs(context_.profile, context_.topology);
  const std::optional<std::int32_t> pinned = context_.options.pins.replicas;
  const std::vector<std::int32_t> counts = opening_stage_counts();
  std::vector<std::pair<std::int64_t, std::int32_t>> shapes;  // size of micro-batch, stages
  for (const std::int64_t size : micro_batch_sizes_) {
    for (const std::int32_t stages : counts) {
      if (pinned.value_or(devices / stages) <= size) shapes.emplace_back(size, stages);
    }
  }
  thin_out(shapes, kOpeningWork / (devices + layers));
  std::int64_t size_of_table = 0;
  for (const auto& [size, stages] : shapes) {
    // Shapes are sorted by micro-batch size, so only one table is needed at a time.
    if (std::exchange(size_of_table, size) != size) costs.forget_tables();
    search::Candidate candidate = even_candidate(costs, size, stages);
    if (is_allowed(candidate)) candidates.push_back(std::move(candidate));
  }
  bound_opening(candidates);
  return candidates;
}

/// Returns the numbers of stages of the opening plans: those that divide the devices or, with a
/// pinned number of replicas, the largest possible number and its halves, the most first, as they
/// need the least memory.
std::vector<std::int32_t> DapplePlanner::opening_stage_counts() const {
  const std::int32_t devices = context_.topology.device_count();
  const auto layers = static_cast<std::int32_t>(context_.profile.layers.size());
  const std::optional<std::int32_t> pinned = context_.options.pins.replicas;
  std::vector<std::int32_t> counts;
  if (!pinned) {
    for (std::int32_t stages = 1; stages <= std::min(devices, layers); ++stages) {
      if (devices % stages == 0 && stages == context_.options.pins.stages.value_or(stages)) {
        counts.push_back(stages);
      }
    }
    return counts;
  }
  const std::int32_t most = std::min(devices / *pinned, layers);
  for (std::int32_t stages = context_.options.pins.stages.value_or(most);
       stages >= 1 && stages <= most; stages /= 2) {
    counts.push_back(stages);
    if (context_.options.pins.stages) break;
  }
  return counts;
}

/// Returns stages of even load on equal numbers of devices in order.
search::Candidate DapplePlanner::even_candidate(const CostModel& costs,
                                                std::int64_t micro_batch_size,
                                                std::int32_t stages) const {
  const LayerTable& table =
      costs.table(micro_batch_size, context_.topology.device(DeviceIndex{0}).kind);
  const std::int32_t replicas =
      context_.options.pins.replicas.value_or(context_.topology.device_count() / stages);
  search::Candidate candidate{.micro_batch_size = micro_batch_size,
                              .gradients = usual_gradients(context_.options),
                              .stages = {},
                              .bound = {}};
  std::int32_t device = 0;
  for (const LayerRange range : search::even_split(table, costs.layer_count(), stages)) {
    StagePlan& stage = candidate.stages.emplace_back();
    stage.layers = range;
    stage.recompute = context_.options.pins.recompute.value_or(false);
    for (std::int32_t r = 0; r < replicas; ++r) stage.devices.push_back(DeviceIndex{device++});
  }
  return candidate;
}

/// Bounds the opening candidates; after a stop, by nothing.
void DapplePlanner::bound_opening(std::vector<search::Candidate>& candidates) const {
  parallel_for(candidates.size(), context_.options.threads, [&](std::size_t i) {
    if (!is_stopped_()) candidates[i].bound = evaluator_.bound(candidates[i]);
  });
}

/// Searches narrowly, for a good incumbent, and then thoroughly.
void DapplePlanner::search_at_both_widths() {
  const SearchSize size{.layers = static_cast<std::int64_t>(context_.profile.layers.size()),
                        .devices = context_.topology.device_count()};
  // With many devices the first search would take as long as the main one and find less.
  const bool has_narrow = size.devices <= kManyDevices;
  const bool has_main = !has_narrow || context_.dapple_steps != DappleSteps::NarrowSearch;
  for (const auto& effort : {scout, thorough}) {
    if (is_stopped_() || !(effort == scout ? has_narrow : has_main)) continue;
    simulate_best_first(search(effort(size, incumbent())), action_budget_);
  }
}

std::vector<search::Candidate> DapplePlanner::search(search::SearchEffort effort) {
  std::vector<search::SearchOutcome> outcomes(micro_batch_sizes_.size() * gradients_.size());
  effort.limits = {
      .work = std::max(kSearchWork / static_cast<std::int64_t>(outcomes.size()), kLeastSearchWork),
      .kept = {context_.options.memory_limit.count / 2 / kSearchesSideBySide},
      .should_stop = [this] { return is_stopped_(); }};
  const int threads = std::min(context_.options.threads, kSearchesSideBySide);
  parallel_for(outcomes.size(), threads, [&](std::size_t i) {
    const CostModel costs(context_.profile, context_.topology);
    outcomes[i] = search::search_dapple(
        costs,
        {.global_batch_size = context_.options.global_batch_size,
         .micro_batch_size = micro_batch_sizes_[i % micro_batch_sizes_.size()],
         .gradients = gradients_[i / micro_batch_sizes_.size()],
         .ignore_memory = context_.options.ignore_memory,
         .gpipe = context_.options.family == ScheduleFamily::GPipe,
         .pins = context_.options.pins},
        effort);
  });
  std::vector<search::Candidate> candidates;
  for (search::SearchOutcome& outcome : outcomes) {
    record_.states += outcome.states;
    narrowed_ += outcome.narrowed;
    for (search::Candidate& candidate : outcome.candidates) {
      if (is_allowed(candidate)) candidates.push_back(std::move(candidate));
    }
  }
  if (context_.options.pins.in_order) {
    parallel_for(candidates.size(), context_.options.threads, [&](std::size_t i) {
      if (put_in_order(candidates[i].stages)) candidates[i].bound = evaluator_.bound(candidates[i]);
    });
  }
  std::stable_sort(
      candidates.begin(), candidates.end(),
      [](const search::Candidate& a, const search::Candidate& b) { return a.bound < b.bound; });
  record_.candidates += static_cast<std::int64_t>(candidates.size());
  tell_progress();
  return candidates;
}

/// Refines the depths of the best few plans.
void DapplePlanner::refine_best() {
  // The exact search refines depths better, where this is only its start.
  const bool is_start =
      context_.options.planner == PlannerKind::Exact && !context_.options.baselines;
  std::vector<Score> refined(is_start || is_stopped_() ? 0 : kept_.size());
  const auto bytes_of = [&](const SimulatedPlan& some) {
    return simulation_bytes(some, context_.options);
  };
  const int threads = threads_with_room(kept_, bytes_of, context_.options);
  parallel_for(refined.size(), threads, [&](std::size_t i) {
    refined[i] = evaluator_.refine(kept_[i], action_budget_ / kRefinementPart);
  });
  for (const Score& result : refined) account(result);
  std::stable_sort(kept_.begin(), kept_.end(), better);
}

/// Simulates candidates in simulation order until `budget` actions are spent in total. Candidates
/// that take long to simulate come last, and only until there is a plan.
void DapplePlanner::simulate_best_first(const std::vector<search::Candidate>& candidates,
                                        std::int64_t budget) {
  std::vector<std::size_t> order = simulation_order(candidates);
  const auto first_long =
      std::stable_partition(order.begin(), order.end(),
                            [&](std::size_t position) { return !is_long(candidates[position]); });
  const auto count_short = static_cast<std::size_t>(first_long - order.begin());
  std::size_t first = 0;
  std::size_t last_gain = 0;  // behind the candidates that gave the fastest plan
  for (std::size_t next = 0; first < order.size() && !is_stopped_(); first = next) {
    const bool is_short = first < count_short;
    if (is_short ? actions_ > budget : !kept_.empty()) break;
    if (may_end_without_gain() && first - last_gain >= kMostWithoutGain) break;
    next = is_short ? std::min(first + kBatch, count_short) : first + 1;
    const Duration before = incumbent();
    simulate_side_by_side(candidates, std::span(order).subspan(first, next - first));
    if (incumbent() < before) last_gain = next;
  }
  if (is_stopped_()) return;
  for (; first < order.size(); ++first) {
    if (candidates[order[first]].bound < incumbent()) ++not_simulated_;
  }
}

void DapplePlanner::simulate_side_by_side(const std::vector<search::Candidate>& candidates,
                                          std::span<const std::size_t> positions) {
  const Duration to_beat = incumbent();
  if (std::all_of(positions.begin(), positions.end(),
                  [&](std::size_t position) { return candidates[position].bound >= to_beat; })) {
    return;
  }
  std::vector<Score> scores(positions.size());
  const auto bytes_of = [&](std::size_t position) {
    return simulation_bytes(candidates[position], context_.options);
  };
  const int threads = threads_with_room(positions, bytes_of, context_.options);
  parallel_for(positions.size(), threads, [&](std::size_t i) {
    scores[i] = evaluator_.score(candidates[positions[i]], positions[i], to_beat,
                                 action_budget_ / kCandidatePart);
  });
  for (const Score& result : scores) account(result);
  std::stable_sort(kept_.begin(), kept_.end(), better);
  if (kept_.size() > 2 * kRefined) kept_.resize(2 * kRefined);
  tell_progress();
}

/// Returns about how long an iteration of an opening plan takes: its slowest stage for every
/// micro-batch, and once more for every other stage.
Duration DapplePlanner::estimate(const search::Candidate& candidate,
                                 const LayerTable& table) const {
  Duration slowest;
  for (const StagePlan& stage : candidate.stages) {
    const Duration alone = table.least_forward(stage.layers) + table.least_backward(stage.layers);
    slowest = std::max(slowest, Duration{alone.ns / replicas_of(stage)});
  }
  const std::int64_t passes = context_.options.global_batch_size / candidate.micro_batch_size +
                              std::ssize(candidate.stages) - 1;
  const Wide whole = Wide{slowest.ns} * passes;
  return whole < Duration::infinite().ns ? Duration{static_cast<std::int64_t>(whole)}
                                         : Duration::infinite();
}

/// Makes a plan after a stop: the one of least estimate that fits, of those that are simulated
/// quickly, or of the others the one that is simulated the most quickly, at the first depths that
/// fit. It is the same plan whenever the stop comes, and is made also where there are others,
/// unless one of these is as fast as its bound, so that a later stop does not leave a slower plan.
void DapplePlanner::simulate_first_choice(const std::vector<search::Candidate>& candidates) {
  // About as many flows as are simulated in a tenth of a second.
  constexpr std::int64_t kQuickWork = 500'000;
  const auto work_of = [&](const search::Candidate& candidate) {
    std::int64_t of_micro_batch = 2 * static_cast<std::int64_t>(candidate.stages.size());
    for (std::size_t s = 1; s < candidate.stages.size(); ++s) {
      // The replicas on both sides of each boundary send to one another.
      of_micro_batch += static_cast<std::int64_t>(candidate.stages[s - 1].devices.size() +
                                                  candidate.stages[s].devices.size());
    }
    return of_micro_batch * (context_.options.global_batch_size / candidate.micro_batch_size);
  };
  const CostModel costs(context_.profile, context_.topology);
  std::int64_t size_of_table = 0;
  std::vector<std::tuple<std::int64_t, Duration, std::size_t>> order;  // work, estimate, position
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    // Candidates are sorted by micro-batch size.
    const std::int64_t size = candidates[i].micro_batch_size;
    if (std::exchange(size_of_table, size) != size) costs.forget_tables();
    const LayerTable& table = costs.table(size, context_.topology.device(DeviceIndex{0}).kind);
    const std::int64_t work = work_of(candidates[i]);
    order.emplace_back(work <= kQuickWork ? 0 : work, estimate(candidates[i], table), i);
  }
  std::sort(order.begin(), order.end());
  const CandidateEvaluator patient(context_);
  for (const auto& [work, least, position] : order) {
    const search::Candidate& candidate = candidates[position];
    if (!kept_.empty() && candidate.bound >= kept_.front().iteration) continue;
    const Duration to_beat = kept_.empty() ? Duration::infinite() : kept_.front().iteration;
    const Score score = patient.score(candidate, position, to_beat, 1);
    account(score);
    if (score.simulated > 0) break;
  }
  std::stable_sort(kept_.begin(), kept_.end(), better);
  tell_progress();
}

bool DapplePlanner::is_allowed(const search::Candidate& candidate) const {
  const Pins& pins = context_.options.pins;
  if (pins.stages && *pins.stages != static_cast<std::int32_t>(candidate.stages.size())) {
    return false;
  }
  return std::all_of(candidate.stages.begin(), candidate.stages.end(), [&](const StagePlan& stage) {
    return pins.allow(stage.layers, static_cast<std::int64_t>(stage.devices.size()),
                      stage.recompute);
  });
}

/// Whether a single simulation takes more than the budget of one candidate.
bool DapplePlanner::is_long(const search::Candidate& candidate) const {
  return least_actions(candidate, context_.options.global_batch_size) >
         action_budget_ / kCandidatePart;
}

void DapplePlanner::account(const Score& score) {
  actions_ += score.actions;
  record_.simulated += score.simulated;
  keep_in(context_.pool, score);
  if (!score.best.feasible()) return;
  kept_.push_back(score.best);
}

void DapplePlanner::tell_progress() {
  if (context_.progress == nullptr) return;
  context_.progress->update(
      {.states = record_.states,
       .candidates = record_.candidates,
       .simulated = record_.simulated,
       .best = kept_.empty() ? std::nullopt : std::optional(kept_.front().iteration),
       .bound = std::nullopt});
}

SearchRecord DapplePlanner::record() const {
  SearchRecord record = record_;
  record.planner = kDapplePlanner;
  record.complete = false;
  record.searched = dapple_dimensions(further_dimensions(context_.options, context_.topology));
  for (std::string& pinned : cuts_of_pins(context_.options.pins, context_.profile)) {
    record.cut.push_back(std::move(pinned));
  }
  record.cut.push_back(cut_narrowed(narrowed_));
  record.cut.emplace_back(kCutPolicies);
  if (context_.topology.device_count() > kFewDevices) record.cut.emplace_back(kCutReplicaCounts);
  if (not_simulated_ > 0) record.cut.push_back(cut_not_simulated(not_simulated_));
  return record;
}

}  // namespace

DapplePlans plan_by_dapple(const PlanningContext& context) {
  return DapplePlanner(context).run();
}

std::optional<BaselinePlan> baseline_of(const DapplePlans& dapple, const PlanningContext& context) {
  if (dapple.best.empty()) return std::nullopt;
  const SimulatedPlan& best = dapple.best.front();
  return as_baseline(*std::rbegin(kBaselineNames), best.plan, best.iteration, context);
}

}  // namespace dapple::planner
