#include "schedule_search/limited_search.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "schedule_search/rule_sets.h"

namespace dapple::schedule_search {
namespace {

/// The number of rules of the table before moves are first tried, and how many moves without
/// success these take; so that a search that has only milliseconds has tried both.
constexpr int kRulesBeforeMoves = 32;
constexpr std::int64_t kFirstStallLimit = 300;

std::size_t memory_for(std::int64_t stall_limit) {
  return static_cast<std::size_t>(std::max<std::int64_t>(stall_limit / 20, 1));
}

}  // namespace

LimitedSearch::LimitedSearch(const TaskProblem& problem, OrderSearchState& state)
    : graph_(problem), state_(state), random_(state.options().seed) {}

/// Whether no better order is possible here or the budget is used up. The limit of the table
/// applies even if no order fits yet.
bool LimitedSearch::is_over() const {
  if (words_.empty()) return false;
  return state_.is_met() || state_.is_over() || (last_ && orders_tried() >= *last_);
}

void LimitedSearch::offer(const OrderValue& value, const Words& words) {
  state_.offer(value, words);
  if (value >= best_) return;
  best_ = value;
  words_ = words;
}

OrderValue LimitedSearch::build(const ListRule& rule) {
  state_.count_list_schedule();
  const std::optional<ListSchedule> schedule = list_schedule(graph_, rule);
  if (!schedule) return {};
  const OrderValue value = state_.value_of(*schedule);
  const bool is_better = value < best_;
  offer(value, schedule->words);
  // Orders with almost equal objectives may differ much in how well they use the links.
  if (is_better && value.excess == 0 && state_.options().simulate) state_.simulate(schedule->words);
  return value;
}

void LimitedSearch::try_table(std::int64_t evaluations) {
  if (evaluations <= std::numeric_limits<std::int64_t>::max() - orders_tried()) {
    last_ = orders_tried() + evaluations;
  }
  int tried = 0;
  for (const ListRule& rule : rule_table(graph_)) {
    if (is_over()) break;
    const OrderValue value = build(rule);
    if (value < best_rule_.value) best_rule_ = {rule, value};
    if (++tried == kRulesBeforeMoves) move_tasks(words_, kFirstStallLimit);
  }
  if (best_.excess > 0) move_tasks(words_, kFirstStallLimit);
  last_.reset();
}

/// Returns an order by a rule far from the best: moves may reach other orders from there.
Words LimitedSearch::any_order() {
  ListRule rule = best_rule_.rule;
  for (int i = 0; i < 10; ++i) rule = changed_rule(graph_, std::move(rule), random_);
  state_.count_list_schedule();
  const std::optional<ListSchedule> schedule = list_schedule(graph_, rule);
  return schedule ? schedule->words : words_;
}

void LimitedSearch::move_tasks(const Words& from, std::int64_t stall_limit) {
  MoveSearch search(state_.graph(), state_.rules(),
                    {.words = from,
                     .memory = memory_for(stall_limit),
                     .seed = static_cast<std::uint64_t>(roll(random_, 0, 1 << 30))});
  while (search.steps_since_best() < stall_limit && !is_over()) {
    state_.count_move();
    if (search.step()) offer(search.best(), search.best_words());
  }
  offer(search.best(), search.best_words());
}

void LimitedSearch::improve(std::int64_t round) {
  for (std::int64_t i = 0; i < 50 * round && !is_over(); ++i) {
    ListRule rule = changed_rule(graph_, best_rule_.rule, random_);
    const OrderValue value = build(rule);
    if (value <= best_rule_.value) best_rule_ = {std::move(rule), value};
  }
  if (!is_over()) move_tasks(words_, 500 * round);
  if (!is_over()) move_tasks(any_order(), 500 * round);
}

void LimitedSearch::simulate_moves(const Words& from, std::int64_t stall_limit) {
  MoveSearch search(state_.graph(), state_.rules(),
                    {.words = from,
                     .memory = memory_for(stall_limit),
                     .seed = static_cast<std::uint64_t>(roll(random_, 0, 1 << 30))},
                    [this](const Words& words) { return state_.simulate(words); });
  while (search.steps_since_best() < stall_limit && !state_.is_over()) {
    state_.count_move();
    search.step();
  }
}

void LimitedSearch::improve_by_simulation(std::int64_t round) {
  simulate_moves(state_.chosen(), 200 * round);
  if (state_.is_over()) return;
  simulate_moves(any_order(), 200 * round);
}

}  // namespace dapple::schedule_search
