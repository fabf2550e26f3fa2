#include "planner/one_family/exact_planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <span>
#include <utility>

#include "dapple/core/parallel.h"
#include "dapple/planner/candidates/depth_search.h"
#include "dapple/search/exact/exact_search.h"
#include "planner/request/gradient_synchronizations.h"
#include "planner/request/micro_batches.h"
#include "planner/request/search_record.h"
#include "planner/request/stop_question.h"

namespace dapple::planner {
namespace {

/// The budgets of simulated actions and of stages tried; unlike time they are deterministic.
constexpr std::int64_t kActionBudget = 24'000'000;
constexpr std::int64_t kStateBudget = 20'000'000;
/// The budget of stages tried where not all placements are enumerated.
constexpr std::int64_t kStateBudgetOfMany = 4'000'000;
/// The number of partial plans that all searches together may keep in memory, and about how many
/// one round adds.
constexpr std::int64_t kKeptBudget = 2'500'000;
constexpr std::int64_t kRound = 400'000;
/// The actions for refining the depths of a new best plan.
constexpr std::int64_t kRefinementBudget = 2'000'000;
/// The actions, beyond the budget, for refining the depths of open candidates: of all together, and
/// of each.
constexpr std::int64_t kImprovementBudget = 24'000'000;
constexpr std::int64_t kImprovementOfOne = 1'000'000;
/// The actions for threshold accepting from one of the best plans.
constexpr std::int64_t kWalkOfOne = 3'000'000;
/// The actions, beyond the budget, for exhausting the depths of open candidates: in the end,
/// between refinements, and of one candidate in each round.
constexpr std::int64_t kSettlementBudget = 60'000'000;
constexpr std::int64_t kSettlementBetween = 3'000'000;
constexpr std::int64_t kSettlementOfOne = 200'000;
/// Exhausting depths ends after this many actions without a higher bound or a faster plan.
constexpr std::int64_t kStagnation = 20'000'000;
/// The number of candidates simulated in parallel, and the stages tried between two such batches in
/// each search; fixed, so that the outcome does not depend on the number of threads.
constexpr std::size_t kBatch = 8;
constexpr std::int64_t kStretch = 100'000;
/// The states for the bound of any order, over all micro-batch sizes.
constexpr std::int64_t kStateBudgetOfAnyOrder = 2'000'000;
/// A problem is large if its layers times devices exceed this; full completion bounds and threshold
/// accepting from all of the best plans would take minutes there.
constexpr std::int64_t kLarge = 65'536;
/// The work of computing completion bounds: for one search, and for all.
constexpr std::int64_t kFrontSteps = 600'000'000;
constexpr std::int64_t kFrontStepsOfLarge = 10'000'000;
constexpr std::int64_t kAllFrontSteps = 1'000'000'000;
constexpr std::int64_t kAllFrontStepsOfLarge = 250'000'000;
/// The pairs of stages that the bounds of partial plans may examine, over all searches.
constexpr std::int64_t kPairBudget = 2'000'000'000;
/// The number of searches whose completion bounds are computed in parallel; fixed, as they share
/// the work that is left.
constexpr std::size_t kFrontsSideBySide = 8;
/// The number of best plans from which threshold accepting starts in a large problem.
constexpr std::size_t kWalksOfLarge = 2;

bool is_large(const ModelProfile& profile, const Topology& topology) {
  const auto layers = static_cast<std::int64_t>(profile.layers.size());
  return layers * topology.device_count() > kLarge;
}

std::int64_t front_steps(const ModelProfile& profile, const Topology& topology) {
  return is_large(profile, topology) ? kFrontStepsOfLarge : kFrontSteps;
}

std::int64_t all_front_steps(const ModelProfile& profile, const Topology& topology) {
  return is_large(profile, topology) ? kAllFrontStepsOfLarge : kAllFrontSteps;
}

/// The fractions 1/n of the memory limit for completion functions, and for partial plans and open
/// candidates.
constexpr std::int64_t kPartOfFronts = 2;
constexpr std::int64_t kPartOfSearch = 2;
/// The fraction 1/n of the memory limit for all depth searches that have begun.
constexpr std::int64_t kPartOfDepths = 8;

/// Returns the search problems that the options ask for: by bucket size, then micro-batch size.
std::vector<search::SearchProblem> search_problems(const PlannerOptions& options,
                                                   const ModelProfile& profile) {
  std::vector<search::SearchProblem> problems;
  for (const GradientSynchronization& gradients : gradient_synchronizations(options, profile)) {
    for (const std::int64_t size : micro_batch_sizes(options).sizes) {
      problems.push_back({.global_batch_size = options.global_batch_size,
                          .micro_batch_size = size,
                          .gradients = gradients,
                          .ignore_memory = options.ignore_memory,
                          .gpipe = options.family == ScheduleFamily::GPipe,
                          .links_are_shared = options.contention == Contention::Shared,
                          .replicas = options.replicas,
                          .pins = options.pins});
    }
  }
  return problems;
}

/// A candidate that may be faster than the best plan at some depths.
struct OpenCandidate {
  // The bound of the candidate rises as more of its depths are excluded.
  search::Candidate candidate;
  std::size_t order = 0;
  bool is_improved = false;
  // The depth search, once it has begun.
  std::unique_ptr<DepthSearch> depths;
};

class ExactPlanner {
 public:
  ExactPlanner(const ModelProfile& profile, const Topology& topology, const PlannerOptions& options,
               Progress* progress)
      : profile_(profile),
        topology_(topology),
        options_(options),
        evaluator_(profile, topology, options_, [this] { return is_stopped_(); }),
        progress_(progress),
        is_stopped_(progress) {}

  ExactPlans run(std::vector<SimulatedPlan> known);

 private:
  void prepare();
  void advance();
  std::vector<search::Candidate> take_batch();
  void simulate(const std::vector<search::Candidate>& candidates);
  bool refine_depths();
  void threshold_accepting();
  std::size_t begin_depths(std::size_t count);
  void exhaust_depths(std::int64_t budget);
  void finish();
  void keep_best();
  void sort_unsettled();
  void account(const Score& score);
  std::int64_t global_batch_size() const { return options_.global_batch_size; }
  Duration best() const { return best_.empty() ? Duration{INT64_MAX} : best_.front().iteration; }
  // Plans whose bound is not below the threshold need not be examined to reach the requested gap.
  Duration threshold() const;
  Duration bound() const;
  Duration bound_anywhere() const;
  Duration bound_of_unsearched() const;
  bool is_spent() const;
  // What all searches have spent so far.
  struct Spent {
    std::int64_t states = 0;
    // Partial plans and completion functions.
    std::int64_t entries = 0;
    std::int64_t work = 0;
    Bytes kept;
  };
  Spent spent_by_searches() const;
  void tell_progress();
  SearchRecord record() const;

  const ModelProfile& profile_;
  const Topology& topology_;
  const PlannerOptions& options_;
  CandidateEvaluator evaluator_;
  Progress* progress_;
  StopQuestion is_stopped_;
  // Sorted by bucket size, then micro-batch size.
  std::vector<std::unique_ptr<search::ExactSearch>> searches_;
  // The best few plans, best first.
  std::vector<SimulatedPlan> best_;
  std::vector<OpenCandidate> unsettled_;
  SearchRecord record_;
  std::int64_t actions_ = 0;
  std::size_t order_ = 0;
  std::int64_t work_of_fronts_ = 0;
  // The bytes kept by all candidates that were left unsettled.
  Bytes kept_of_unsettled_;
};

Duration ExactPlanner::threshold() const {
  if (best_.empty()) return {INT64_MAX};
  return gap_threshold(best(), options_.target_gap);
}

/// Lower bound on the plans that have not become candidates.
Duration ExactPlanner::bound_of_unsearched() const {
  Duration least{INT64_MAX};
  for (const auto& search : searches_) least = std::min(least, search->bound());
  return least;
}

Duration ExactPlanner::bound() const {
  Duration least = std::min(best(), bound_of_unsearched());
  for (const OpenCandidate& some : unsettled_) least = std::min(least, some.candidate.bound);
  return least;
}

/// Lower bound on plans with any placement, which is what is proven. The search itself follows
/// bound(), which covers only the placements that it enumerates.
Duration ExactPlanner::bound_anywhere() const {
  Duration least = bound();
  for (const auto& search : searches_) least = std::min(least, search->bound_anywhere());
  return least;
}

bool ExactPlanner::is_spent() const {
  const Spent spent = spent_by_searches();
  const bool is_all = searches_.front()->covers_all_placements();
  return actions_ > kActionBudget || spent.entries > kKeptBudget ||
         spent.states > (is_all ? kStateBudget : kStateBudgetOfMany) ||
         spent.work - work_of_fronts_ > kPairBudget ||
         spent.kept + kept_of_unsettled_ > Bytes{options_.memory_limit.count / kPartOfSearch};
}

void ExactPlanner::prepare() {
  record_.cut = micro_batch_sizes(options_).cut;
  for (const search::SearchProblem& problem : search_problems(options_, profile_)) {
    searches_.push_back(std::make_unique<search::ExactSearch>(profile_, topology_, problem));
  }
  const std::int64_t all_steps = all_front_steps(profile_, topology_);
  for (std::size_t first = 0; first < searches_.size(); first += kFrontsSideBySide) {
    const std::size_t count = std::min(kFrontsSideBySide, searches_.size() - first);
    const Spent spent = spent_by_searches();
    // Most of the later searches are closed early, so these may take more than their share.
    const auto part = static_cast<std::int64_t>(kFrontsSideBySide);
    const search::Allowance::Limits limits{
        .work = std::min(front_steps(profile_, topology_), (all_steps - spent.work) / part),
        .kept = {(options_.memory_limit.count / kPartOfFronts - spent.kept.count) / part},
        .should_stop = [this] { return is_stopped_(); }};
    parallel_for(count, options_.threads,
                 [&](std::size_t i) { searches_[first + i]->prepare(threshold(), limits); });
  }
  work_of_fronts_ = spent_by_searches().work;
}

ExactPlanner::Spent ExactPlanner::spent_by_searches() const {
  Spent spent;
  for (const auto& search : searches_) {
    spent.states += search->states();
    spent.entries += search->kept();
    spent.work += search->work();
    spent.kept += search->kept_bytes();
  }
  return spent;
}

void ExactPlanner::advance() {
  const Duration limit = threshold();
  const std::int64_t share = kRound / static_cast<std::int64_t>(searches_.size());
  parallel_for(searches_.size(), options_.threads, [&](std::size_t i) {
    searches_[i]->advance(
        {.threshold = limit, .candidates = kBatch, .states = std::min(kStretch, share)});
  });
}

/// Takes the waiting candidates with the least bounds.
std::vector<search::Candidate> ExactPlanner::take_batch() {
  std::vector<search::Candidate> batch;
  while (batch.size() < kBatch) {
    search::ExactSearch* least = nullptr;
    for (const auto& search : searches_) {
      if (search->waiting() == 0) continue;
      if (least == nullptr || *search->next_bound() < *least->next_bound()) least = search.get();
    }
    if (least == nullptr) break;
    batch.push_back(least->take());
  }
  record_.candidates += static_cast<std::int64_t>(batch.size());
  return batch;
}

void ExactPlanner::account(const Score& score) {
  actions_ += score.actions;
  record_.simulated += score.simulated;
  if (!score.best.feasible()) return;
  best_.push_back(score.best);
}

void ExactPlanner::simulate(const std::vector<search::Candidate>& candidates) {
  const Duration before = best();
  std::vector<Score> scores(candidates.size());
  const auto bytes_of = [&](const search::Candidate& some) {
    return simulation_bytes(some, options_);
  };
  const int threads = threads_with_room(candidates, bytes_of, options_);
  parallel_for(candidates.size(), threads, [&](std::size_t i) {
    scores[i] = evaluator_.score(candidates[i], order_ + i, before);
  });
  for (std::size_t i = 0; i < scores.size(); ++i) {
    account(scores[i]);
    if (scores[i].is_settled) continue;
    unsettled_.push_back(
        {.candidate = candidates[i], .order = order_ + i, .is_improved = false, .depths = nullptr});
    unsettled_.back().candidate.bound = scores[i].bound;
    kept_of_unsettled_ += size_of(candidates[i]);
  }
  order_ += candidates.size();
  keep_best();
  if (best() == before) return;
  account(evaluator_.refine(best_.front(), kRefinementBudget));
  std::stable_sort(best_.begin(), best_.end(), better);
}

void ExactPlanner::keep_best() {
  std::stable_sort(best_.begin(), best_.end(), better);
  if (best_.size() > kBatch) best_.resize(kBatch);
}

void ExactPlanner::sort_unsettled() {
  std::erase_if(unsettled_,
                [&](const OpenCandidate& some) { return some.candidate.bound >= best(); });
  std::stable_sort(unsettled_.begin(), unsettled_.end(),
                   [](const OpenCandidate& a, const OpenCandidate& b) {
                     return a.candidate.bound < b.candidate.bound;
                   });
}

/// Refines the depths of some open candidates, those with the least bounds first. Returns whether
/// there were any.
bool ExactPlanner::refine_depths() {
  sort_unsettled();
  std::vector<OpenCandidate*> chosen;
  for (OpenCandidate& some : unsettled_) {
    if (some.candidate.bound >= threshold() || chosen.size() == kBatch) break;
    if (!some.is_improved) chosen.push_back(&some);
  }
  std::vector<Score> scores(chosen.size());
  const auto bytes_of = [&](const OpenCandidate* some) {
    return simulation_bytes(some->candidate, options_);
  };
  const int threads = threads_with_room(chosen, bytes_of, options_);
  parallel_for(chosen.size(), threads, [&](std::size_t i) {
    scores[i] = evaluator_.refine_depths(chosen[i]->candidate, chosen[i]->order, kImprovementOfOne);
    chosen[i]->is_improved = true;
  });
  for (const Score& score : scores) account(score);
  keep_best();
  tell_progress();
  return !chosen.empty();
}

/// Runs threshold accepting from the depths of the best few plans.
void ExactPlanner::threshold_accepting() {
  std::vector<SimulatedPlan> starts = best_;
  if (is_large(profile_, topology_)) starts.resize(std::min(starts.size(), kWalksOfLarge));
  std::vector<Score> scores(starts.size());
  const auto bytes_of = [&](const SimulatedPlan& start) {
    return simulation_bytes(start, options_);
  };
  parallel_for(starts.size(), threads_with_room(starts, bytes_of, options_), [&](std::size_t i) {
    scores[i] = evaluator_.threshold_accepting(starts[i], kWalkOfOne);
  });
  for (const Score& score : scores) account(score);
  keep_best();
  tell_progress();
}

/// Searches all depths of the open candidates within the budget, those with the least bounds first,
/// until the bound is limited by plans that have not become candidates.
void ExactPlanner::exhaust_depths(std::int64_t budget) {
  const std::int64_t last = actions_ + budget;
  std::int64_t progress = actions_;
  while (actions_ < std::min(last, progress + kStagnation) && !is_stopped_()) {
    sort_unsettled();
    const std::pair before{bound(), best()};
    const Duration enough = std::min(threshold(), bound_of_unsearched());
    const auto end =
        std::find_if(unsettled_.begin(), unsettled_.end(),
                     [&](const OpenCandidate& some) { return some.candidate.bound >= enough; });
    const std::size_t count =
        begin_depths(std::min(kBatch, static_cast<std::size_t>(end - unsettled_.begin())));
    if (count == 0) return;
    std::vector<Score> scores(count);
    const auto bytes_of = [&](const OpenCandidate& some) {
      return simulation_bytes(some.candidate, options_);
    };
    const int threads = threads_with_room(std::span(unsettled_).first(count), bytes_of, options_);
    const DepthSearch::Stretch stretch{
        .to_beat = best(), .enough = enough, .budget = kSettlementOfOne};
    parallel_for(count, threads,
                 [&](std::size_t i) { scores[i] = unsettled_[i].depths->advance(stretch); });
    for (std::size_t i = 0; i < count; ++i) {
      Duration& bound = unsettled_[i].candidate.bound;
      bound = std::max(bound, scores[i].bound);
      account(scores[i]);
    }
    keep_best();
    if (std::pair{bound(), best()} != before) progress = actions_;
    tell_progress();
  }
}

/// Begins the depth searches of the first `count` candidates while there is memory for them, and
/// returns how many of these candidates have one.
std::size_t ExactPlanner::begin_depths(std::size_t count) {
  Bytes kept;
  for (const OpenCandidate& some : unsettled_) {
    if (some.depths != nullptr) kept += depth_search_bytes(some.candidate, global_batch_size());
  }
  std::size_t first_without = 0;
  for (std::size_t i = 0; i < count; ++i, ++first_without) {
    OpenCandidate& some = unsettled_[i];
    if (some.depths != nullptr) continue;
    kept += depth_search_bytes(some.candidate, global_batch_size());
    if (kept > Bytes{options_.memory_limit.count / kPartOfDepths}) break;
    some.depths = evaluator_.depths_of(some.candidate, some.order);
  }
  return first_without;
}

/// Improves the best plan and raises the bound by searching depths, the cheaper methods first.
void ExactPlanner::finish() {
  const std::int64_t last = actions_ + kImprovementBudget;
  const auto is_open = [&] { return bound() < threshold() && !is_stopped_(); };
  while (is_open() && actions_ < last && refine_depths()) exhaust_depths(kSettlementBetween);
  if (is_open()) threshold_accepting();
  if (is_open()) exhaust_depths(kSettlementBudget);
  sort_unsettled();
}

void ExactPlanner::tell_progress() {
  if (progress_ == nullptr) return;
  SearchProgress progress{.states = 0,
                          .candidates = record_.candidates,
                          .simulated = record_.simulated,
                          .best = std::nullopt,
                          .bound = bound_anywhere()};
  for (const auto& search : searches_) progress.states += search->states();
  if (!best_.empty()) progress.best = best();
  progress_->update(progress);
}

ExactPlans ExactPlanner::run(std::vector<SimulatedPlan> known) {
  best_ = std::move(known);
  prepare();
  while (bound() < threshold() && !is_spent()) {
    if (is_stopped_()) break;
    advance();
    const std::vector<search::Candidate> batch = take_batch();
    simulate(batch);
    tell_progress();
    const bool is_stuck =
        batch.empty() && std::all_of(searches_.begin(), searches_.end(),
                                     [](const auto& search) { return search->is_exhausted(); });
    if (is_stuck) break;
  }
  finish();
  return {.best = best_, .record = record(), .lower_bound = bound_anywhere()};
}

SearchRecord ExactPlanner::record() const {
  SearchRecord record = record_;
  record.planner = kExactPlanner;
  record.open = static_cast<std::int64_t>(unsettled_.size());
  bool covers_all_placements = true;
  for (const auto& search : searches_) {
    record.states += search->states();
    record.kept += search->kept();
    record.open += search->open(best());
    covers_all_placements = covers_all_placements && search->covers_all_placements();
  }
  record.searched = exact_dimensions(options_, covers_all_placements);
  for (std::string& pinned : cuts_of_pins(options_.pins, profile_)) {
    record.cut.push_back(std::move(pinned));
  }
  if (options_.family == ScheduleFamily::GPipe) record.cut.emplace_back(kCutOrders);
  if (topology_.device_count() > search::ExactSearch::kMostDevices) {
    record.cut.push_back(cut_of_many_devices());
  } else if (const auto count = std::count_if(searches_.begin(), searches_.end(),
                                              [&](const auto& search) {
                                                return !search->is_prepared() &&
                                                       search->bound() < best();
                                              });
             count > 0 && !is_stopped_()) {
    record.cut.push_back(fmt::format(kCutTooLong, count, searches_.size()));
  }
  if (!covers_all_placements) {
    record.cut.push_back(
        fmt::format(kCutPlacements,
                    100 * (static_cast<double>(bound().ns) /
                               static_cast<double>(std::max<std::int64_t>(bound_anywhere().ns, 1)) -
                           1)));
  }
  record.complete = record.cut.empty();
  return record;
}

}  // namespace

ExactPlans plan_exactly(const ModelProfile& profile, const Topology& topology,
                        const PlannerOptions& options, std::vector<SimulatedPlan> known,
                        Progress* progress) {
  return ExactPlanner(profile, topology, options, progress).run(std::move(known));
}

Duration bound_of_any_order(const ModelProfile& profile, const Topology& topology,
                            const PlannerOptions& options, Duration most, Progress* progress) {
  std::vector<search::SearchProblem> problems = search_problems(options, profile);
  const StopQuestion is_stopped(progress);
  const std::int64_t states = kStateBudgetOfAnyOrder / static_cast<std::int64_t>(problems.size());
  std::vector<Duration> bounds(problems.size());
  // The memory limit is divided by a fixed number, as the bound must not depend on the threads.
  const std::int64_t threads = kFrontsSideBySide;
  const std::int64_t all_steps =
      all_front_steps(profile, topology) / static_cast<std::int64_t>(problems.size());
  parallel_for(
      problems.size(), std::min<int>(options.threads, kFrontsSideBySide), [&](std::size_t i) {
        problems[i].any_order = true;
        search::ExactSearch search(profile, topology, problems[i]);
        search.prepare(most, {.work = std::min(front_steps(profile, topology), all_steps),
                              .kept = {options.memory_limit.count / kPartOfFronts / threads},
                              .should_stop = [&] { return is_stopped(); }});
        const Bytes room{options.memory_limit.count / kPartOfSearch / threads};
        while (search.states() < states && search.work() < kPairBudget &&
               search.kept_bytes() < room && !search.is_exhausted() && !is_stopped()) {
          search.advance({.threshold = most,
                          .candidates = std::numeric_limits<std::size_t>::max(),
                          .states = kStretch});
        }
        bounds[i] = search.bound_anywhere();
      });
  return std::min(most, *std::min_element(bounds.begin(), bounds.end()));
}

}  // namespace dapple::planner
