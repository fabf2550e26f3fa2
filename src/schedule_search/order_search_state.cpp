#include "schedule_search/order_search_state.h"

namespace dapple::schedule_search {
namespace {

/// The cost of a simulation in orders run: simulated events take longer than tasks.
constexpr std::int64_t kOrdersPerSimulation = 8;
/// The maximum number of tasks of all remembered orders.
constexpr std::size_t kMostRemembered = 1'000'000;

}  // namespace

OrderSearchState::OrderSearchState(const TaskProblem& problem, const OrderSearchOptions& options)
    : options_(options), graph_(problem), rules_(problem, graph_) {}

OrderValue OrderSearchState::value_of(const ListSchedule& schedule) const {
  OrderValue value = schedule.value;
  if (rules_.may_bind()) value.excess = rules_.excess(rules_.holdings_of(schedule.words));
  return value;
}

void OrderSearchState::offer(const OrderValue& value, const Words& words) {
  if (value >= best_) return;
  if (value.excess < best_.excess || value.worst < best_.worst) ++work_.improvements;
  best_ = value;
  words_ = words;
}

std::int64_t OrderSearchState::simulate(const Words& words) {
  const auto known = remembered_.find(words);
  if (known != remembered_.end()) return known->second;
  ++work_.simulations;
  const std::int64_t time = options_.simulate(graph_.to_order(words)).ns;
  if ((remembered_.size() + 1) * graph_.task_count() <= kMostRemembered) {
    remembered_.emplace(words, time);
  }
  if (time < simulated_) {
    simulated_ = time;
    simulated_words_ = words;
  }
  return time;
}

void OrderSearchState::simulate_best() {
  if (options_.simulate && best_.excess == 0) simulate(words_);
}

bool OrderSearchState::is_over() const {
  if (best_.excess > 0) return false;
  const std::int64_t best = options_.simulate ? simulated_ : best_.worst;
  return best <= bound_ ||
         work_.list_schedules + work_.moves + kOrdersPerSimulation * work_.simulations >=
             options_.evaluations ||
         is_stopped();
}

bool OrderSearchState::is_stopped() const {
  return best_.excess == 0 && options_.should_stop && options_.should_stop();
}

bool OrderSearchState::wants_simulation() const {
  return options_.simulate && best_.excess == 0 && simulated_ > best_.worst;
}

}  // namespace dapple::schedule_search
