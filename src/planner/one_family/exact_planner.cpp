#include "planner/one_family/exact_planner.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <span>
#include <utility>

#include "dapple/core/parallel.h"
#include "dapple/plan/optimality.h"
#include "dapple/plan/record_text.h"
#include "dapple/planner/candidates/depth_search.h"
#include "dapple/planner/candidates/plan_pool.h"
#include "dapple/planner/request/planner_options.h"
#include "dapple/planner/request/search_limits.h"
#include "dapple/search/exact/exact_search.h"
#include "dapple/search/exact/nic_load_bound.h"
#include "planner/candidates/threshold_accepting.h"
#include "planner/one_family/diagram_planner.h"
#include "planner/request/micro_batches.h"
#include "planner/request/search_problems.h"
#include "planner/request/stop_question.h"

namespace dapple::planner {
namespace {

bool is_large(const PlanningContext& context) {
  const auto layers = static_cast<std::int64_t>(context.profile.layers.size());
  return layers * context.topology.device_count() > kSearchLimits.large;
}

std::int64_t completion_steps(const PlanningContext& context) {
  return is_large(context) ? kSearchLimits.completion_steps_of_large
                           : kSearchLimits.completion_steps;
}

std::int64_t all_completion_steps(const PlanningContext& context) {
  return is_large(context) ? kSearchLimits.all_completion_steps_of_large
                           : kSearchLimits.all_completion_steps;
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
  explicit ExactPlanner(const PlanningContext& context)
      : context_(context),
        is_stopped_(context.progress),
        evaluator_(context, [this] { return is_stopped_(); }) {}

  ExactPlans run(KnownPlans known);

 private:
  // The phases of a run, and their steps.
  void make_searches();
  void raise_bounds(const std::vector<Duration>& known);
  void prepare();
  bool has_unsearched() const;
  void search_and_simulate();
  void raise_bound_of_unsearched();
  bool advance_partial_plans(Duration enough);
  void raise_bounds_by_nics();
  void raise_bounds_by_nics(const std::vector<search::SearchProblem>& problems, std::int64_t steps,
                            std::vector<Duration>& bounds);
  void advance();
  std::vector<search::Candidate> take_batch();
  void simulate(const std::vector<search::Candidate>& candidates);
  void settle_open_candidates();
  bool refine_depths(std::size_t count);
  void exhaust_depths(std::int64_t budget);
  std::size_t begin_depths(std::size_t count);
  void threshold_accepting();
  bool threshold_accepting(std::span<const SimulatedPlan> starts);

  void account(const Score& score);
  void keep_best();
  void sort_open_candidates();

  Duration best() const { return best_.empty() ? Duration::infinite() : best_.front().iteration; }
  Duration threshold() const { return context_.threshold(best()); }
  Duration bound() const;
  Duration bound_of_unsearched() const;
  Duration bound_of_untried() const;
  Duration bound_anywhere() const;
  std::int64_t global_batch_size() const { return context_.options.global_batch_size; }

  bool covers_allowed_placements() const;
  bool is_spent() const;
  bool is_search_spent() const;
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
  void add_cuts(SearchRecord& record) const;

  const PlanningContext context_;
  StopQuestion is_stopped_;
  CandidateEvaluator evaluator_;
  // Sorted by bucket size, then micro-batch size.
  std::vector<std::unique_ptr<search::ExactSearch>> searches_;
  // The best few plans, best first.
  std::vector<SimulatedPlan> best_;
  std::vector<OpenCandidate> open_candidates_;
  SearchRecord record_;
  std::int64_t actions_ = 0;
  std::int64_t actions_of_last_batch_ = 0;
  std::size_t order_ = 0;
  std::int64_t work_of_completion_ = 0;
  // Whether more is known of the problems than the searches have proven.
  bool are_bounded_ = false;
  // The part of the budgets to take.
  std::int64_t part_ = 1;
  bool has_nic_bounds_ = false;
  // The bytes kept by all candidates that were left unsettled.
  Bytes kept_of_open_candidates_;
};

ExactPlans ExactPlanner::run(KnownPlans known) {
  best_ = std::move(known.best);
  part_ = known.part;
  make_searches();
  raise_bounds(known.bounds);
  prepare();
  if (known.may_use_diagrams && has_unsearched() && !is_stopped_()) {
    ExactPlans plans = plan_by_diagrams(context_, best_);
    best_ = plans.best;
    raise_bounds(plans.bounds);
    part_ = kSearchLimits.part_after_diagrams;
    if (bound_anywhere() >= threshold() || is_stopped_()) return plans;
    record_.states += plans.record.states;
    record_.candidates += plans.record.candidates;
    record_.simulated += plans.record.simulated;
  }
  search_and_simulate();
  raise_bound_of_unsearched();
  settle_open_candidates();
  return {.best = best_, .record = record(), .lower_bound = bound_anywhere()};
}

/// Whether some search, which may hold a faster plan, would take too long.
bool ExactPlanner::has_unsearched() const {
  return std::any_of(searches_.begin(), searches_.end(), [&](const auto& search) {
    return !search->is_prepared() && search->bound() < threshold();
  });
}

void ExactPlanner::make_searches() {
  record_.cut = micro_batch_sizes(context_.options).cut;
  for (const search::SearchProblem& problem : search_problems(context_)) {
    searches_.push_back(
        std::make_unique<search::ExactSearch>(context_.profile, context_.topology, problem));
  }
}

/// Raises the bounds of the searches to those that are known of their problems, if there are any.
void ExactPlanner::raise_bounds(const std::vector<Duration>& known) {
  for (std::size_t i = 0; i < known.size(); ++i) searches_[i]->raise_bound(known[i], threshold());
  are_bounded_ = are_bounded_ || !known.empty();
}

/// Computes the completion bounds of the searches that are not closed, within what is left of the
/// steps and the memory for all of them.
void ExactPlanner::prepare() {
  const std::int64_t all_steps = all_completion_steps(context_) / part_;
  for (std::size_t first = 0; first < searches_.size();
       first += kSearchLimits.completions_in_parallel) {
    const std::size_t count =
        std::min(kSearchLimits.completions_in_parallel, searches_.size() - first);
    const Spent spent = spent_by_searches();
    // Most of the later searches are closed early, so these may take more than their share.
    const auto part = static_cast<std::int64_t>(kSearchLimits.completions_in_parallel);
    const search::Allowance::Limits limits{
        .work = std::min(completion_steps(context_) / part_, (all_steps - spent.work) / part),
        .kept = {(context_.options.memory_limit.count / kSearchLimits.part_of_completion -
                  spent.kept.count) /
                 part},
        .should_stop = [this] { return is_stopped_(); }};
    parallel_for(count, context_.options.threads, [&](std::size_t i) {
      search::ExactSearch& search = *searches_[first + i];
      if (!are_bounded_ || search.bound() < threshold()) search.prepare(threshold(), limits);
    });
  }
  work_of_completion_ = spent_by_searches().work;
}

/// Simulates candidates by rising bound until the bound meets the threshold, the work is spent, or
/// the searches have no more candidates.
void ExactPlanner::search_and_simulate() {
  while (bound() < threshold() && !is_spent() && !is_stopped_()) {
    advance();
    const std::vector<search::Candidate> batch = take_batch();
    const std::int64_t before = actions_;
    simulate(batch);
    actions_of_last_batch_ = actions_ - before;
    tell_progress();
    if (spent_by_searches().states > kSearchLimits.states_before_nics) raise_bounds_by_nics();
    const bool is_stuck =
        batch.empty() && std::all_of(searches_.begin(), searches_.end(),
                                     [](const auto& search) { return search->is_exhausted(); });
    if (is_stuck) break;
  }
  if (bound_anywhere() < threshold()) raise_bounds_by_nics();
}

/// Goes on with the searches where the work of simulations is spent, as long as partial plans limit
/// the bound, and neither open candidates nor those that wait. It gains nothing where other
/// placements than those that are tried limit what is proven.
void ExactPlanner::raise_bound_of_unsearched() {
  if (!covers_allowed_placements()) return;
  Duration enough = threshold();
  for (const OpenCandidate& some : open_candidates_) {
    enough = std::min(enough, some.candidate.bound);
  }
  while (!is_search_spent() && !is_stopped_() && advance_partial_plans(enough)) tell_progress();
}

/// Tries more stages in the searches whose bound is that of partial plans and below `enough`,
/// however many candidates wait. Returns whether there is such a search.
bool ExactPlanner::advance_partial_plans(Duration enough) {
  const Duration limit = threshold();
  std::vector<search::ExactSearch*> limiting;
  for (const auto& search : searches_) {
    const Duration to_reach = std::min(enough, search->next_bound().value_or(enough));
    if (!search->is_exhausted() && search->bound() < to_reach) limiting.push_back(search.get());
  }
  parallel_for(limiting.size(), context_.options.threads, [&](std::size_t i) {
    limiting[i]->advance(limit, {.candidates = std::numeric_limits<std::size_t>::max(),
                                 .states = kSearchLimits.states_between_batches});
  });
  return !limiting.empty();
}

/// Raises the bounds of searches that are open to what the NICs of each server send, once. Rounds
/// take more and more steps, as long as the one before has raised some bound. In large problems the
/// stages alone, which steps do not count, would take minutes.
void ExactPlanner::raise_bounds_by_nics() {
  if (std::exchange(has_nic_bounds_, true) || is_large(context_)) return;
  const std::vector<search::SearchProblem> problems = search_problems(context_);
  std::vector<Duration> bounds(problems.size());
  for (std::int64_t steps = kSearchLimits.nic_steps; steps <= kSearchLimits.last_nic_steps;
       steps *= kSearchLimits.nic_steps_growth) {
    const std::vector<Duration> before = bounds;
    raise_bounds_by_nics(problems, steps, bounds);
    if (bounds == before) break;
  }
  for (OpenCandidate& some : open_candidates_) {
    search::Candidate& candidate = some.candidate;
    for (std::size_t i = 0; i < problems.size(); ++i) {
      if (problems[i].micro_batch_size == candidate.micro_batch_size &&
          problems[i].gradients == candidate.gradients) {
        candidate.bound = std::max(candidate.bound, bounds[i]);
      }
    }
  }
}

/// Fills in the bounds that are zero, of searches that are open, as far as the steps suffice.
void ExactPlanner::raise_bounds_by_nics(const std::vector<search::SearchProblem>& problems,
                                        std::int64_t steps, std::vector<Duration>& bounds) {
  const Duration limit = threshold();
  const search::Allowance::Limits limits{
      .work = steps,
      .kept = {context_.options.memory_limit.count / kSearchLimits.part_of_completion /
               std::ssize(searches_)},
      .should_stop = [this] { return is_stopped_(); }};
  parallel_for(problems.size(), context_.options.threads, [&](std::size_t i) {
    // The stages of a problem alone may take a while.
    if (is_stopped_() || bounds[i] > Duration{} || searches_[i]->bound_anywhere() >= limit) return;
    bounds[i] =
        search::nic_load_bound(context_.profile, context_.topology, problems[i], limit, limits);
    searches_[i]->raise_bound(bounds[i], limit);
  });
}

/// Lets every search try more stages, until it has a batch of candidates. Where the simulations of
/// the last batch took as long as trying many stages, searches go on so that the candidates with
/// the least bounds of all come next, as far as these prove anything.
void ExactPlanner::advance() {
  const Duration limit = threshold();
  const std::int64_t share = kSearchLimits.round / static_cast<std::int64_t>(searches_.size());
  parallel_for(searches_.size(), context_.options.threads, [&](std::size_t i) {
    searches_[i]->advance(limit, {.candidates = kSearchLimits.batch,
                                  .states = std::min(kSearchLimits.states_between_batches, share)});
  });
  const std::int64_t last =
      spent_by_searches().states + actions_of_last_batch_ / kSearchLimits.actions_per_state;
  if (actions_of_last_batch_ < kSearchLimits.states_between_batches) return;
  if (!covers_allowed_placements()) return;
  while (spent_by_searches().states < last && !is_stopped_() && advance_partial_plans(limit)) {}
}

/// Takes the waiting candidates with the least bounds.
std::vector<search::Candidate> ExactPlanner::take_batch() {
  std::vector<search::Candidate> batch;
  while (batch.size() < kSearchLimits.batch) {
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

/// Simulates the candidates. Those that may be faster at other depths stay open; a new best plan
/// has its depths refined.
void ExactPlanner::simulate(const std::vector<search::Candidate>& candidates) {
  const Duration before = best();
  std::vector<Score> scores(candidates.size());
  const auto bytes_of = [&](const search::Candidate& some) {
    return simulation_bytes(some, context_.options);
  };
  const int threads = threads_with_room(candidates, bytes_of, context_.options);
  parallel_for(candidates.size(), threads, [&](std::size_t i) {
    scores[i] = evaluator_.score(candidates[i], order_ + i, before);
  });
  for (std::size_t i = 0; i < scores.size(); ++i) {
    account(scores[i]);
    if (scores[i].is_settled) continue;
    open_candidates_.push_back(
        {.candidate = candidates[i], .order = order_ + i, .is_improved = false, .depths = nullptr});
    open_candidates_.back().candidate.bound = scores[i].bound;
    kept_of_open_candidates_ += size_of(candidates[i]);
  }
  order_ += candidates.size();
  keep_best();
  if (best() == before) {
    // A candidate with deep stages may be the fastest though the depths that were tried are poor.
    if (!best_.empty() && is_deep(best_.front().plan)) refine_depths(1);
    return;
  }
  account(evaluator_.refine(best_.front(), kSearchLimits.refinement_of_best));
  std::stable_sort(best_.begin(), best_.end(), better);
}

/// Improves the best plan and raises the bound by searching the depths of the candidates that are
/// still open, the cheaper methods first.
void ExactPlanner::settle_open_candidates() {
  const std::int64_t last = actions_ + kSearchLimits.refinement / part_;
  const auto is_open = [&] { return bound() < threshold() && !is_stopped_(); };
  while (is_open() && actions_ < last && refine_depths(kSearchLimits.batch))
    exhaust_depths(kSearchLimits.exhaustion_between_refinements / part_);
  if (is_open()) threshold_accepting();
  if (is_open()) exhaust_depths(kSearchLimits.exhaustion / part_);
  sort_open_candidates();
}

/// Refines the depths of up to `count` open candidates, those with the least bounds first. Returns
/// whether there were any.
bool ExactPlanner::refine_depths(std::size_t count) {
  sort_open_candidates();
  std::vector<OpenCandidate*> chosen;
  for (OpenCandidate& some : open_candidates_) {
    if (some.candidate.bound >= threshold() || chosen.size() == count) break;
    if (!some.is_improved) chosen.push_back(&some);
  }
  std::vector<Score> scores(chosen.size());
  const auto bytes_of = [&](const OpenCandidate* some) {
    return simulation_bytes(some->candidate, context_.options);
  };
  const int threads = threads_with_room(chosen, bytes_of, context_.options);
  parallel_for(chosen.size(), threads, [&](std::size_t i) {
    scores[i] = evaluator_.refine_depths(chosen[i]->candidate, chosen[i]->order,
                                         kSearchLimits.refinement_of_one);
    chosen[i]->is_improved = true;
  });
  for (const Score& score : scores) account(score);
  keep_best();
  tell_progress();
  return !chosen.empty();
}

/// Searches all depths of the open candidates within the budget, those with the least bounds first,
/// until the bound is limited by plans that have not become candidates.
void ExactPlanner::exhaust_depths(std::int64_t budget) {
  const std::int64_t last = actions_ + budget;
  std::int64_t progress = actions_;
  while (actions_ < std::min(last, progress + kSearchLimits.stagnation / part_) && !is_stopped_()) {
    sort_open_candidates();
    const std::pair before{bound(), best()};
    const Duration enough = std::min(threshold(), bound_of_untried());
    const auto end =
        std::find_if(open_candidates_.begin(), open_candidates_.end(),
                     [&](const OpenCandidate& some) { return some.candidate.bound >= enough; });
    const std::size_t count = begin_depths(
        std::min(kSearchLimits.batch, static_cast<std::size_t>(end - open_candidates_.begin())));
    if (count == 0) return;
    std::vector<Score> scores(count);
    const auto bytes_of = [&](const OpenCandidate& some) {
      return simulation_bytes(some.candidate, context_.options);
    };
    const int threads =
        threads_with_room(std::span(open_candidates_).first(count), bytes_of, context_.options);
    const DepthSearch::SearchBudget budget_of_one{.enough = enough,
                                                  .actions = kSearchLimits.exhaustion_of_one};
    parallel_for(count, threads, [&, threshold = best()](std::size_t i) {
      scores[i] = open_candidates_[i].depths->advance(threshold, budget_of_one);
    });
    for (std::size_t i = 0; i < count; ++i) {
      Duration& bound = open_candidates_[i].candidate.bound;
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
  for (const OpenCandidate& some : open_candidates_) {
    if (some.depths != nullptr) kept += depth_search_bytes(some.candidate, global_batch_size());
  }
  std::size_t first_without = 0;
  for (std::size_t i = 0; i < count; ++i, ++first_without) {
    OpenCandidate& some = open_candidates_[i];
    if (some.depths != nullptr) continue;
    kept += depth_search_bytes(some.candidate, global_batch_size());
    if (kept > Bytes{context_.options.memory_limit.count / kSearchLimits.part_of_depths}) break;
    some.depths = evaluator_.depths_of(some.candidate, some.order);
  }
  return first_without;
}

/// Runs threshold accepting from the depths of the best few plans, in rounds: where no walk of a
/// round has improved on its start, walks from slower plans rarely do. A large problem has one
/// round.
void ExactPlanner::threshold_accepting() {
  const std::vector<SimulatedPlan> starts = best_;
  for (std::size_t first = 0; first < starts.size() && !is_stopped_();
       first += kSearchLimits.threshold_accepting_starts) {
    const std::size_t count =
        std::min(kSearchLimits.threshold_accepting_starts, starts.size() - first);
    const bool is_improved = threshold_accepting(std::span(starts).subspan(first, count));
    if (!is_improved || is_large(context_)) break;
  }
}

/// Returns whether a walk has found a faster plan than its start.
bool ExactPlanner::threshold_accepting(std::span<const SimulatedPlan> starts) {
  std::vector<Score> scores(starts.size());
  const auto bytes_of = [&](const SimulatedPlan& start) {
    return simulation_bytes(start, context_.options);
  };
  parallel_for(
      starts.size(), threads_with_room(starts, bytes_of, context_.options), [&](std::size_t i) {
        scores[i] =
            evaluator_.threshold_accepting(starts[i], kSearchLimits.threshold_accepting / part_);
      });
  bool is_improved = false;
  for (std::size_t i = 0; i < starts.size(); ++i) {
    account(scores[i]);
    is_improved = is_improved || better(scores[i].best, starts[i]);
  }
  keep_best();
  tell_progress();
  return is_improved;
}

void ExactPlanner::account(const Score& score) {
  actions_ += score.actions;
  record_.simulated += score.simulated;
  keep_in(context_.pool, score);
  if (!score.best.feasible()) return;
  best_.push_back(score.best);
}

void ExactPlanner::keep_best() {
  std::stable_sort(best_.begin(), best_.end(), better);
  if (best_.size() > kSearchLimits.batch) best_.resize(kSearchLimits.batch);
}

void ExactPlanner::sort_open_candidates() {
  std::erase_if(open_candidates_,
                [&](const OpenCandidate& some) { return some.candidate.bound >= best(); });
  std::stable_sort(open_candidates_.begin(), open_candidates_.end(),
                   [](const OpenCandidate& a, const OpenCandidate& b) {
                     return a.candidate.bound < b.candidate.bound;
                   });
}

/// Returns a lower bound on all plans with the placements that the searches enumerate, (C9) of
/// docs/bounds.md over all searches; candidates enter with the bounds of their open depths.
Duration ExactPlanner::bound() const {
  Duration least = std::min(best(), bound_of_unsearched());
  for (const OpenCandidate& some : open_candidates_) least = std::min(least, some.candidate.bound);
  return least;
}

/// Returns a lower bound on the plans that have not become candidates: the least of the searches'
/// bounds, (C9) of docs/bounds.md.
Duration ExactPlanner::bound_of_unsearched() const {
  Duration least = Duration::infinite();
  for (const auto& search : searches_) least = std::min(least, search->bound());
  return least;
}

/// Returns a lower bound on plans with any placement, (C9) of docs/bounds.md, which is what is
/// proven. The search itself follows bound(), which covers only the placements that it enumerates.
Duration ExactPlanner::bound_anywhere() const {
  return std::min(bound(), bound_of_untried());
}

/// Returns a lower bound on the plans that have not become candidates, with any placement.
Duration ExactPlanner::bound_of_untried() const {
  Duration least = Duration::infinite();
  for (const auto& search : searches_) least = std::min(least, search->bound_anywhere());
  return least;
}

/// Whether the searches try all placements that the pins allow.
bool ExactPlanner::covers_allowed_placements() const {
  return std::all_of(searches_.begin(), searches_.end(),
                     [](const auto& search) { return search->covers_allowed_placements(); });
}

bool ExactPlanner::is_spent() const {
  return actions_ > kSearchLimits.actions / part_ || is_search_spent();
}

/// Whether the searches have spent their work or their memory.
bool ExactPlanner::is_search_spent() const {
  const Spent spent = spent_by_searches();
  const bool is_all = searches_.front()->covers_all_placements();
  return spent.entries > kSearchLimits.partial_plans / part_ ||
         spent.states >
             (is_all ? kSearchLimits.states : kSearchLimits.states_of_some_placements) / part_ ||
         spent.work - work_of_completion_ > kSearchLimits.pairs / part_ ||
         spent.kept + kept_of_open_candidates_ >
             Bytes{context_.options.memory_limit.count / kSearchLimits.part_of_search};
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

void ExactPlanner::tell_progress() {
  if (context_.progress == nullptr) return;
  SearchProgress progress{.states = 0,
                          .candidates = record_.candidates,
                          .simulated = record_.simulated,
                          .best = std::nullopt,
                          .bound = bound_anywhere()};
  for (const auto& search : searches_) progress.states += search->states();
  if (!best_.empty()) progress.best = best();
  context_.progress->update(progress);
}

SearchRecord ExactPlanner::record() const {
  SearchRecord record = record_;
  record.planner = kExactPlanner;
  record.open = static_cast<std::int64_t>(open_candidates_.size());
  bool covers_all_placements = true;
  for (const auto& search : searches_) {
    record.states += search->states();
    record.kept += search->kept();
    record.open += search->open(best());
    covers_all_placements = covers_all_placements && search->covers_all_placements();
  }
  record.searched = exact_dimensions(covers_all_placements,
                                     further_dimensions(context_.options, context_.topology));
  add_cuts(record);
  record.complete = record.cut.empty();
  return record;
}

/// Adds what was left out of the space.
void ExactPlanner::add_cuts(SearchRecord& record) const {
  for (std::string& pinned : cuts_of_pins(context_.options.pins, context_.profile)) {
    record.cut.push_back(std::move(pinned));
  }
  if (context_.options.family == ScheduleFamily::GPipe) record.cut.emplace_back(kCutOrders);
  if (context_.topology.device_count() > search::ExactSearch::kMostDevices) {
    record.cut.push_back(cut_of_many_devices(search::ExactSearch::kMostDevices));
  } else if (const auto count = std::count_if(searches_.begin(), searches_.end(),
                                              [&](const auto& search) {
                                                return !search->is_prepared() &&
                                                       search->bound() < best();
                                              });
             count > 0 && !are_bounded_ && !is_stopped_()) {
    record.cut.push_back(cut_too_long(count, static_cast<std::int64_t>(searches_.size())));
  }
  if (!covers_allowed_placements()) {
    const auto anywhere = static_cast<double>(std::max<std::int64_t>(bound_anywhere().ns, 1));
    // The bound on all placements holds for those that were tried, too.
    const double rise = std::max(0.0, static_cast<double>(bound().ns) / anywhere - 1);
    record.cut.push_back(cut_placements(100 * rise));
  }
  const bool deals_untried =
      std::any_of(searches_.begin(), searches_.end(),
                  [](const auto& search) { return search->deals_untried(); });
  if (deals_untried) record.cut.emplace_back(kCutDealt);
}

}  // namespace

ExactPlans plan_exactly(const PlanningContext& context, KnownPlans known) {
  return ExactPlanner(context).run(std::move(known));
}

Duration bound_of_any_order(const PlanningContext& context, Duration most,
                            std::int64_t all_states) {
  std::vector<search::SearchProblem> problems = search_problems(context);
  const StopQuestion is_stopped(context.progress);
  const std::int64_t states = all_states / static_cast<std::int64_t>(problems.size());
  std::vector<Duration> bounds(problems.size());
  // The memory limit is divided by a fixed number, as the bound must not depend on the threads.
  const std::int64_t threads = kSearchLimits.completions_in_parallel;
  const std::int64_t all_steps =
      all_completion_steps(context) / static_cast<std::int64_t>(problems.size());
  parallel_for(problems.size(),
               std::min<int>(context.options.threads, kSearchLimits.completions_in_parallel),
               [&](std::size_t i) {
                 problems[i].any_order = true;
                 problems[i].may_deal = false;
                 search::ExactSearch search(context.profile, context.topology, problems[i]);
                 search.prepare(most, {.work = std::min(completion_steps(context), all_steps),
                                       .kept = {context.options.memory_limit.count /
                                                kSearchLimits.part_of_completion / threads},
                                       .should_stop = [&] { return is_stopped(); }});
                 const Bytes room{context.options.memory_limit.count /
                                  kSearchLimits.part_of_search / threads};
                 while (search.states() < states && search.work() < kSearchLimits.pairs &&
                        search.kept_bytes() < room && !search.is_exhausted() && !is_stopped()) {
                   search.advance(most, {.candidates = std::numeric_limits<std::size_t>::max(),
                                         .states = kSearchLimits.states_between_batches});
                 }
                 bounds[i] = search.bound_anywhere();
               });
  return std::min(most, *std::min_element(bounds.begin(), bounds.end()));
}

}  // namespace dapple::planner
