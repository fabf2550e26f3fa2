#include "zero_bubble_oracle.h"

#include <algorithm>

namespace dapple::small {
namespace {

/// 0: forward, 1: backward, 2: weight gradient.
std::int64_t time_of(const schedule_search::TaskStage& stage, std::size_t kind) {
  return kind == 0 ? stage.forward.ns : kind == 1 ? stage.backward.ns : stage.weight_gradient.ns;
}

std::int64_t memory_of(const schedule_search::TaskStage& stage, std::size_t kind) {
  return kind == 0   ? stage.forward_memory.count
         : kind == 1 ? stage.backward_memory.count
                     : stage.weight_gradient_memory.count;
}

}  // namespace

OrderOracle::OrderOracle(const schedule_search::TaskProblem& problem)
    : problem_(problem), symbols_(problem.stages.size() * (problem.split_backward ? 3 : 2)) {}

std::optional<std::int64_t> OrderOracle::input(const Partial& partial, std::size_t symbol) const {
  const std::size_t stages = problem_.stages.size();
  const std::size_t kind = symbol / stages;
  const std::size_t s = symbol % stages;
  const std::size_t next = partial.ends[symbol].size();
  std::size_t before = symbol - stages;  // of a backward on the last stage, of a weight gradient
  std::int64_t lag = 0;
  if (kind == 0) {
    if (s == 0) return 0;
    before = symbol - 1;
    lag = problem_.stages[s - 1].send_forward.ns;
  } else if (kind == 1 && s + 1 < stages) {
    before = symbol + 1;
    lag = problem_.stages[s + 1].send_backward.ns;
  }
  if (partial.ends[before].size() <= next) return std::nullopt;
  return partial.ends[before][next] + lag;
}

std::int64_t OrderOracle::objective_at_least(const Partial& partial, std::size_t device) const {
  const std::int64_t after = problem_.after_last.empty() ? 0 : problem_.after_last[device].ns;
  const std::int64_t end = partial.free_from[device] + partial.left[device] + after;
  if (problem_.objective == schedule_search::OrderObjective::Makespan) return end;
  return partial.first_start[device] < 0 ? partial.left[device] + after
                                         : end - partial.first_start[device];
}

bool OrderOracle::is_hopeless(const Partial& partial) const {
  for (std::size_t d = 0; d < partial.free_from.size(); ++d) {
    if (objective_at_least(partial, d) >= limit_) return true;
  }
  return false;
}

bool OrderOracle::is_dominated(const Partial& partial) {
  const std::size_t stages = problem_.stages.size();
  std::vector<std::size_t> passed;
  std::vector<std::int64_t> times = partial.free_from;
  times.push_back(partial.last_start);
  for (std::size_t symbol = 0; symbol < symbols_; ++symbol) {
    const std::vector<std::int64_t>& ends = partial.ends[symbol];
    passed.push_back(ends.size());
    const std::size_t kind = symbol / stages;
    const std::size_t s = symbol % stages;
    // Whoever waits for the task: the next stage, the turn to backwards, the stage before.
    std::size_t from = ends.size();
    if (kind == 0) from = partial.ends[s + 1 < stages ? symbol + 1 : symbol + stages].size();
    if (kind == 1 && s > 0) from = partial.ends[symbol - 1].size();
    for (std::size_t m = from; m < ends.size(); ++m) times.push_back(ends[m]);
  }
  std::vector<std::vector<std::int64_t>>& front = seen_[passed];
  const auto no_later = [](const std::vector<std::int64_t>& a, const std::vector<std::int64_t>& b) {
    return std::equal(a.begin(), a.end(), b.begin(),
                      [](std::int64_t x, std::int64_t y) { return x <= y; });
  };
  for (const auto& other : front) {
    if (no_later(other, times)) return true;
  }
  std::erase_if(front, [&](const auto& other) { return no_later(times, other); });
  front.push_back(std::move(times));
  return false;
}

void OrderOracle::put(const Partial& partial, std::size_t symbol, std::int64_t start) {
  const schedule_search::TaskStage& stage = stage_of(symbol);
  const std::size_t kind = symbol / problem_.stages.size();
  const std::size_t device = stage.device.position();
  Partial next = partial;
  const std::int64_t end = start + time_of(stage, kind);
  next.ends[symbol].push_back(end);
  next.free_from[device] = end;
  if (next.first_start[device] < 0) next.first_start[device] = start;
  next.left[device] -= time_of(stage, kind);
  next.memory[device] += memory_of(stage, kind);
  next.last_start = start;
  if (is_hopeless(next) || is_dominated(next)) return;
  extend(next);
}

void OrderOracle::extend(const Partial& partial) {
  bool is_complete = true;
  for (std::size_t symbol = 0; symbol < symbols_; ++symbol) {
    if (partial.ends[symbol].size() == static_cast<std::size_t>(problem_.num_micro_batches)) {
      continue;
    }
    is_complete = false;
    const std::optional<std::int64_t> from = input(partial, symbol);
    const schedule_search::TaskStage& stage = stage_of(symbol);
    const std::size_t device = stage.device.position();
    const std::int64_t memory =
        partial.memory[device] + memory_of(stage, symbol / problem_.stages.size());
    if (!from || memory > problem_.memory_limits[device].count) continue;
    const std::int64_t start = std::max(*from, partial.free_from[device]);
    if (start >= partial.last_start) put(partial, symbol, start);
  }
  if (!is_complete || is_hopeless(partial)) return;
  std::int64_t objective = 0;
  for (std::size_t d = 0; d < partial.free_from.size(); ++d) {
    objective = std::max(objective, objective_at_least(partial, d));
  }
  limit_ = objective;
  best_ = objective;
}

std::optional<std::int64_t> OrderOracle::least_below(std::int64_t limit) {
  limit_ = limit;
  best_.reset();
  seen_.clear();
  const std::size_t devices = problem_.memory_limits.size();
  Partial start;
  start.ends.resize(symbols_);
  start.free_from.assign(devices, 0);
  start.first_start.assign(devices, -1);
  start.left.assign(devices, 0);
  start.memory.assign(devices, 0);
  for (std::size_t symbol = 0; symbol < symbols_; ++symbol) {
    start.left[stage_of(symbol).device.position()] +=
        problem_.num_micro_batches * time_of(stage_of(symbol), symbol / problem_.stages.size());
  }
  extend(start);
  return best_;
}

}  // namespace dapple::small
