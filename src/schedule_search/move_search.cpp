#include "schedule_search/move_search.h"

#include <algorithm>
#include <utility>

namespace dapple::schedule_search {

MoveSearch::MoveSearch(const TaskGraph& graph, const HoldingRules& rules, Start start,
                       Appraisal appraise)
    : graph_(graph),
      order_(graph, rules, start.words),
      appraise_(std::move(appraise)),
      value_(appraised(order_.value())),
      past_(start.memory, value_),
      random_(start.seed),
      best_(value_),
      best_words_(std::move(start.words)) {}

OrderValue MoveSearch::appraised(OrderValue value) const {
  if (!appraise_ || value.excess > 0) return value;
  return {value.excess, appraise_(order_.words()), value.worst};
}

/// Proposes to move a later weight gradient into the gap, or the next task before the waiting one.
std::optional<TaskMove> MoveSearch::fill_gap(TaskPlace place) {
  const std::int32_t length = order_.length(place.device);
  std::int32_t from = place.position + 1;
  if (random_.chance(70)) {
    while (from < length && order_.kind_at({place.device, from}).kind != TaskKind::WeightGradient) {
      ++from;
    }
  }
  if (from >= length) return std::nullopt;
  return TaskMove{place.device, place.position, from, from + 1};
}

/// Proposes to move a task, sometimes with those that follow it, later (mostly for weight
/// gradients) or earlier.
std::optional<TaskMove> MoveSearch::shift_from(TaskPlace place) {
  const std::int32_t length = order_.length(place.device);
  const bool is_weight = order_.kind_at(place).kind == TaskKind::WeightGradient;
  const bool goes_later = random_.chance(is_weight ? 80 : 30);
  const std::int32_t count = random_.chance(75) ? 1 : roll(random_, 2, 4);
  const std::int32_t distance = short_distance(random_, length);
  const std::int32_t end = std::min(place.position + count, length);
  if (goes_later) {
    if (end == length) return std::nullopt;
    return TaskMove{place.device, place.position, end, std::min(end + distance, length)};
  }
  if (place.position == 0) return std::nullopt;
  return TaskMove{place.device, std::max(place.position - distance, 0), place.position, end};
}

std::optional<TaskMove> MoveSearch::propose() {
  if (critical_.empty()) critical_ = order_.critical_tasks();
  if (random_.chance(80)) {
    const auto choice = roll(random_, 0, static_cast<std::int32_t>(critical_.size()) - 1);
    const TaskPlace place = critical_[at(choice)];
    if (order_.gap_before(place) > 0 && random_.chance(50)) return fill_gap(place);
    return shift_from(place);
  }
  const std::int32_t device = roll(random_, 0, graph_.device_count() - 1);
  return shift_from({device, roll(random_, 0, order_.length(device) - 1)});
}

/// Returns false if none of a number of proposals is legal.
bool MoveSearch::make_some_move() {
  constexpr int kProposals = 20;
  for (int i = 0; i < kProposals; ++i) {
    const std::optional<TaskMove> move = propose();
    if (move && order_.make(*move)) return true;
  }
  return false;
}

bool MoveSearch::step() {
  ++steps_since_best_;
  turn_ = (turn_ + 1) % past_.size();
  if (!make_some_move()) return false;
  const OrderValue limit = std::max(past_[turn_], value_);
  std::optional<OrderValue> value = order_.run(limit);
  if (value) value = appraised(*value);
  if (!value || *value > limit) {
    order_.undo();
    past_[turn_] = std::min(past_[turn_], value_);
    return false;
  }
  order_.keep();
  value_ = *value;
  critical_.clear();
  past_[turn_] = std::min(past_[turn_], *value);
  if (*value >= best_) return false;
  const bool is_better =
      value->excess < best_.excess || (value->excess == best_.excess && value->worst < best_.worst);
  best_ = *value;
  best_words_ = order_.words();
  if (is_better) steps_since_best_ = 0;
  return is_better;
}

}  // namespace dapple::schedule_search
