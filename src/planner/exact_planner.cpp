#include "exact_planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>

#include "dapple/core/parallel.h"
#include "dapple/search/exact_search.h"
#include "micro_batches.h"

namespace dapple {
namespace {

/// Simulated actions, and stages tried, that a search may spend; deterministic, unlike time.
constexpr std::int64_t kActionBudget = 24'000'000;
constexpr std::int64_t kStateBudget = 20'000'000;
constexpr std::int64_t kStateBudgetOfMany = 4'000'000;  // where not all placements are looked at
/// Partial plans that all searches together keep in memory, and about as many as one round adds.
constexpr std::int64_t kKeptBudget = 2'500'000;
constexpr std::int64_t kRound = 400'000;
/// Of the actions, what improving the depths of one plan may take, and what trying all of one.
constexpr std::int64_t kRefinementBudget = 2'000'000;
constexpr std::int64_t kSettlementBudget = 20'000'000;
/// What may be spent beyond on improving candidates that are left open, and on one of them.
constexpr std::int64_t kImprovementBudget = 24'000'000;
constexpr std::int64_t kImprovementOfOne = 1'000'000;
/// Candidates simulated side by side, and per micro-batch size the stages tried in between; fixed,
/// so that the outcome does not depend on the threads.
constexpr std::size_t kBatch = 8;
constexpr std::int64_t kStretch = 100'000;

class ExactPlanner {
 public:
  ExactPlanner(const ModelProfile& profile, const Topology& topology, const PlannerOptions& options,
               Progress* progress)
      : profile_(profile),
        topology_(topology),
        options_(options),
        scorer_(profile, topology, options_),
        progress_(progress) {}

  ExactPlans run(std::vector<Scored> known);

 private:
  void prepare();
  void advance();
  std::vector<Candidate> take_batch();
  void simulate(const std::vector<Candidate>& candidates);
  void improve();
  void settle();
  void account(const Score& score);
  Duration best() const { return best_.empty() ? Duration{INT64_MAX} : best_.front().iteration; }
  /// Plans whose bound is not below it need not be looked at to reach the gap that is asked for.
  Duration threshold() const;
  Duration bound() const;
  bool is_spent() const;
  bool is_stopped();
  void tell_progress();
  SearchRecord record() const;

  const ModelProfile& profile_;
  const Topology& topology_;
  const PlannerOptions& options_;
  Scorer scorer_;
  Progress* progress_;
  std::mutex asking_;
  std::vector<std::unique_ptr<ExactSearch>> searches_;  // by micro-batch size
  std::vector<Scored> best_;                            // the best few, best first
  std::vector<Candidate> unsettled_;                    // some depths may make them faster
  SearchRecord record_;
  std::int64_t actions_ = 0;
  std::size_t order_ = 0;
};

Duration ExactPlanner::threshold() const {
  if (best_.empty()) return {INT64_MAX};
  const Wide allowed = Wide{best().ns} * options_.target_gap.billionths;
  return best() - Duration{divide_down(allowed, kOne.billionths)};
}

Duration ExactPlanner::bound() const {
  Duration least = best();
  for (const auto& search : searches_) least = std::min(least, search->bound());
  for (const Candidate& candidate : unsettled_) least = std::min(least, candidate.bound);
  return least;
}

bool ExactPlanner::is_spent() const {
  std::int64_t states = 0;
  std::int64_t kept = 0;
  for (const auto& search : searches_) {
    states += search->states();
    kept += search->kept();
  }
  const bool is_all = searches_.front()->covers_all_placements();
  return actions_ > kActionBudget || kept > kKeptBudget ||
         states > (is_all ? kStateBudget : kStateBudgetOfMany);
}

/// Searches ask side by side; the caller is asked by one of them at a time.
bool ExactPlanner::is_stopped() {
  const std::lock_guard lock(asking_);
  return progress_ != nullptr && progress_->should_stop();
}

void ExactPlanner::prepare() {
  MicroBatchSizes sizes = micro_batch_sizes(options_);
  record_.cut = std::move(sizes.cut);
  for (const std::int64_t size : sizes.sizes) {
    searches_.push_back(std::make_unique<ExactSearch>(
        profile_, topology_,
        SearchProblem{.global_batch_size = options_.global_batch_size,
                      .micro_batch_size = size,
                      .ignore_memory = options_.ignore_memory,
                      .gpipe = options_.family == ScheduleFamily::GPipe,
                      .links_are_shared = options_.contention == Contention::Shared,
                      .pins = options_.pins}));
  }
  parallel_for(searches_.size(), options_.threads, [&](std::size_t i) {
    searches_[i]->prepare(threshold(), [&] { return is_stopped(); });
  });
}

void ExactPlanner::advance() {
  const Duration limit = threshold();
  const std::int64_t share = kRound / static_cast<std::int64_t>(searches_.size());
  parallel_for(searches_.size(), options_.threads, [&](std::size_t i) {
    searches_[i]->advance(
        {.threshold = limit, .candidates = kBatch, .states = std::min(kStretch, share)});
  });
}

/// Those that wait with the least bounds.
std::vector<Candidate> ExactPlanner::take_batch() {
  std::vector<Candidate> batch;
  while (batch.size() < kBatch) {
    ExactSearch* least = nullptr;
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

void ExactPlanner::simulate(const std::vector<Candidate>& candidates) {
  const Duration before = best();
  std::vector<Score> scores(candidates.size());
  parallel_for(candidates.size(), options_.threads, [&](std::size_t i) {
    scores[i] = scorer_.score(candidates[i], order_ + i, before);
  });
  order_ += candidates.size();
  for (std::size_t i = 0; i < scores.size(); ++i) {
    account(scores[i]);
    if (scores[i].is_settled) continue;
    unsettled_.push_back(candidates[i]);
    unsettled_.back().bound = scores[i].bound;
  }
  std::stable_sort(best_.begin(), best_.end(), better);
  if (best_.size() > kBatch) best_.resize(kBatch);
  if (best() == before) return;
  account(scorer_.refine(best_.front(), kRefinementBudget));
  std::stable_sort(best_.begin(), best_.end(), better);
}

/// Looks for better depths of what is open, those with the least bounds first.
void ExactPlanner::improve() {
  std::stable_sort(unsettled_.begin(), unsettled_.end(),
                   [](const Candidate& a, const Candidate& b) { return a.bound < b.bound; });
  const std::int64_t last = actions_ + kImprovementBudget;
  for (std::size_t first = 0; first < unsettled_.size(); first += kBatch) {
    if (unsettled_[first].bound >= threshold() || actions_ > last || is_stopped()) return;
    const std::size_t count = std::min(kBatch, unsettled_.size() - first);
    std::vector<Score> scores(count);
    parallel_for(count, options_.threads, [&](std::size_t i) {
      scores[i] = scorer_.improve(unsettled_[first + i], order_ + i, kImprovementOfOne);
    });
    order_ += count;
    for (const Score& score : scores) account(score);
    std::stable_sort(best_.begin(), best_.end(), better);
    if (best_.size() > kBatch) best_.resize(kBatch);
    tell_progress();
  }
}

/// Tries all depths of what is open, as far as the budget goes, those with the least bounds first.
void ExactPlanner::settle() {
  const std::int64_t last = actions_ + kSettlementBudget;
  std::vector<Candidate> left;
  for (const Candidate& candidate : unsettled_) {
    if (candidate.bound >= threshold()) continue;
    const std::int64_t budget = last - actions_;
    Score score;
    if (budget > 0 && left.empty() && !is_stopped()) {
      score = scorer_.settle(candidate, order_++, best(), budget);
    }
    account(score);
    if (!score.is_settled) left.push_back(candidate);
    std::stable_sort(best_.begin(), best_.end(), better);
    tell_progress();
  }
  unsettled_ = std::move(left);
}

void ExactPlanner::tell_progress() {
  if (progress_ == nullptr) return;
  SearchProgress progress{.states = 0,
                          .candidates = record_.candidates,
                          .simulated = record_.simulated,
                          .best = std::nullopt,
                          .bound = bound()};
  for (const auto& search : searches_) progress.states += search->states();
  if (!best_.empty()) progress.best = best();
  progress_->update(progress);
}

ExactPlans ExactPlanner::run(std::vector<Scored> known) {
  best_ = std::move(known);
  prepare();
  while (bound() < threshold() && !is_spent()) {
    if (is_stopped()) break;
    advance();
    const std::vector<Candidate> batch = take_batch();
    simulate(batch);
    tell_progress();
    const bool is_stuck =
        batch.empty() && std::all_of(searches_.begin(), searches_.end(),
                                     [](const auto& search) { return search->is_exhausted(); });
    if (is_stuck) break;
  }
  improve();
  settle();
  return {.best = best_, .record = record(), .lower_bound = bound()};
}

SearchRecord ExactPlanner::record() const {
  SearchRecord record = record_;
  record.planner = "exact";
  record.open = static_cast<std::int64_t>(unsettled_.size());
  bool covers_all_placements = true;
  for (const auto& search : searches_) {
    record.states += search->states();
    record.kept += search->kept();
    record.open += search->open(best());
    covers_all_placements = covers_all_placements && search->covers_all_placements();
  }
  record.searched = {"stage boundaries",
                     "replicas per stage",
                     "placement: every set of devices, replicas in the order of their numbers",
                     "micro-batch sizes that divide the global batch",
                     "warm-up depths",
                     "recomputation per stage",
                     "idle devices"};
  for (const std::string& pinned : to_texts(options_.pins, profile_)) {
    record.cut.push_back("pinned: " + pinned);
  }
  if (!covers_all_placements) {
    record.cut.push_back(
        "placements that are not fresh, append or scatter first, and, on one kind of device, "
        "replica "
        "counts that do not make the largest share of a micro-batch smaller; the bound holds for "
        "them too");
  }
  record.complete = record.cut.empty();
  return record;
}

}  // namespace

ExactPlans plan_exactly(const ModelProfile& profile, const Topology& topology,
                        const PlannerOptions& options, std::vector<Scored> known,
                        Progress* progress) {
  return ExactPlanner(profile, topology, options, progress).run(std::move(known));
}

}  // namespace dapple
