#include "schedule_search/tasks/task_graph.h"

#include <algorithm>

namespace dapple::schedule_search {

TaskGraph::TaskGraph(const TaskProblem& problem)
    : stages_(static_cast<std::int32_t>(problem.stages.size())),
      micro_batches_(problem.num_micro_batches),
      is_split_(problem.split_backward),
      objective_(problem.objective),
      stages_of_(problem.memory_limits.size()),
      work_(problem.memory_limits.size()),
      first_start_(problem.memory_limits.size(), kNotRun),
      after_last_(problem.memory_limits.size(), 0) {
  for (std::size_t d = 0; d < problem.after_last.size(); ++d) {
    after_last_[d] = problem.after_last[d].ns;
  }
  for (const Bytes limit : problem.memory_limits) limits_.push_back(limit.count);
  add_symbols(problem, TaskKind::Forward);
  add_symbols(problem, TaskKind::Backward);
  if (is_split_) add_symbols(problem, TaskKind::WeightGradient);
  for (const TaskSymbol& symbol : kinds_) {
    work_[at(symbol.device)] += micro_batches_ * symbol.duration;
  }
  std::int64_t way = 0;
  for (std::int32_t s = 0; s < stages_; ++s) {
    const TaskStage& stage = problem.stages[at(s)];
    stages_of_[stage.device.position()].push_back(s);
    caps_.push_back(std::min(stage.most_in_flight, micro_batches_));
    std::int64_t& first = first_start_[stage.device.position()];
    if (first == kNotRun) first = way;
    way += stage.forward.ns + stage.send_forward.ns;
  }
}

void TaskGraph::add_symbols(const TaskProblem& problem, TaskKind kind) {
  for (std::int32_t s = 0; s < stages_; ++s) {
    const TaskStage& stage = problem.stages[at(s)];
    TaskSymbol symbol{.kind = kind, .stage = s, .device = stage.device.value};
    switch (kind) {
      case TaskKind::Forward:
        symbol.duration = stage.forward.ns;
        symbol.memory = stage.forward_memory.count;
        symbol.predecessor = s == 0 ? -1 : forward(s - 1);
        symbol.lag = s == 0 ? 0 : problem.stages[at(s - 1)].send_forward.ns;
        symbol.successor = s + 1 < stages_ ? forward(s + 1) : backward(s);
        break;
      case TaskKind::Backward:
        symbol.duration = stage.backward.ns;
        symbol.memory = stage.backward_memory.count;
        symbol.predecessor = s + 1 < stages_ ? backward(s + 1) : forward(s);
        symbol.lag = s + 1 < stages_ ? problem.stages[at(s + 1)].send_backward.ns : 0;
        symbol.successor = s == 0 ? -1 : backward(s - 1);
        break;
      case TaskKind::WeightGradient:
        symbol.duration = stage.weight_gradient.ns;
        symbol.memory = stage.weight_gradient_memory.count;
        symbol.predecessor = backward(s);
        break;
    }
    kinds_.push_back(symbol);
  }
}

TaskOrder TaskGraph::to_order(const Words& words) const {
  std::vector<std::int32_t> passed(kinds_.size(), 0);
  TaskOrder order(words.size());
  for (std::size_t d = 0; d < words.size(); ++d) {
    for (const Symbol symbol : words[d]) {
      const TaskSymbol& kind = kinds_[at(symbol)];
      order[d].push_back({kind.kind, StageIndex{kind.stage}, passed[at(symbol)]++});
    }
  }
  return order;
}

Words TaskGraph::to_words(const TaskOrder& order) const {
  Words words(order.size());
  for (std::size_t d = 0; d < order.size(); ++d) {
    for (const Task task : order[d]) words[d].push_back(id_of(task) / micro_batches_);
  }
  return words;
}

}  // namespace dapple::schedule_search
