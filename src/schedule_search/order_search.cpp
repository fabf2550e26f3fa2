#include "dapple/schedule_search/order_search.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "bound_maker.h"
#include "dapple/core/error.h"
#include "list_schedule.h"
#include "move_search.h"
#include "rule_sets.h"

namespace dapple {
namespace {

/// Rules of the table before moves are first tried, and for how long these go on without success: a
/// search that has only milliseconds shall have tried both.
constexpr int kRulesBeforeMoves = 32;
constexpr std::int64_t kFirstPatience = 300;

struct RatedRule {
  ListRule rule;
  OrderValue value;
};

class OrderSearch {
 public:
  OrderSearch(const TaskProblem& problem, const OrderSearchOptions& options)
      : options_(options),
        graph_(problem),
        bounds_(problem),
        bound_(bounds_.simple()),
        randomness_(options.seed) {}

  void run();
  const Words& words() const { return words_; }
  std::int64_t objective() const { return best_.worst; }
  std::int64_t bound() const { return bound_; }
  const OrderSearchWork& work() const { return work_; }

 private:
  bool is_over() const;
  OrderValue build(const ListRule& rule);
  void offer(const OrderValue& value, const Words& words);
  void try_table();
  void change_rules(std::int64_t attempts);
  void move_tasks(const Words& from, std::int64_t patience);
  Words any_order();

  const OrderSearchOptions& options_;
  TaskGraph graph_;
  BoundMaker bounds_;
  std::int64_t bound_;  // refined once rules alone have not met it
  Randomness randomness_;
  RatedRule best_rule_;
  OrderValue best_;
  Words words_;
  OrderSearchWork work_;
};

bool OrderSearch::is_over() const {
  if (words_.empty()) return false;
  return best_.worst <= bound_ || work_.list_schedules + work_.moves >= options_.evaluations ||
         (options_.should_stop && options_.should_stop());
}

void OrderSearch::offer(const OrderValue& value, const Words& words) {
  if (value >= best_) return;
  if (value.worst < best_.worst) ++work_.improvements;
  best_ = value;
  words_ = words;
}

OrderValue OrderSearch::build(const ListRule& rule) {
  ++work_.list_schedules;
  const std::optional<ListSchedule> schedule = list_schedule(graph_, rule);
  if (!schedule) return {};
  offer(schedule->value, schedule->words);
  return schedule->value;
}

void OrderSearch::try_table() {
  int tried = 0;
  for (const ListRule& rule : rule_table(graph_)) {
    if (is_over()) return;
    const OrderValue value = build(rule);
    if (value < best_rule_.value) best_rule_ = {rule, value};
    if (++tried == kRulesBeforeMoves) move_tasks(words_, kFirstPatience);
  }
}

void OrderSearch::change_rules(std::int64_t attempts) {
  for (std::int64_t i = 0; i < attempts && !is_over(); ++i) {
    ListRule rule = changed_rule(graph_, best_rule_.rule, randomness_);
    const OrderValue value = build(rule);
    if (value <= best_rule_.value) best_rule_ = {std::move(rule), value};
  }
}

/// From a rule far from the best: what moves cannot reach from one order they may from another.
Words OrderSearch::any_order() {
  ListRule rule = best_rule_.rule;
  for (int i = 0; i < 10; ++i) rule = changed_rule(graph_, std::move(rule), randomness_);
  ++work_.list_schedules;
  const std::optional<ListSchedule> schedule = list_schedule(graph_, rule);
  return schedule ? schedule->words : words_;
}

void OrderSearch::move_tasks(const Words& from, std::int64_t patience) {
  const auto memory = static_cast<std::size_t>(std::max<std::int64_t>(patience / 20, 1));
  MoveSearch search(graph_, from, memory, static_cast<std::uint64_t>(randomness_.roll(0, 1 << 30)));
  while (search.steps_since_best() < patience && !is_over()) {
    ++work_.moves;
    if (search.step()) offer(search.best(), search.best_words());
  }
  offer(search.best(), search.best_words());
}

void OrderSearch::run() {
  try_table();
  if (best_.worst > bound_) bound_ = bounds_.refined();
  for (std::int64_t round = 1; !is_over(); ++round) {
    change_rules(50 * round);
    move_tasks(words_, 500 * round);
    if (!is_over()) move_tasks(any_order(), 500 * round);
  }
}

}  // namespace

std::optional<FoundOrder> search_order(const TaskProblem& problem,
                                       const OrderSearchOptions& options) {
  check(options.evaluations >= 1, "a search has at least one evaluation");
  const std::vector<Bytes> least = least_memory(problem);
  for (std::size_t d = 0; d < least.size(); ++d) {
    if (least[d] > problem.memory_limits[d]) return std::nullopt;
  }
  OrderSearch search(problem, options);
  search.run();
  FoundOrder found;
  found.order = TaskGraph(problem).to_order(search.words());
  found.times = run_order(problem, found.order);
  found.objective = found.times.objective(problem.objective);
  check(found.times.waiting.empty() && found.objective.ns == search.objective(),
        "an order found runs as the search believes");
  found.lower_bound = {search.bound()};
  found.work = search.work();
  return found;
}

}  // namespace dapple
