#include <fmt/format.h>

#include <algorithm>

#include "dapple/core/error.h"
#include "dapple/core/parallel.h"
#include "dapple/planner/planner.h"
#include "dapple/search/dapple_search.h"
#include "least_memory.h"
#include "scoring.h"

namespace dapple {
namespace {

/// Up to this many devices every replica count is tried.
constexpr std::int32_t kFewDevices = 16;
/// Up to this many the search is still wide.
constexpr std::int32_t kSomeDevices = 32;

/// A first look that finds a good incumbent.
SearchEffort scout(std::int32_t devices, Duration incumbent) {
  return {.incumbent = incumbent,
          .states_per_cut = 12,
          .labels_per_state = 1,
          .candidates = 3,
          .all_replica_counts = devices <= kFewDevices};
}

/// The search proper, for plans faster than the incumbent.
SearchEffort thorough(std::int32_t devices, Duration incumbent) {
  SearchEffort effort{.incumbent = incumbent,
                      .states_per_cut = 1000,
                      .labels_per_state = 8,
                      .candidates = 200,
                      .all_replica_counts = devices <= kFewDevices};
  if (devices > kFewDevices) effort.states_per_cut = devices <= kSomeDevices ? 120 : 24;
  if (devices > kFewDevices) effort.labels_per_state = devices <= kSomeDevices ? 4 : 2;
  return effort;
}

/// Simulated actions that a search may spend; deterministic, unlike time.
constexpr std::int64_t kActionBudget = 16'000'000;
/// Of it, what improving the depths of one plan may take.
constexpr std::int64_t kRefinementBudget = kActionBudget / 8;
/// Plans whose depths are improved one step at a time in the end.
constexpr std::size_t kRefined = 4;
constexpr std::int64_t kMostMicroBatches = 131'072;
/// Candidates simulated side by side; fixed, so that the outcome does not depend on the threads.
constexpr std::size_t kBatch = 8;

class Planner {
 public:
  Planner(const ModelProfile& profile, const Topology& topology, const PlannerOptions& options,
          Progress* progress)
      : profile_(profile),
        topology_(topology),
        options_(options),
        scorer_(profile, topology, options_),
        progress_(progress) {}

  std::variant<PlanDocument, Infeasible> run();

 private:
  void choose_micro_batch_sizes();
  std::vector<Candidate> opening() const;
  Duration incumbent() const {
    return kept_.empty() ? Duration{INT64_MAX} : kept_.front().iteration;
  }
  std::vector<Candidate> search(const SearchEffort& effort);
  void simulate_best_first(const std::vector<Candidate>& candidates);
  void account(const Score& score);
  void tell_progress();
  PlanDocument document() const;

  const ModelProfile& profile_;
  const Topology& topology_;
  const PlannerOptions& options_;
  Scorer scorer_;
  Progress* progress_;
  std::vector<std::int64_t> micro_batch_sizes_;
  std::vector<Scored> kept_;  // the best few of different candidates, best first
  SearchRecord record_;
  std::int64_t narrowed_ = 0;
  std::int64_t not_simulated_ = 0;
  std::int64_t actions_ = 0;
};

void Planner::choose_micro_batch_sizes() {
  const std::int64_t global = options_.global_batch_size;
  if (options_.micro_batch_size) {
    const std::int64_t size = *options_.micro_batch_size;
    if (size < 1 || global % size != 0) {
      throw Error(ErrorKind::BadInput, "--micro-batch",
                  {{"", fmt::format("expected a divisor of the global batch of {}, got {}", global,
                                    size)}});
    }
    micro_batch_sizes_ = {size};
    record_.cut.push_back(fmt::format("micro-batch size: only {}, as asked", size));
  } else {
    for (std::int64_t size = 1; size * size <= global; ++size) {
      if (global % size != 0) continue;
      micro_batch_sizes_.push_back(size);
      if (size * size != global) micro_batch_sizes_.push_back(global / size);
    }
    std::sort(micro_batch_sizes_.begin(), micro_batch_sizes_.end());
  }
  const auto small =
      std::find_if(micro_batch_sizes_.begin(), micro_batch_sizes_.end(),
                   [&](std::int64_t size) { return global / size <= kMostMicroBatches; });
  if (small == micro_batch_sizes_.end()) {
    throw Error(ErrorKind::BadInput, "--micro-batch",
                {{"", fmt::format("expected at most {} micro-batches, got {}", kMostMicroBatches,
                                  global / micro_batch_sizes_.back())}});
  }
  if (small != micro_batch_sizes_.begin()) {
    record_.cut.push_back(fmt::format("micro-batch sizes below {}: more than {} micro-batches",
                                      *small, kMostMicroBatches));
    micro_batch_sizes_.erase(micro_batch_sizes_.begin(), small);
  }
}

/// Stages of even load on equal numbers of devices in order, for every number of stages that
/// divides the devices: what anyone would try first, and a bar for the search.
std::vector<Candidate> Planner::opening() const {
  std::vector<Candidate> candidates;
  const std::int32_t devices = topology_.device_count();
  const auto layers = static_cast<std::int32_t>(profile_.layers.size());
  const CostModel costs(profile_, topology_);
  for (const std::int64_t size : micro_batch_sizes_) {
    const LayerTable& table = costs.table(size, topology_.device(DeviceIndex{0}).kind);
    const auto load_until = [&](std::int32_t end) {
      return (table.forward({0, end}) + table.backward({0, end})).ns;
    };
    for (std::int32_t stages = 1; stages <= std::min(devices, layers); ++stages) {
      if (devices % stages != 0 || devices / stages > size) continue;
      Candidate candidate{.micro_batch_size = size, .stages = {}, .bound = {}};
      std::int32_t begin = 0;
      for (std::int32_t s = 0; s < stages; ++s) {
        std::int32_t end = s + 1 == stages ? layers : begin + 1;
        const std::int32_t most = layers - (stages - 1 - s);
        while (end < most && load_until(end) * stages < load_until(layers) * (s + 1)) ++end;
        StagePlan& stage = candidate.stages.emplace_back();
        stage.layers = {begin, end};
        for (std::int32_t d = s * (devices / stages); d < (s + 1) * (devices / stages); ++d) {
          stage.devices.push_back(DeviceIndex{d});
        }
        begin = end;
      }
      candidates.push_back(std::move(candidate));
    }
  }
  return candidates;
}

std::vector<Candidate> Planner::search(const SearchEffort& effort) {
  std::vector<SearchOutcome> outcomes(micro_batch_sizes_.size());
  parallel_for(outcomes.size(), options_.threads, [&](std::size_t i) {
    const CostModel costs(profile_, topology_);
    outcomes[i] = search_dapple(costs,
                                {.global_batch_size = options_.global_batch_size,
                                 .micro_batch_size = micro_batch_sizes_[i],
                                 .ignore_memory = options_.ignore_memory,
                                 .gpipe = options_.family == ScheduleFamily::GPipe},
                                effort);
  });
  std::vector<Candidate> candidates;
  for (SearchOutcome& outcome : outcomes) {
    record_.states += outcome.states;
    narrowed_ += outcome.narrowed;
    for (Candidate& candidate : outcome.candidates) candidates.push_back(std::move(candidate));
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.bound < b.bound; });
  record_.candidates += static_cast<std::int64_t>(candidates.size());
  tell_progress();
  return candidates;
}

void Planner::account(const Score& score) {
  actions_ += score.actions;
  record_.simulated += score.simulated;
  if (!score.best.feasible()) return;
  kept_.push_back(score.best);
}

void Planner::simulate_best_first(const std::vector<Candidate>& candidates) {
  for (std::size_t first = 0; first < candidates.size(); first += kBatch) {
    const Duration to_beat = incumbent();
    if (candidates[first].bound >= to_beat) return;
    if (actions_ > kActionBudget) {
      for (std::size_t i = first; i < candidates.size(); ++i) {
        if (candidates[i].bound < to_beat) ++not_simulated_;
      }
      return;
    }
    const std::size_t count = std::min(kBatch, candidates.size() - first);
    std::vector<Score> scores(count);
    parallel_for(count, options_.threads, [&](std::size_t i) {
      scores[i] = scorer_.score(candidates[first + i], first + i, to_beat);
    });
    for (const Score& result : scores) account(result);
    std::stable_sort(kept_.begin(), kept_.end(), better);
    if (kept_.size() > 2 * kRefined) kept_.resize(2 * kRefined);
    tell_progress();
  }
}

void Planner::tell_progress() {
  if (progress_ == nullptr) return;
  progress_->update(record_.states, record_.candidates, record_.simulated,
                    kept_.empty() ? std::nullopt : std::optional(kept_.front().iteration));
}

std::variant<PlanDocument, Infeasible> Planner::run() {
  choose_micro_batch_sizes();
  const std::int32_t devices = topology_.device_count();
  const std::vector<Candidate> first = opening();
  record_.candidates += static_cast<std::int64_t>(first.size());
  simulate_best_first(first);
  simulate_best_first(search(scout(devices, incumbent())));
  simulate_best_first(search(thorough(devices, incumbent())));
  if (kept_.empty()) {
    // The search narrows; the plan that needs the least memory settles whether anything fits.
    const CostModel costs(profile_, topology_);
    const LeastMemory least = least_memory(costs,
                                           {.global_batch_size = options_.global_batch_size,
                                            .micro_batch_size = micro_batch_sizes_.front(),
                                            .ignore_memory = false,
                                            .gpipe = options_.family == ScheduleFamily::GPipe},
                                           topology_.device_count());
    if (least.missing.count > 0) return explain_infeasible(costs, options_, micro_batch_sizes_);
    account(scorer_.score(least.plan, 0, Duration{INT64_MAX}));
    check(!kept_.empty(), "the plan of least memory fits, but not at any depths");
  }
  kept_.resize(std::min(kept_.size(), kRefined));
  std::vector<Score> refined(kept_.size());
  parallel_for(kept_.size(), options_.threads,
               [&](std::size_t i) { refined[i] = scorer_.refine(kept_[i], kRefinementBudget); });
  for (const Score& result : refined) account(result);
  std::stable_sort(kept_.begin(), kept_.end(), better);
  return document();
}

PlanDocument Planner::document() const {
  PlanDocument document;
  document.profile = profile_;
  document.topology = topology_.description();
  document.plan = kept_.front().plan;
  Evaluation evaluation = evaluate(document.plan, profile_, topology_, options_.contention);
  check(options_.ignore_memory || evaluation.shortages.empty(),
        "the chosen plan does not fit memory");
  document.prediction = std::move(evaluation.prediction);
  document.warnings = warnings_about(document.plan, profile_, topology_);
  document.search = record_;
  document.search.planner = "dapple";
  document.search.complete = false;
  document.search.searched = {"stage boundaries",
                              "replicas per stage",
                              "placement by three policies",
                              "micro-batch sizes that divide the global batch",
                              "warm-up depths: policies A and B, deeper ones, what memory allows",
                              "recomputation per stage",
                              "idle devices"};
  document.search.cut.push_back(
      fmt::format("{} partial plans that looked less promising: no bound was proven", narrowed_));
  document.search.cut.push_back("placements that are not fresh, append or scatter first");
  if (topology_.device_count() > kFewDevices) {
    document.search.cut.push_back(
        "replica counts: only those that make the largest share of a micro-batch smaller");
  }
  if (not_simulated_ > 0) {
    document.search.cut.push_back(fmt::format(
        "{} candidates whose bound is below the best were not simulated", not_simulated_));
  }
  return document;
}

}  // namespace

std::variant<PlanDocument, Infeasible> make_plan(const ModelProfile& profile,
                                                 const Topology& topology,
                                                 const PlannerOptions& options,
                                                 Progress* progress) {
  return Planner(profile, topology, options, progress).run();
}

}  // namespace dapple
