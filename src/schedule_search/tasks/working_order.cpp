#include "schedule_search/tasks/working_order.h"

#include <algorithm>

#include "dapple/core/error.h"

namespace dapple::schedule_search {

WorkingOrder::WorkingOrder(const TaskGraph& graph, const HoldingRules& rules, const Words& words)
    : graph_(graph),
      rules_(rules),
      order_(words.size()),
      held_(words.size()),
      busy_(words.size()),
      starts_(graph.task_count(), kNever),
      ran_in_(graph.task_count(), 0),
      trial_starts_(graph.task_count(), 0),
      runs_(words.size()),
      next_number_(graph.kinds().size(), graph.micro_batches()) {
  std::vector<std::int32_t> passed(graph.kinds().size(), 0);
  for (std::int32_t d = 0; d < graph.device_count(); ++d) {
    for (const Symbol symbol : words[at(d)]) {
      order_[at(d)].push_back(symbol * graph.micro_batches() + passed[at(symbol)]++);
    }
    held_[at(d)].assign(order_[at(d)].size() + 1, 0);
    busy_[at(d)].assign(order_[at(d)].size() + 1, 0);
    refresh_prefixes(d, 0);
  }
  if (rules_.may_bind()) trial_holdings_ = rules_.holdings_of(words);
  check(run({}).has_value(), "a working order starts from one that ends");
  keep();
}

Words WorkingOrder::words() const {
  Words words(order_.size());
  for (std::size_t d = 0; d < order_.size(); ++d) {
    for (const std::int32_t id : order_[d]) words[d].push_back(id / graph_.micro_batches());
  }
  return words;
}

void WorkingOrder::refresh_prefixes(std::int32_t device, std::int32_t from) {
  const std::vector<std::int32_t>& order = order_[at(device)];
  for (std::size_t i = at(from); i < order.size(); ++i) {
    const TaskSymbol& kind = graph_.kind_of(order[i]);
    held_[at(device)][i + 1] = held_[at(device)][i] + kind.memory;
    busy_[at(device)][i + 1] = busy_[at(device)][i] + kind.duration;
  }
}

std::int64_t WorkingOrder::gap_before(TaskPlace place) const {
  const std::vector<std::int32_t>& order = order_[at(place.device)];
  if (place.position == 0) return 0;
  const std::int32_t before = order[at(place.position - 1)];
  return starts_[at(order[at(place.position)])] - starts_[at(before)] -
         graph_.kind_of(before).duration;
}

std::vector<TaskPlace> WorkingOrder::critical_tasks() const {
  TaskPlace place{-1, 0};
  for (std::int32_t d = 0; place.device < 0; ++d) {
    const std::int32_t last = order_[at(d)].back();
    const std::int64_t end = starts_[at(last)] + graph_.kind_of(last).duration;
    if (end - graph_.first_start(d) + graph_.offset(d) == value_.worst) {
      place = {d, length(d) - 1};
    }
  }
  std::vector<TaskPlace> tasks;
  while (true) {
    tasks.push_back(place);
    if (place.position > 0 && gap_before(place) == 0) {
      --place.position;
      continue;
    }
    const std::int32_t id = order_[at(place.device)][at(place.position)];
    const TaskSymbol& kind = graph_.kind_of(id);
    if (kind.predecessor < 0) return tasks;
    const std::int32_t before =
        kind.predecessor * graph_.micro_batches() + id % graph_.micro_batches();
    place.device = graph_.kind_of(before).device;
    const std::vector<std::int32_t>& order = order_[at(place.device)];
    // Tasks of length zero may start together, so the search begins at the first with this start.
    auto found = std::lower_bound(
        order.begin(), order.end(), starts_[at(before)],
        [this](std::int32_t task, std::int64_t start) { return starts_[at(task)] < start; });
    found = std::find(found, order.end(), before);
    place.position = static_cast<std::int32_t>(found - order.begin());
  }
}

bool WorkingOrder::is_varied(TaskMove move) const {
  const std::vector<std::int32_t>& order = order_[at(move.device)];
  const Symbol first = order[at(move.begin)] / graph_.micro_batches();
  return std::any_of(order.begin() + move.begin, order.begin() + move.end,
                     [&](std::int32_t id) { return id / graph_.micro_batches() != first; });
}

/// Exchanges the two ranges and renumbers their tasks. Returns false if the result is not legal on
/// the device.
bool WorkingOrder::exchange(TaskMove move) {
  std::vector<std::int32_t>& order = order_[at(move.device)];
  const std::int32_t all = graph_.micro_batches();
  const auto begin = order.begin() + move.begin;
  const auto end = order.begin() + move.end;
  for (auto task = begin; task != end; ++task) {
    std::int32_t& number = next_number_[at(*task / all)];
    number = std::min(number, *task % all);
  }
  std::rotate(begin, order.begin() + move.middle, end);
  bool is_legal = true;
  std::int64_t held = held_[at(move.device)][at(move.begin)];
  for (auto task = begin; task != end; ++task) {
    const Symbol symbol = *task / all;
    const std::int32_t number = next_number_[at(symbol)]++;
    *task = symbol * all + number;
    held += graph_.kinds()[at(symbol)].memory;
    // The number of predecessors on the device is the next number of their symbol. If none is in
    // the range, the order of the two has not changed.
    const bool has_before = symbol >= graph_.stage_count();
    if (has_before && next_number_[at(symbol - graph_.stage_count())] <= number) is_legal = false;
    if (held > graph_.limit(move.device)) is_legal = false;
  }
  for (auto task = begin; task != end; ++task) next_number_[at(*task / all)] = all;
  return is_legal;
}

std::int32_t WorkingOrder::first_from(std::int32_t device, std::int64_t moment,
                                      std::int32_t below) const {
  const std::vector<std::int32_t>& order = order_[at(device)];
  const auto found =
      std::partition_point(order.begin(), order.begin() + below,
                           [this, moment](std::int32_t id) { return starts_[at(id)] < moment; });
  return static_cast<std::int32_t>(found - order.begin());
}

void WorkingOrder::resume(std::int64_t moment, std::int32_t changed_device,
                          std::int32_t changed_place) {
  moment_ = moment;
  awake_.clear();
  for (std::int32_t d = 0; d < graph_.device_count(); ++d) {
    DeviceRun& run = runs_[at(d)];
    run.resumed = run.next = first_from(d, moment, d == changed_device ? changed_place : length(d));
    run.free_from = 0;
    if (run.next > 0) {
      const std::int32_t before = order_[at(d)][at(run.next - 1)];
      run.free_from = starts_[at(before)] + graph_.kind_of(before).duration;
    }
    run.left = graph_.work(d) - busy_[at(d)][at(run.next)];
    awake_.push_back(d);
  }
}

std::int64_t WorkingOrder::ready(std::int32_t id) const {
  const TaskSymbol& kind = graph_.kind_of(id);
  if (kind.predecessor < 0) return 0;
  const std::int32_t before =
      kind.predecessor * graph_.micro_batches() + id % graph_.micro_batches();
  const std::int64_t after = graph_.kinds()[at(kind.predecessor)].duration + kind.lag;
  if (ran_in_[at(before)] == attempt_) return trial_starts_[at(before)] + after;
  return starts_[at(before)] < moment_ ? starts_[at(before)] + after : kNotRun;
}

/// Returns false if the device's objective exceeds the limit.
bool WorkingOrder::advance(std::int32_t device, std::int64_t limit) {
  DeviceRun& run = runs_[at(device)];
  const std::vector<std::int32_t>& order = order_[at(device)];
  const std::int64_t latest = limit + graph_.first_start(device) - graph_.offset(device);
  while (at(run.next) < order.size()) {
    const std::int32_t id = order[at(run.next)];
    const std::int64_t from = ready(id);
    if (from == kNotRun) return true;
    const TaskSymbol& kind = graph_.kind_of(id);
    const std::int64_t start = std::max(from, run.free_from);
    if (start + run.left > latest) return false;
    trial_starts_[at(id)] = start;
    ran_in_[at(id)] = attempt_;
    run.free_from = start + kind.duration;
    run.left -= kind.duration;
    ++run.next;
    if (kind.successor >= 0) {
      const std::int32_t other = graph_.kinds()[at(kind.successor)].device;
      if (other != device) awake_.push_back(other);
    }
  }
  return true;
}

bool WorkingOrder::run_all(std::int64_t limit) {
  while (!awake_.empty()) {
    const std::int32_t device = awake_.back();
    awake_.pop_back();
    if (!advance(device, limit)) return false;
  }
  for (std::int32_t d = 0; d < graph_.device_count(); ++d) {
    if (runs_[at(d)].next < length(d)) return false;
  }
  return true;
}

OrderValue WorkingOrder::value_of_runs() const {
  OrderValue value{0, 0, 0};
  for (std::int32_t d = 0; d < graph_.device_count(); ++d) {
    const std::int64_t of_device =
        runs_[at(d)].free_from - graph_.first_start(d) + graph_.offset(d);
    value.worst = std::max(value.worst, of_device);
    value.sum += of_device;
  }
  return value;
}

bool WorkingOrder::make(TaskMove move) {
  if (!is_varied(move)) return false;
  move_ = move;
  if (exchange(move)) return true;
  undo();
  return false;
}

/// Counts the holdings of the device of the move; those of the others do not change.
void WorkingOrder::count_trial_holdings() {
  trial_holdings_ = holdings_;
  std::vector<Symbol> word;
  word.reserve(order_[at(move_.device)].size());
  for (const std::int32_t id : order_[at(move_.device)]) {
    word.push_back(id / graph_.micro_batches());
  }
  rules_.count(move_.device, word, trial_holdings_);
}

std::optional<OrderValue> WorkingOrder::run(const OrderValue& limit) {
  std::int64_t excess = 0;
  if (rules_.may_bind()) {
    if (!holdings_.memory.empty()) count_trial_holdings();
    excess = rules_.excess(trial_holdings_);
    if (excess > limit.excess) return std::nullopt;
  }
  std::int64_t moment = 0;
  if (move_.begin > 0) {
    const std::int32_t before = order_[at(move_.device)][at(move_.begin - 1)];
    moment = starts_[at(before)] + graph_.kind_of(before).duration;
  }
  ++attempt_;
  resume(moment, move_.device, move_.begin);
  if (!run_all(excess < limit.excess ? kNever : limit.worst)) return std::nullopt;
  attempted_ = value_of_runs();
  attempted_.excess = excess;
  return attempted_;
}

void WorkingOrder::keep() {
  for (std::size_t d = 0; d < order_.size(); ++d) {
    for (std::size_t i = at(runs_[d].resumed); i < order_[d].size(); ++i) {
      starts_[at(order_[d][i])] = trial_starts_[at(order_[d][i])];
    }
  }
  refresh_prefixes(move_.device, move_.begin);
  holdings_ = trial_holdings_;
  value_ = attempted_;
}

void WorkingOrder::undo() {
  exchange({.device = move_.device,
            .begin = move_.begin,
            .middle = move_.begin + move_.end - move_.middle,
            .end = move_.end});
}

}  // namespace dapple::schedule_search
