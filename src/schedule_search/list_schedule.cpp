#include "schedule_search/list_schedule.h"

#include <algorithm>

#include "dapple/core/error.h"
#include "schedule_search/tasks/partial_order.h"

namespace dapple::schedule_search {
namespace {

/// The time of a wait for a more urgent task, and the delay of that task without the wait.
struct Wait {
  std::int64_t time = 0;
  std::int64_t late = 0;
};

bool is_worth_waiting(const PartialOrder& order, std::int32_t device, DelayPolicy delay_policy,
                      Wait wait) {
  if (wait.late <= 0) return false;
  switch (delay_policy) {
    case DelayPolicy::None:
      return false;
    case DelayPolicy::Fair:
      return wait.time < wait.late;
    case DelayPolicy::Thrifty:
      return order.idle(device) + wait.time <= order.most_idle();
    case DelayPolicy::Endless:
      return true;
  }
  return false;
}

/// A task that a device can start, and its earliest start; symbol -1 means that there is none.
struct Choice {
  Symbol symbol = -1;
  std::int64_t start = kNever;
};

class ByStarts {
 public:
  ByStarts(const TaskGraph& graph, const ListRule& rule)
      : graph_(graph),
        rule_(rule),
        order_(graph),
        choices_(at(graph.device_count())),
        is_stale_(at(graph.device_count()), 1) {}

  PartialOrder run() &&;

 private:
  void choose(std::int32_t d);
  Choice choose_forward(std::int32_t d) const;
  Choice choose_backward(std::int32_t d) const;
  Choice weight_or(std::int32_t d, Choice other, std::int64_t backward_from) const;
  void start(std::int32_t d);
  void keep_depths(bool keeps);

  const TaskGraph& graph_;
  const ListRule& rule_;
  bool keeps_depths_ = true;
  PartialOrder order_;
  std::vector<Choice> choices_;  // by device
  std::vector<char> is_stale_;
};

Choice ByStarts::choose_forward(std::int32_t d) const {
  Choice best;
  for (const std::int32_t stage : graph_.stages_of(d)) {
    const Symbol symbol = graph_.forward(stage);
    const std::int32_t in_flight = order_.passed(symbol) - order_.passed(graph_.backward(stage));
    if (keeps_depths_ && in_flight >= rule_.depths[at(stage)]) continue;
    const std::int64_t from = order_.arrival(symbol);
    if (from == kNever || !order_.fits(symbol)) continue;
    const std::int64_t start = std::max(from, order_.free_from(d));
    const bool wins_tie = start == best.start && rule_.devices[at(d)].later_stage_first;
    if (start < best.start || wins_tie) best = {symbol, start};
  }
  return best;
}

Choice ByStarts::choose_backward(std::int32_t d) const {
  Choice best;
  for (const std::int32_t stage : graph_.stages_of(d)) {
    const Symbol symbol = graph_.backward(stage);
    const std::int64_t from = order_.arrival(symbol);
    if (from == kNever || !order_.fits(symbol)) continue;
    const std::int64_t start = std::max(from, order_.free_from(d));
    if (start < best.start) best = {symbol, start};
  }
  return best;
}

/// Returns the other task, or a weight gradient that should precede it.
Choice ByStarts::weight_or(std::int32_t d, Choice other, std::int64_t backward_from) const {
  const Symbol symbol = order_.waiting_weight(d);
  if (symbol < 0) return other;
  const DeviceRule& rule = rule_.devices[at(d)];
  const Choice weight{symbol, order_.free_from(d)};
  const std::int32_t waiting = order_.weights_waiting(d);
  if (other.symbol < 0 || waiting > rule.eager_weights) return weight;
  const bool is_forward = order_.kind(other.symbol).kind == TaskKind::Forward;
  if (is_forward && waiting > rule.stored_weights && backward_from > weight.start) return weight;
  const std::int64_t gap = other.start - weight.start;
  if (gap == 0) return other;
  const Wait wait{gap, order_.kind(symbol).duration - gap};
  const bool waits =
      !order_.is_last_need(other.symbol) && is_worth_waiting(order_, d, rule.delay_policy, wait);
  return waits ? other : weight;
}

void ByStarts::choose(std::int32_t d) {
  is_stale_[at(d)] = 0;
  const DeviceRule& rule = rule_.devices[at(d)];
  const Choice forward = choose_forward(d);
  const Choice backward = choose_backward(d);
  Choice task = backward;
  if (forward.symbol >= 0) {
    const std::int64_t gap = backward.start - forward.start;
    const Wait wait{gap, order_.kind(forward.symbol).duration - gap};
    const bool goes_forward = gap > 0 || (gap == 0 && !rule.backward_first);
    const bool waits =
        gap > 0 && rule.backward_first && is_worth_waiting(order_, d, rule.delay_policy, wait);
    if (goes_forward && !waits) task = forward;
  }
  choices_[at(d)] = weight_or(d, task, backward.start);
}

void ByStarts::start(std::int32_t d) {
  const Choice choice = choices_[at(d)];
  order_.put(choice.symbol, choice.start);
  is_stale_[at(d)] = 1;
  const Symbol successor = order_.kind(choice.symbol).successor;
  if (successor >= 0) is_stale_[at(order_.kind(successor).device)] = 1;
}

void ByStarts::keep_depths(bool keeps) {
  if (keeps_depths_ == keeps) return;
  keeps_depths_ = keeps;
  is_stale_.assign(is_stale_.size(), 1);
}

PartialOrder ByStarts::run() && {
  for (std::size_t left = graph_.task_count(); left > 0;) {
    std::int32_t first = -1;
    for (std::int32_t d = 0; d < graph_.device_count(); ++d) {
      if (is_stale_[at(d)] != 0) choose(d);
      const Choice& choice = choices_[at(d)];
      if (choice.symbol < 0) continue;
      if (first < 0 || choice.start < choices_[at(first)].start) first = d;
    }
    if (first < 0) {
      check(keeps_depths_, "a list schedule with enough memory goes on");
      keep_depths(false);
      continue;
    }
    start(first);
    --left;
    keep_depths(true);
  }
  return std::move(order_);
}

class ByWaves {
 public:
  ByWaves(const TaskGraph& graph, const ListRule& rule)
      : graph_(graph), rule_(rule), order_(graph) {}

  /// Returns nothing if the depths do not fit memory.
  std::optional<PartialOrder> run() &&;

 private:
  std::vector<std::int32_t> plan_forwards(std::int32_t wave) const;
  bool run_forwards(std::int32_t stage, std::int32_t wave, std::int32_t wanted);
  bool run_backward(std::int32_t stage);
  bool is_put_off(std::int32_t stage) const;
  bool make_room(Symbol symbol);
  void fill_before(Symbol symbol);
  void put_weight(std::int32_t device);
  void put(Symbol symbol);

  const TaskGraph& graph_;
  const ListRule& rule_;
  PartialOrder order_;
};

void ByWaves::put(Symbol symbol) {
  const std::int64_t free_from = order_.free_from(order_.kind(symbol).device);
  order_.put(symbol, std::max(order_.arrival(symbol), free_from));
}

void ByWaves::put_weight(std::int32_t device) {
  put(order_.waiting_weight(device));
}

bool ByWaves::make_room(Symbol symbol) {
  const std::int32_t device = order_.kind(symbol).device;
  while (!order_.fits(symbol)) {
    if (order_.weights_waiting(device) == 0) return false;
    put_weight(device);
  }
  return true;
}

/// Runs weight gradients in the idle time before the symbol's next task, and as many as the rule
/// requires.
void ByWaves::fill_before(Symbol symbol) {
  const std::int32_t device = order_.kind(symbol).device;
  const DeviceRule& rule = rule_.devices[at(device)];
  const bool is_forward = order_.kind(symbol).kind == TaskKind::Forward;
  const std::int32_t store = is_forward ? rule.stored_weights : rule.eager_weights;
  while (order_.weights_waiting(device) > store) put_weight(device);
  const std::int64_t from = order_.arrival(symbol);
  while (order_.weights_waiting(device) > 0 && order_.free_from(device) < from) {
    const std::int64_t gap = from - order_.free_from(device);
    const Wait wait{gap, order_.kind(order_.waiting_weight(device)).duration - gap};
    const bool waits =
        !order_.is_last_need(symbol) && is_worth_waiting(order_, device, rule.delay_policy, wait);
    if (waits) return;
    put_weight(device);
  }
}

/// Whether the next stage has enough forwards and this one would delay a backward.
bool ByWaves::is_put_off(std::int32_t stage) const {
  if (stage + 1 == graph_.stage_count()) return false;
  const Symbol forward = graph_.forward(stage);
  const Symbol behind = graph_.forward(stage + 1);
  if (order_.passed(forward) - order_.passed(behind) < rule_.leads[at(stage)]) return false;
  const std::int32_t device = order_.kind(forward).device;
  const Symbol backward_behind = graph_.backward(stage + 1);
  const std::int64_t backward_from =
      order_.free_from(order_.kind(behind).device) + order_.kind(behind).duration +
      order_.kind(backward_behind).duration + order_.kind(graph_.backward(stage)).lag;
  const std::int64_t gap = backward_from - order_.free_from(device);
  if (gap <= 0) return true;
  const Wait wait{gap, order_.kind(forward).duration - gap};
  return is_worth_waiting(order_, device, rule_.devices[at(device)].delay_policy, wait);
}

/// Returns how many forwards of each stage should have run after the wave, if memory and inputs
/// allow: in the first wave the depth of the stage, then one more per wave. If the forward of a
/// stage is postponed, so are those of all earlier stages.
std::vector<std::int32_t> ByWaves::plan_forwards(std::int32_t wave) const {
  std::vector<std::int32_t> wanted(at(graph_.stage_count()));
  bool is_stopped = false;
  for (std::int32_t s = graph_.stage_count(); s-- > 0;) {
    const std::int32_t passed = order_.passed(graph_.forward(s));
    const std::int32_t most = std::min(graph_.micro_batches(), wave + rule_.depths[at(s)]);
    is_stopped = is_stopped || (wave > 0 && passed > wave && is_put_off(s));
    wanted[at(s)] = wave == 0 ? most : std::min(most, passed + (is_stopped ? 0 : 1));
  }
  return wanted;
}

/// Returns false if the forward that the wave's backward needs does not fit memory.
bool ByWaves::run_forwards(std::int32_t stage, std::int32_t wave, std::int32_t wanted) {
  const Symbol forward = graph_.forward(stage);
  while (order_.passed(forward) < std::max(wanted, wave + 1)) {
    const bool is_needed = order_.passed(forward) <= wave;
    if (order_.arrival(forward) == kNever || !make_room(forward)) return !is_needed;
    fill_before(forward);
    put(forward);
  }
  return true;
}

bool ByWaves::run_backward(std::int32_t stage) {
  const Symbol backward = graph_.backward(stage);
  if (!make_room(backward)) return false;
  fill_before(backward);
  put(backward);
  return true;
}

std::optional<PartialOrder> ByWaves::run() && {
  for (std::int32_t wave = 0; wave < graph_.micro_batches(); ++wave) {
    const std::vector<std::int32_t> wanted = plan_forwards(wave);
    for (std::int32_t s = 0; s < graph_.stage_count(); ++s) {
      if (!run_forwards(s, wave, wanted[at(s)])) return std::nullopt;
    }
    for (std::int32_t s = graph_.stage_count(); s-- > 0;) {
      if (!run_backward(s)) return std::nullopt;
    }
  }
  for (std::int32_t d = 0; d < graph_.device_count(); ++d) {
    while (order_.weights_waiting(d) > 0) put_weight(d);
  }
  return std::move(order_);
}

ListSchedule finish(const PartialOrder& order) {
  return {order.words(), {0, order.worst(), order.sum()}};
}

}  // namespace

std::optional<ListSchedule> list_schedule(const TaskGraph& graph, const ListRule& rule) {
  if (!rule.by_waves) return finish(ByStarts(graph, rule).run());
  const std::optional<PartialOrder> order = ByWaves(graph, rule).run();
  if (!order) return std::nullopt;
  return finish(*order);
}

}  // namespace dapple::schedule_search
