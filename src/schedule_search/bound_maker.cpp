#include <algorithm>
#include <queue>
#include <vector>

#include "dapple/schedule_search/order_search.h"
#include "schedule_search/bound_maker.h"

namespace dapple::schedule_search {
namespace {

struct MachineTask {
  std::int64_t head = 0;
  std::int64_t duration = 0;
  std::int64_t tail = 0;
};

/// Returns when all tasks and their tails have ended on a machine with preemption, which always
/// runs the available task with the longest tail. O(tasks * log tasks).
std::int64_t preemptive_end(std::vector<MachineTask> tasks) {
  std::sort(tasks.begin(), tasks.end(),
            [](const MachineTask& a, const MachineTask& b) { return a.head < b.head; });
  const auto has_shorter_tail = [](const MachineTask& a, const MachineTask& b) {
    return a.tail < b.tail;
  };
  std::priority_queue<MachineTask, std::vector<MachineTask>, decltype(has_shorter_tail)> waiting(
      has_shorter_tail);
  std::int64_t now = 0;
  std::int64_t end = 0;
  for (std::size_t next = 0; next < tasks.size() || !waiting.empty();) {
    if (waiting.empty()) now = std::max(now, tasks[next].head);
    while (next < tasks.size() && tasks[next].head <= now) waiting.push(tasks[next++]);
    MachineTask task = waiting.top();
    waiting.pop();
    const std::int64_t until = next < tasks.size() ? tasks[next].head : now + task.duration;
    const std::int64_t part = std::min(task.duration, until - now);
    now += part;
    task.duration -= part;
    if (task.duration > 0) {
      waiting.push(task);
    } else {
      end = std::max(end, now + task.tail);
    }
  }
  return end;
}

std::int64_t machine_bound(const TaskGraph& graph, std::int32_t device, const HeadsAndTails& ways) {
  std::vector<MachineTask> tasks;
  for (Symbol symbol = 0; at(symbol) < graph.kinds().size(); ++symbol) {
    const TaskSymbol& kind = graph.kinds()[at(symbol)];
    if (kind.device != device) continue;
    for (std::int32_t n = 0; n < graph.micro_batches(); ++n) {
      const std::size_t id = at(symbol * graph.micro_batches() + n);
      tasks.push_back({ways.heads[id], kind.duration, ways.tails[id]});
    }
  }
  return preemptive_end(std::move(tasks));
}

}  // namespace

BoundMaker::BoundMaker(const TaskProblem& problem)
    : graph_(problem),
      needs_(memory_needs(graph_)),
      is_span_(problem.objective == OrderObjective::Span) {}

std::int64_t BoundMaker::at_most(std::int64_t goal) const {
  std::int64_t bound = 0;
  HeadsAndTails ways;
  if (!is_span_) ways = heads_and_tails(graph_, needs_, -1, goal);
  for (std::int32_t d = 0; d < graph_.device_count(); ++d) {
    if (is_span_) ways = heads_and_tails(graph_, needs_, d, goal);
    bound = std::max(bound, machine_bound(graph_, d, ways));
  }
  return bound;
}

std::int64_t BoundMaker::refined() const {
  std::int64_t refuted = simple() - 1;
  std::int64_t goal = refuted + 1;
  for (std::int64_t step = 1; at_most(goal) > goal; step *= 2) {
    refuted = goal;
    goal += step;
  }
  while (goal - refuted > 1) {
    const std::int64_t middle = refuted + (goal - refuted) / 2;
    (at_most(middle) > middle ? refuted : goal) = middle;
  }
  return goal;
}

Duration lower_bound(const TaskProblem& problem) {
  return {BoundMaker(problem).refined()};
}

}  // namespace dapple::schedule_search
