#include "dapple/schedule_search/order_search.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "dapple/core/error.h"
#include "schedule_search/bound_maker.h"
#include "schedule_search/limited_search.h"
#include "schedule_search/order_search_state.h"

namespace dapple::schedule_search {
namespace {

/// The maximum number of times that an order that needs too much memory is followed by one with
/// less in flight, and of searches that continue after their tables.
constexpr int kMostTightenings = 8;
constexpr std::size_t kMostSearches = 4;
/// The minimum number of orders that are tried within each set of limits.
constexpr std::int64_t kLeastTries = 8;

/// Returns the order of one micro-batch after the other, which needs the least memory of all.
Words one_by_one(const TaskGraph& graph) {
  Words words(at(graph.device_count()));
  for (std::int32_t d = 0; d < graph.device_count(); ++d) {
    std::vector<Symbol>& word = words[at(d)];
    const std::vector<std::int32_t>& stages = graph.stages_of(d);
    for (std::int32_t n = 0; n < graph.micro_batches(); ++n) {
      for (const std::int32_t s : stages) word.push_back(graph.forward(s));
      for (auto s = stages.rbegin(); s != stages.rend(); ++s) {
        word.push_back(graph.backward(*s));
        if (graph.is_split()) word.push_back(graph.weight(*s));
      }
    }
  }
  return words;
}

bool ends_are_even(const std::vector<Duration>& ends) {
  return std::adjacent_find(ends.begin(), ends.end(), std::not_equal_to<>()) == ends.end();
}

class OrderSearch {
 public:
  OrderSearch(const TaskProblem& problem, const OrderSearchOptions& options)
      : problem_(problem), state_(problem, options), bounds_(problem) {
    state_.raise_bound(bounds_.simple());
  }

  void run();
  const OrderSearchState& state() const { return state_; }
  OrderSearchWork work() const;

 private:
  void offer(const Words& words);
  void offer_known();
  void offer_simpler();
  void try_tables();
  void add_search(const TaskProblem& within, std::int64_t evaluations);
  bool tighten(TaskProblem& within, const Words& words) const;
  void keep_best_searches();

  const TaskProblem& problem_;
  OrderSearchState state_;
  BoundMaker bounds_;
  OrderSearchWork work_on_simpler_;
  // The first search uses the problem's own limits.
  std::vector<std::unique_ptr<LimitedSearch>> searches_;
};

/// Whether the order completes within the memory of every device.
bool is_legal(const TaskProblem& problem, const TaskOrder& order) {
  const TaskGraph graph(problem);
  const Holdings holdings = HoldingRules(problem, graph).holdings_of(graph.to_words(order));
  for (std::int32_t d = 0; d < graph.device_count(); ++d) {
    if (holdings.memory[at(d)] > graph.limit(d)) return false;
  }
  return run_order(problem, order).waiting.empty();
}

void OrderSearch::offer(const Words& words) {
  const WorkingOrder order(state_.graph(), state_.rules(), words);
  state_.offer(order.value(), words);
  if (state_.options().simulate && order.value().excess == 0) state_.simulate(words);
}

void OrderSearch::offer_known() {
  for (const TaskOrder& order : state_.options().known) {
    if (is_legal(problem_, order)) offer(state_.graph().to_words(order));
  }
  if (state_.rules().may_bind() && !state_.is_stopped()) offer(one_by_one(state_.graph()));
}

/// Offers the best order of a simpler problem, in which a good order is found sooner: one without
/// holding limits and without what follows the last tasks. If that order needs too much memory,
/// continues with less in flight.
void OrderSearch::offer_simpler() {
  const OrderSearchOptions& options = state_.options();
  TaskProblem simpler = problem_;
  simpler.after_last.clear();
  simpler.holding_limits.clear();
  if (problem_.after_last.empty() && problem_.holding_limits.empty()) return;
  const bool is_simpler = !ends_are_even(problem_.after_last) || state_.rules().may_bind();
  if (!is_simpler && !options.simulate) return;
  for (int i = 0; i < kMostTightenings && !state_.is_stopped(); ++i) {
    const std::optional<FoundOrder> found =
        search_order(simpler, {.evaluations = options.evaluations,
                               .seed = options.seed,
                               .should_stop = options.should_stop});
    check(found.has_value(), "a problem with fewer limits has an order too");
    work_on_simpler_ += found->work;
    const Words words = state_.graph().to_words(found->order);
    offer(words);
    if (!tighten(simpler, words)) return;
  }
}

void OrderSearch::add_search(const TaskProblem& within, std::int64_t evaluations) {
  searches_.push_back(std::make_unique<LimitedSearch>(within, state_));
  searches_.back()->try_table(evaluations);
  state_.simulate_best();
}

/// Allows less in flight on devices on which the order needs too much memory. Returns false if
/// there are none or if no less is possible.
bool OrderSearch::tighten(TaskProblem& within, const Words& words) const {
  const std::vector<Bytes> least = least_memory(problem_);
  const Holdings holdings = state_.rules().holdings_of(words);
  bool is_less = false;
  for (std::size_t d = 0; d < within.memory_limits.size(); ++d) {
    const auto device = static_cast<std::int32_t>(d);
    const Bytes missing{state_.rules().excess(holdings, device)};
    if (missing.count == 0) continue;
    const std::vector<std::int32_t>& stages = state_.graph().stages_of(device);
    if (stages.size() == 1) {
      // One micro-batch less in flight also means one less in the boundary buffers.
      const std::int32_t less = std::max(1, holdings.in_flight[at(stages.front())] - 1);
      std::int32_t& cap = within.stages[at(stages.front())].most_in_flight;
      is_less = is_less || less < cap;
      cap = std::min(cap, less);
      continue;
    }
    const Bytes limit = std::max(least[d], Bytes{holdings.memory[d]} - missing);
    is_less = is_less || limit < within.memory_limits[d];
    within.memory_limits[d] = std::min(within.memory_limits[d], limit);
  }
  return is_less;
}

void OrderSearch::try_tables() {
  const std::vector<std::vector<std::int32_t>> sets = cap_sets(state_.graph(), state_.rules());
  const std::int64_t all = state_.options().evaluations;
  const auto searches = static_cast<std::int64_t>(sets.size()) + 1;
  const std::int64_t each =
      state_.rules().may_bind() ? std::max(std::min(all, kLeastTries), all / (4 * searches)) : all;
  add_search(problem_, each);
  TaskProblem within = problem_;
  for (const std::vector<std::int32_t>& caps : sets) {
    if (state_.is_over()) break;
    for (std::size_t s = 0; s < caps.size(); ++s) within.stages[s].most_in_flight = caps[s];
    add_search(within, each);
  }
}

/// Keeps the best searches in addition to the first, whose limits exclude no order.
void OrderSearch::keep_best_searches() {
  std::stable_sort(searches_.begin() + 1, searches_.end(),
                   [](const auto& a, const auto& b) { return a->best() < b->best(); });
  if (searches_.size() > kMostSearches) searches_.resize(kMostSearches);
}

void OrderSearch::run() {
  offer_known();
  offer_simpler();
  if (state_.is_stopped()) return;
  try_tables();
  if (state_.is_stopped()) return;
  if (state_.best().worst > state_.bound()) state_.raise_bound(bounds_.refined());
  keep_best_searches();
  for (std::int64_t round = 1; !state_.is_over(); ++round) {
    for (const auto& search : searches_) {
      search->improve(round);
      state_.simulate_best();
      if (state_.wants_simulation()) search->improve_by_simulation(round);
    }
  }
}

OrderSearchWork OrderSearch::work() const {
  OrderSearchWork all = state_.work();
  return all += work_on_simpler_;
}

}  // namespace

OrderSearchWork& OrderSearchWork::operator+=(const OrderSearchWork& more) {
  list_schedules += more.list_schedules;
  moves += more.moves;
  improvements += more.improvements;
  simulations += more.simulations;
  return *this;
}

std::optional<FoundOrder> search_order(const TaskProblem& problem,
                                       const OrderSearchOptions& options) {
  check(options.evaluations >= 1, "a search has at least one evaluation");
  if (!has_order(problem)) return std::nullopt;
  OrderSearch search(problem, options);
  search.run();
  const OrderSearchState& state = search.state();
  FoundOrder found;
  found.order = state.graph().to_order(state.chosen());
  found.times = run_order(problem, found.order);
  found.objective = found.times.objective(problem.objective);
  check(
      found.times.waiting.empty() && (options.simulate || found.objective.ns == state.best().worst),
      "an order found runs as the search believes");
  if (options.simulate) found.simulated = Duration{state.simulated()};
  found.lower_bound = {state.bound()};
  found.work = search.work();
  return found;
}

}  // namespace dapple::schedule_search
