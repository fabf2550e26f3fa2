#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "dapple/schedule_search/tasks/task_order.h"

namespace dapple::schedule_search {
namespace {

using TaskName = std::tuple<TaskKind, StageIndex, std::int32_t>;

class OrderChecker {
 public:
  OrderChecker(const TaskProblem& problem, const TaskOrder& order, const TaskStarts& starts)
      : problem_(problem), order_(order), starts_(starts) {}

  std::vector<Violation> run() && {
    if (!has_shape()) return {{"", "expected a start of every task of every device"}};
    for (std::size_t d = 0; d < order_.size(); ++d) {
      check_device(d);
      check_memory(d);
    }
    for (const auto& [name, start] : start_of_) check_task(name, start);
    for (std::size_t s = 0; s < problem_.stages.size(); ++s)
      check_complete(index_at<StageIndex>(s));
    for (const HoldingLimit& limit : problem_.holding_limits) check_holding(limit);
    return std::move(faults_);
  }

 private:
  bool has_shape() const {
    if (order_.size() != problem_.memory_limits.size() || starts_.size() != order_.size()) {
      return false;
    }
    for (std::size_t d = 0; d < order_.size(); ++d) {
      if (starts_[d].size() != order_[d].size()) return false;
    }
    return true;
  }

  bool exists(Task task) const {
    return task.stage.value >= 0 && task.stage.position() < problem_.stages.size() &&
           task.micro_batch >= 0 && task.micro_batch < problem_.num_micro_batches &&
           (problem_.split_backward || task.kind != TaskKind::WeightGradient);
  }

  Duration time_of(Task task) const {
    const TaskStage& stage = problem_.stages[task.stage.position()];
    switch (task.kind) {
      case TaskKind::Forward:
        return stage.forward;
      case TaskKind::Backward:
        return stage.backward;
      case TaskKind::WeightGradient:
        return stage.weight_gradient;
    }
    return {};
  }

  void check_device(std::size_t d) {
    Duration free_from;
    for (std::size_t i = 0; i < order_[d].size(); ++i) {
      const Task task = order_[d][i];
      if (!exists(task)) {
        fault(task, "there is no such task");
        continue;
      }
      const TaskStage& stage = problem_.stages[task.stage.position()];
      if (stage.device.position() != d) fault(task, fmt::format("runs on device {}", d));
      if (starts_[d][i] < free_from) fault(task, "starts before the task before it ends");
      free_from = starts_[d][i] + time_of(task);
      const TaskName name{task.kind, task.stage, task.micro_batch};
      if (!start_of_.emplace(name, starts_[d][i]).second) fault(task, "runs twice");
    }
  }

  std::int64_t most_in_flight(StageIndex stage) const {
    std::int64_t in_flight = 0;
    std::int64_t most = 0;
    for (const Task task : order_[problem_.stages[stage.position()].device.position()]) {
      if (task.stage != stage) continue;
      if (task.kind == TaskKind::Forward) most = std::max(most, ++in_flight);
      if (task.kind == last_kind()) --in_flight;
    }
    return most;
  }

  void check_holding(const HoldingLimit& limit) {
    Bytes held;
    Bytes most;
    for (const Task task : order_[limit.device.position()]) {
      const auto holding =
          std::find_if(limit.stages.begin(), limit.stages.end(),
                       [&](const StageHolding& some) { return some.stage == task.stage; });
      if (holding == limit.stages.end()) continue;
      if (task.kind == TaskKind::Forward) held += holding->by_forward;
      if (task.kind == TaskKind::Backward) held += holding->by_backward;
      most = std::max(most, held);
      if (task.kind == last_kind()) held -= holding->by_forward + holding->by_backward;
    }
    for (const StageHolding& holding : limit.stages) {
      const StageIndex stage = holding.stage;
      const std::int64_t here = most_in_flight(stage);
      if (stage.value > 0) {
        const std::int64_t before = most_in_flight(stage.previous());
        most += std::max<std::int64_t>(0, before - here) * holding.before;
      }
      if (stage.position() + 1 < problem_.stages.size()) {
        const std::int64_t behind = most_in_flight(stage.next());
        most += std::max<std::int64_t>(0, here - behind) * holding.behind;
      }
    }
    if (most <= limit.room) return;
    faults_.push_back({fmt::format("device {}", limit.device.value),
                       fmt::format("holds {} with what waits, and has room for {}", most.count,
                                   limit.room.count)});
  }

  TaskKind last_kind() const {
    return problem_.split_backward ? TaskKind::WeightGradient : TaskKind::Backward;
  }

  Bytes memory_of(Task task) const {
    const TaskStage& stage = problem_.stages[task.stage.position()];
    return task.kind == TaskKind::Forward    ? stage.forward_memory
           : task.kind == TaskKind::Backward ? stage.backward_memory
                                             : stage.weight_gradient_memory;
  }

  void check_memory(std::size_t d) {
    Bytes held;
    for (const Task task : order_[d]) {
      if (!exists(task)) continue;
      held += memory_of(task);
      if (held > problem_.memory_limits[d]) {
        fault(task, fmt::format("memory is {} of {}", held.count, problem_.memory_limits[d].count));
      }
    }
  }

  void check_task(const TaskName& name, Duration start) {
    const auto [kind, stage, micro_batch] = name;
    const Task task{kind, stage, micro_batch};
    const bool is_last = stage.position() + 1 == problem_.stages.size();
    if (kind == TaskKind::Forward && stage.value > 0) {
      const Duration send = problem_.stages[stage.position() - 1].send_forward;
      check_after(task, start, {TaskKind::Forward, stage.previous(), micro_batch}, send);
    }
    if (kind == TaskKind::Backward) {
      check_after(task, start, {TaskKind::Forward, stage, micro_batch}, {});
      if (!is_last) {
        const Duration send = problem_.stages[stage.position() + 1].send_backward;
        check_after(task, start, {TaskKind::Backward, stage.next(), micro_batch}, send);
      }
    }
    if (kind == TaskKind::WeightGradient) {
      check_after(task, start, {TaskKind::Backward, stage, micro_batch}, {});
    }
  }

  void check_after(Task task, Duration start, Task before, Duration lag) {
    const auto found = start_of_.find({before.kind, before.stage, before.micro_batch});
    if (found == start_of_.end()) return;  // its absence is a fault of its own
    if (start < found->second + time_of(before) + lag) {
      fault(task, "starts before " + to_text(before, true) + " has ended and sent");
    }
  }

  void check_complete(StageIndex stage) {
    for (std::int32_t m = 0; m < problem_.num_micro_batches; ++m) {
      for (const TaskKind kind :
           {TaskKind::Forward, TaskKind::Backward, TaskKind::WeightGradient}) {
        const Task task{kind, stage, m};
        if (exists(task) && !start_of_.contains({kind, stage, m})) fault(task, "never runs");
      }
    }
    const std::int64_t most = problem_.stages[stage.position()].most_in_flight;
    if (most_in_flight(stage) <= most) return;
    faults_.push_back(
        {fmt::format("stage {}", stage.value),
         fmt::format("{} micro-batches in flight, more than {}", most_in_flight(stage), most)});
  }

  void fault(Task task, std::string message) {
    faults_.push_back({to_text(task, true), std::move(message)});
  }

  const TaskProblem& problem_;
  const TaskOrder& order_;
  const TaskStarts& starts_;
  std::map<TaskName, Duration> start_of_;
  std::vector<Violation> faults_;
};

}  // namespace

std::vector<Violation> check_order(const TaskProblem& problem, const TaskOrder& order,
                                   const TaskStarts& starts) {
  return OrderChecker(problem, order, starts).run();
}

}  // namespace dapple::schedule_search
