#include "schedule_search/tasks/partial_order.h"

#include <algorithm>

namespace dapple::schedule_search {

PartialOrder::PartialOrder(const TaskGraph& graph)
    : graph_(graph),
      passed_(graph.kinds().size(), 0),
      ends_(graph.task_count(), kNotRun),
      devices_(at(graph.device_count())),
      words_(at(graph.device_count())) {}

std::int64_t PartialOrder::arrival(Symbol symbol) const {
  if (is_done(symbol)) return kNever;
  const std::int64_t ready =
      graph_.ready_time(symbol * graph_.micro_batches() + passed(symbol), ends_);
  return ready == kNotRun ? kNever : ready;
}

std::int64_t PartialOrder::reserve(std::int32_t device, std::int32_t stage) const {
  const std::vector<std::int32_t>& stages = graph_.stages_of(device);
  std::int64_t taken = 0;
  for (const std::int32_t later : stages) {
    const bool is_empty = passed(graph_.forward(later)) == passed(graph_.backward(later));
    if (later > stage && is_empty && !is_done(graph_.backward(later))) {
      taken += kind(graph_.forward(later)).memory;
    }
  }
  std::int64_t most = taken;
  for (auto back = stages.rbegin(); back != stages.rend(); ++back) {
    most = std::max(most, taken + kind(graph_.backward(*back)).memory);
    taken -= kind(graph_.forward(*back)).memory;
  }
  return most;
}

bool PartialOrder::fits(Symbol symbol) const {
  const TaskSymbol& task = kind(symbol);
  const DeviceState& state = devices_[at(task.device)];
  const std::int64_t limit = graph_.limit(task.device);
  const std::int64_t then = state.memory + task.memory;
  if (then > limit) return false;
  if (task.kind == TaskKind::Forward &&
      passed(symbol) - passed(graph_.last_part(task.stage)) >= graph_.cap(task.stage)) {
    return false;
  }
  return task.kind != TaskKind::Forward ||
         then - state.reclaimable + reserve(task.device, task.stage) <= limit;
}

Symbol PartialOrder::waiting_weight(std::int32_t device) const {
  if (weights_waiting(device) == 0) return -1;
  Symbol best = -1;
  for (const std::int32_t stage : graph_.stages_of(device)) {
    const Symbol symbol = graph_.weight(stage);
    if (passed(symbol) == passed(graph_.backward(stage))) continue;
    if (best < 0 || kind(symbol).memory < kind(best).memory) best = symbol;
  }
  return best;
}

bool PartialOrder::is_last_need(Symbol symbol) const {
  const TaskSymbol& task = kind(symbol);
  return task.kind == TaskKind::Backward && task.stage == 0 &&
         is_done(graph_.forward(graph_.stages_of(task.device).back()));
}

std::int64_t PartialOrder::idle(std::int32_t device) const {
  const DeviceState& state = devices_[at(device)];
  if (state.free_from == 0) return graph_.offset(device);
  return value(device) - state.worked;
}

std::int64_t PartialOrder::most_idle() const {
  std::int64_t most = 0;
  for (std::int32_t d = 0; d < graph_.device_count(); ++d) most = std::max(most, idle(d));
  return most;
}

void PartialOrder::put(Symbol symbol, std::int64_t start) {
  const TaskSymbol& task = kind(symbol);
  DeviceState& state = devices_[at(task.device)];
  const std::int32_t id = symbol * graph_.micro_batches() + passed_[at(symbol)]++;
  state.free_from = ends_[at(id)] = start + task.duration;
  state.worked += task.duration;
  state.memory += task.memory;
  words_[at(task.device)].push_back(symbol);
  if (graph_.is_split() && task.kind == TaskKind::Backward) {
    ++state.weights_waiting;
    state.reclaimable -= kind(graph_.weight(task.stage)).memory;
  }
  if (task.kind == TaskKind::WeightGradient) {
    --state.weights_waiting;
    state.reclaimable += task.memory;
  }
}

std::int64_t PartialOrder::value(std::int32_t device) const {
  return free_from(device) - graph_.first_start(device) + graph_.offset(device);
}

std::int64_t PartialOrder::worst() const {
  std::int64_t worst = 0;
  for (std::int32_t d = 0; d < graph_.device_count(); ++d) worst = std::max(worst, value(d));
  return worst;
}

std::int64_t PartialOrder::sum() const {
  std::int64_t sum = 0;
  for (std::int32_t d = 0; d < graph_.device_count(); ++d) sum += value(d);
  return sum;
}

}  // namespace dapple::schedule_search
