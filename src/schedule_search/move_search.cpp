#include "move_search.h"

#include <algorithm>

namespace dapple {

MoveSearch::MoveSearch(const TaskGraph& graph, const Words& words, std::size_t memory,
                       std::uint64_t seed)
    : graph_(graph),
      order_(graph, words),
      past_(memory, order_.value()),
      randomness_(seed),
      best_(order_.value()),
      best_words_(words) {}

/// A weight gradient from further on into the gap, or whatever comes next past the waiting task.
TaskMove MoveSearch::fill_gap(TaskPlace place) {
  const std::int32_t last = order_.length(place.device) - 1;
  std::int32_t from = place.position + 1;
  if (randomness_.chance(70)) {
    while (from < last &&
           order_.kind_at({place.device, from}).kind != TaskKind::WeightGradient) {
      ++from;
    }
  }
  return {place.device, std::min(from, last), place.position};
}

TaskMove MoveSearch::propose_at(TaskPlace place) {
  const std::int32_t last = order_.length(place.device) - 1;
  const bool is_weight = order_.kind_at(place).kind == TaskKind::WeightGradient;
  const bool goes_later = randomness_.chance(is_weight ? 80 : 30);
  const std::int32_t distance = randomness_.distance(last + 1);
  const std::int32_t to = place.position + (goes_later ? distance : -distance);
  return {place.device, place.position, std::clamp(to, 0, last)};
}

TaskMove MoveSearch::propose() {
  if (critical_.empty()) critical_ = order_.critical_tasks();
  if (randomness_.chance(80)) {
    const auto choice = randomness_.roll(0, static_cast<std::int32_t>(critical_.size()) - 1);
    const TaskPlace place = critical_[at(choice)];
    if (order_.gap_before(place) > 0 && randomness_.chance(50)) return fill_gap(place);
    return propose_at(place);
  }
  const std::int32_t device = randomness_.roll(0, graph_.device_count() - 1);
  return propose_at({device, randomness_.roll(0, order_.length(device) - 1)});
}

bool MoveSearch::step() {
  ++steps_since_best_;
  turn_ = (turn_ + 1) % past_.size();
  constexpr int kProposals = 20;
  TaskMove move = propose();
  for (int i = 0; i < kProposals && !order_.is_legal(move); ++i) move = propose();
  if (!order_.is_legal(move)) return false;
  const OrderValue limit = std::max(past_[turn_], order_.value());
  const std::optional<OrderValue> value = order_.attempt(move, limit.worst);
  if (!value || *value > limit) {
    order_.undo();
    past_[turn_] = std::min(past_[turn_], order_.value());
    return false;
  }
  order_.keep();
  critical_.clear();
  past_[turn_] = std::min(past_[turn_], *value);
  if (*value >= best_) return false;
  const bool is_better = value->worst < best_.worst;
  best_ = *value;
  best_words_ = order_.words();
  if (is_better) steps_since_best_ = 0;
  return is_better;
}

}  // namespace dapple
