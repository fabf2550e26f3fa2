#include "task_problem.h"

#include <algorithm>
#include <utility>

#include "dapple/search/bound.h"

namespace dapple {
namespace {

/// What the replicas of a group hold of one of its stages at most, and what they have room for.
struct GroupMemory {
  std::vector<Bytes> per_micro_batch;  // by the group's stages
  std::vector<Bytes> recompute_stash;
  Bytes room;
};

GroupMemory memory_of(const std::vector<StageIndex>& stages, const PlanCost& costs) {
  GroupMemory group;
  group.per_micro_batch.resize(stages.size());
  group.recompute_stash.resize(stages.size());
  group.room = {kMaxCount};
  const std::size_t replicas = costs.stages[stages.front().position()].replicas.size();
  for (std::size_t i = 0; i < replicas; ++i) {
    Bytes fixed;
    Bytes workspace;
    Bytes limit;
    for (std::size_t c = 0; c < stages.size(); ++c) {
      const ReplicaCost& replica = costs.stages[stages[c].position()].replicas[i];
      const MemoryCost& memory = replica.memory;
      group.per_micro_batch[c] = std::max(group.per_micro_batch[c], memory.per_micro_batch);
      group.recompute_stash[c] = std::max(group.recompute_stash[c], memory.recompute_stash);
      fixed += memory.fixed() - memory.workspace;
      workspace = std::max(workspace, memory.workspace);
      limit = replica.memory_limit;
    }
    group.room = std::min(group.room, limit - fixed - workspace);
  }
  return group;
}

/// Most micro-batches in flight on any stage of a family without chunks, memory apart. 1F1B's first
/// stage holds as many as there are stages; late ones that hold no less can put off their weight
/// gradients.
std::int64_t most_by_family(const Plan& plan) {
  const auto stages = static_cast<std::int64_t>(plan.stages.size());
  switch (plan.family) {
    case ScheduleFamily::ZeroBubbleH1:
      return std::min(stages, plan.num_micro_batches);
    case ScheduleFamily::ZeroBubbleH2:
      return std::min(2 * stages - 1, plan.num_micro_batches);
    default:
      return plan.num_micro_batches;
  }
}

/// One stage per device: a micro-batch in flight is one slot, whatever it holds.
void count_slots(TaskProblem& problem, const Plan& plan, std::size_t stage,
                 const GroupMemory& memory) {
  std::int64_t slots = most_by_family(plan);
  const Bytes room = memory.room - memory.recompute_stash.front();
  const std::int64_t each = memory.per_micro_batch.front().count;
  if (room.count < 0) {
    slots = 0;
  } else if (each > 0) {
    slots = std::min(slots, room.count / each);
  }
  TaskStage& task = problem.stages[stage];
  task.forward_memory = {1};
  (problem.split_backward ? task.weight_gradient_memory : task.backward_memory) = {-1};
  problem.memory_limits.push_back({slots});
}

/// Several stages per device share its bytes.
void count_bytes(TaskProblem& problem, const Plan& plan, const std::vector<StageIndex>& stages,
                 const GroupMemory& memory) {
  Bytes one_of_each;
  Bytes recomputed;  // of one backward at least
  for (std::size_t c = 0; c < stages.size(); ++c) {
    TaskStage& task = problem.stages[stages[c].position()];
    const Bytes stash = memory.recompute_stash[c];
    task.forward_memory = memory.per_micro_batch[c];
    task.backward_memory = stash;
    task.weight_gradient_memory = Bytes{} - memory.per_micro_batch[c] - stash;
    one_of_each += memory.per_micro_batch[c];
    recomputed = std::max(recomputed, stash);
  }
  // As many as the first device holds under 1F1B, on every device.
  const auto groups = static_cast<std::int64_t>(plan.stages.size() / stages.size());
  const std::int64_t most = std::min(groups, plan.num_micro_batches);
  const Bytes by_family = most * one_of_each + recomputed;
  problem.memory_limits.push_back(std::max(Bytes{}, std::min(memory.room, by_family)));
}

/// How long the computations and transfers of a stage take.
void set_times(TaskStage& task, const PlanCost& costs, std::size_t stage, bool split_backward) {
  const StageCost& cost = costs.stages[stage];
  task.forward = cost.forward;
  task.backward = split_backward ? cost.input_gradient : cost.backward;
  if (split_backward) task.weight_gradient = cost.weight_gradient;
  if (stage < costs.boundaries.size()) {
    task.send_forward = costs.boundaries[stage].forward.front().time;
  }
  if (stage > 0) task.send_backward = costs.boundaries[stage - 1].backward.front().time;
}

}  // namespace

TaskProblem task_problem(const Plan& plan, const PlanCost& costs) {
  TaskProblem problem;
  problem.num_micro_batches = static_cast<std::int32_t>(plan.num_micro_batches);
  problem.split_backward = may_split_backward(plan.family);
  problem.objective = OrderObjective::Makespan;
  problem.stages.resize(plan.stages.size());
  const std::vector<std::vector<StageIndex>> groups = stages_by_device_group(plan);
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (const StageIndex stage : groups[g]) {
      TaskStage& task = problem.stages[stage.position()];
      task.device = index_at<DeviceIndex>(g);
      set_times(task, costs, stage.position(), problem.split_backward);
    }
    const GroupMemory memory = memory_of(groups[g], costs);
    if (groups[g].size() == 1) {
      count_slots(problem, plan, groups[g].front().position(), memory);
    } else {
      count_bytes(problem, plan, groups[g], memory);
    }
  }
  return problem;
}

TaskProblem with_least_path(TaskProblem problem, const PlanCost& costs) {
  const PlanCost least = least_path(costs);
  for (std::size_t s = 0; s < problem.stages.size(); ++s) {
    set_times(problem.stages[s], least, s, problem.split_backward);
  }
  return problem;
}

std::vector<std::vector<Action>> actions_of(const TaskOrder& order, bool split_backward) {
  const auto kind_of = [split_backward](TaskKind kind) {
    switch (kind) {
      case TaskKind::Forward:
        return ActionKind::Forward;
      case TaskKind::Backward:
        return split_backward ? ActionKind::InputGradient : ActionKind::Backward;
      case TaskKind::WeightGradient:
        return ActionKind::WeightGradient;
    }
    throw Bug("a task without a kind");
  };
  std::vector<std::vector<Action>> lists;
  for (const std::vector<Task>& tasks : order) {
    std::vector<Action>& list = lists.emplace_back();
    for (const Task& task : tasks) {
      list.push_back({kind_of(task.kind), task.micro_batch, task.stage});
    }
  }
  return lists;
}

}  // namespace dapple
