#include "planner/families/task_problem.h"

#include <algorithm>
#include <utility>

#include "dapple/search/bounds/bound.h"

namespace dapple::planner {
namespace {

/// What one replica of a group holds for a micro-batch on each of the group's stages, and its
/// memory for micro-batches in flight.
struct ReplicaMemory {
  // One entry for each of the group's stages:
  std::vector<Bytes> per_micro_batch;
  std::vector<Bytes> recompute_stash;
  std::vector<std::int64_t> samples;

  Bytes room;
};

std::vector<ReplicaMemory> memory_of(const std::vector<StageIndex>& stages, const PlanCost& costs) {
  std::vector<ReplicaMemory> replicas(costs.stages[stages.front().position()].replicas.size());
  for (std::size_t i = 0; i < replicas.size(); ++i) {
    ReplicaMemory& replica = replicas[i];
    Bytes fixed;
    Bytes workspace;
    Bytes limit;
    for (const StageIndex stage : stages) {
      const ReplicaCost& cost = costs.stages[stage.position()].replicas[i];
      replica.per_micro_batch.push_back(cost.memory.per_micro_batch);
      replica.recompute_stash.push_back(cost.memory.recompute_stash);
      replica.samples.push_back(cost.samples);
      fixed += cost.memory.fixed() - cost.memory.workspace;
      workspace = std::max(workspace, cost.memory.workspace);
      limit = cost.memory_limit;
    }
    replica.room = limit - fixed - workspace;
  }
  return replicas;
}

/// Returns the limit of a family without chunks on the micro-batches in flight on any stage,
/// regardless of memory. Under H1 it is the number of stages, as on the first stage of 1F1B; late
/// stages that hold as many can delay their weight gradients.
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

/// Sets the memory of a device with one stage, in slots: every micro-batch in flight takes one
/// slot.
void count_slots(schedule_search::TaskProblem& problem, const Plan& plan, std::size_t stage,
                 const std::vector<ReplicaMemory>& replicas) {
  std::int64_t slots = most_by_family(plan);
  for (const ReplicaMemory& replica : replicas) {
    const Bytes room = replica.room - replica.recompute_stash.front();
    const std::int64_t each = replica.per_micro_batch.front().count;
    if (room.count < 0) {
      slots = 0;
    } else if (each > 0) {
      slots = std::min(slots, room.count / each);
    }
  }
  schedule_search::TaskStage& task = problem.stages[stage];
  task.forward_memory = {1};
  (problem.split_backward ? task.weight_gradient_memory : task.backward_memory) = {-1};
  problem.memory_limits.push_back({slots});
}

/// Returns the replica whose room is the smallest multiple of what it holds for one micro-batch.
const ReplicaMemory& tightest(const std::vector<ReplicaMemory>& replicas) {
  const auto each = [](const ReplicaMemory& replica) {
    Wide sum = 1;
    for (const Bytes size : replica.per_micro_batch) sum += size.count;
    for (const Bytes size : replica.recompute_stash) sum += size.count;
    return sum;
  };
  return *std::min_element(replicas.begin(), replicas.end(),
                           [&](const ReplicaMemory& a, const ReplicaMemory& b) {
                             return a.room.count * each(b) < b.room.count * each(a);
                           });
}

/// Sets the memory of a device in bytes of its tightest replica. This is for devices with several
/// stages, and for recomputation with split backwards, where a delayed weight gradient holds the
/// recomputed stash.
void count_bytes(schedule_search::TaskProblem& problem, const Plan& plan,
                 const std::vector<StageIndex>& stages, const ReplicaMemory& replica) {
  Bytes one_of_each;
  Bytes recomputed;  // room for one backward at least
  for (std::size_t c = 0; c < stages.size(); ++c) {
    schedule_search::TaskStage& task = problem.stages[stages[c].position()];
    const Bytes each = replica.per_micro_batch[c];
    const Bytes stash = replica.recompute_stash[c];
    task.forward_memory = each;
    task.backward_memory = stash;
    task.weight_gradient_memory = Bytes{} - each - stash;
    one_of_each += each;
    recomputed = std::max(recomputed, stash);
  }
  Bytes limit = replica.room;
  if (stages.size() == 1) {
    problem.stages[stages.front().position()].most_in_flight =
        static_cast<std::int32_t>(most_by_family(plan));
  } else {
    // Every device may hold as many micro-batches as the first one does under 1F1B.
    const auto groups = static_cast<std::int64_t>(plan.stages.size() / stages.size());
    const std::int64_t most = std::min(groups, plan.num_micro_batches);
    limit = std::min(limit, most * one_of_each + recomputed);
  }
  problem.memory_limits.push_back(std::max(Bytes{}, limit));
}

/// Limits what the stages of a group hold on each replica, with the tensors that wait at boundaries
/// between different devices.
void limit_holdings(schedule_search::TaskProblem& problem, const Plan& plan,
                    const std::vector<StageIndex>& stages,
                    const std::vector<ReplicaMemory>& replicas, const CostModel& model) {
  for (const ReplicaMemory& replica : replicas) {
    schedule_search::HoldingLimit limit{.device = problem.stages[stages.front().position()].device,
                                        .room = replica.room,
                                        .stages = {}};
    for (std::size_t c = 0; c < stages.size(); ++c) {
      const std::size_t s = stages[c].position();
      const StagePlan& stage = plan.stages[s];
      schedule_search::StageHolding holding{.stage = stages[c],
                                            .by_forward = replica.per_micro_batch[c],
                                            .by_backward = replica.recompute_stash[c],
                                            .before = {},
                                            .behind = {}};
      if (s > 0 && plan.stages[s - 1].devices != stage.devices) {
        holding.before = model.in(stage.form).boundary_size(stage.layers.begin, replica.samples[c]);
      }
      if (s + 1 < plan.stages.size() && plan.stages[s + 1].devices != stage.devices) {
        holding.behind = model.in(stage.form).boundary_size(stage.layers.end, replica.samples[c]);
      }
      limit.stages.push_back(holding);
    }
    problem.holding_limits.push_back(std::move(limit));
  }
}

/// Sets the times of the computations and transfers of a stage.
void set_times(schedule_search::TaskStage& task, const PlanCost& costs, std::size_t stage,
               bool split_backward) {
  const StageCost& cost = costs.stages[stage];
  task.forward = cost.forward;
  task.backward = split_backward ? cost.input_gradient : cost.backward;
  if (split_backward) task.weight_gradient = cost.weight_gradient;
  if (stage < costs.boundaries.size()) {
    task.send_forward = costs.boundaries[stage].forward.front().time;
  }
  if (stage > 0) task.send_backward = costs.boundaries[stage - 1].backward.front().time;
}

/// The time from the end of the last weight gradient of a split backward to the end of the stage's
/// optimizer steps.
Duration time_after_last_weight_gradient(StageCost cost) {
  cost.bucket_ready = cost.bucket_ready_in_weights;
  cost.backward = cost.weight_gradient;
  return search::time_after_last_backward(cost);
}

/// A lower bound on the time after the last task of a device. It is exact where the device has one
/// stage and no other messages share the links of its reductions.
Duration after_last(const std::vector<StageIndex>& stages, const PlanCost& costs, bool is_split) {
  if (stages.size() == 1) {
    const StageCost& cost = costs.stages[stages.front().position()];
    return is_split ? time_after_last_weight_gradient(cost)
                    : search::time_after_last_backward(cost);
  }
  Duration steps;
  for (const StageIndex stage : stages) steps += costs.stages[stage.position()].optimizer_step;
  return steps;
}

}  // namespace

schedule_search::TaskProblem task_problem(const Plan& plan, const PlanCost& costs,
                                          const CostModel& model) {
  schedule_search::TaskProblem problem;
  problem.num_micro_batches = static_cast<std::int32_t>(plan.num_micro_batches);
  problem.split_backward = may_split_backward(plan.family);
  problem.objective = schedule_search::OrderObjective::Makespan;
  problem.stages.resize(plan.stages.size());
  const std::vector<std::vector<StageIndex>> groups = stages_by_device_group(plan);
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (const StageIndex stage : groups[g]) {
      schedule_search::TaskStage& task = problem.stages[stage.position()];
      task.device = index_at<DeviceIndex>(g);
      set_times(task, costs, stage.position(), problem.split_backward);
    }
    const std::vector<ReplicaMemory> memory = memory_of(groups[g], costs);
    const std::size_t first = groups[g].front().position();
    const bool recomputes = problem.split_backward && plan.stages[first].recompute;
    if (groups[g].size() == 1 && !recomputes) {
      count_slots(problem, plan, first, memory);
    } else {
      count_bytes(problem, plan, groups[g], tightest(memory));
    }
    limit_holdings(problem, plan, groups[g], memory, model);
    problem.after_last.push_back(after_last(groups[g], costs, problem.split_backward));
  }
  return problem;
}

schedule_search::TaskProblem for_bound(schedule_search::TaskProblem problem, const PlanCost& costs,
                                       bool independent) {
  const PlanCost least = independent ? search::least_path(costs) : PlanCost{};
  const PlanCost& path = independent ? least : costs;
  std::vector<std::vector<StageIndex>> stages(problem.memory_limits.size());
  for (std::size_t s = 0; s < problem.stages.size(); ++s) {
    schedule_search::TaskStage& task = problem.stages[s];
    set_times(task, path, s, problem.split_backward);
    if (problem.split_backward) {
      const Duration rest = path.stages[s].backward - path.stages[s].input_gradient;
      task.weight_gradient = std::clamp(rest, Duration{}, task.weight_gradient);
    }
    stages[task.device.position()].push_back(index_at<StageIndex>(s));
  }
  for (std::size_t d = 0; d < stages.size(); ++d) {
    problem.after_last[d] = after_last(stages[d], path, false);
    // The least path has this time only after a backward in one piece, where it is no longer.
    if (!problem.split_backward || independent) continue;
    problem.after_last[d] = std::min(problem.after_last[d], after_last(stages[d], path, true));
  }
  return problem;
}

schedule_search::TaskOrder tasks_of(const std::vector<std::vector<Action>>& lists,
                                    bool split_backward) {
  schedule_search::TaskOrder order;
  for (const std::vector<Action>& list : lists) {
    std::vector<schedule_search::Task>& tasks = order.emplace_back();
    for (const Action& action : list) {
      const auto add = [&](schedule_search::TaskKind kind) {
        tasks.push_back({kind, action.stage, action.index});
      };
      switch (action.kind) {
        case ActionKind::Forward:
          add(schedule_search::TaskKind::Forward);
          break;
        case ActionKind::Backward:
          add(schedule_search::TaskKind::Backward);
          if (split_backward) add(schedule_search::TaskKind::WeightGradient);
          break;
        case ActionKind::InputGradient:
          add(schedule_search::TaskKind::Backward);
          break;
        case ActionKind::WeightGradient:
          if (split_backward) add(schedule_search::TaskKind::WeightGradient);
          break;
        default:
          break;  // not a task: communication and optimizer steps
      }
    }
  }
  return order;
}

std::vector<std::vector<Action>> actions_of(const schedule_search::TaskOrder& order,
                                            bool split_backward) {
  const auto kind_of = [split_backward](schedule_search::TaskKind kind) {
    switch (kind) {
      case schedule_search::TaskKind::Forward:
        return ActionKind::Forward;
      case schedule_search::TaskKind::Backward:
        return split_backward ? ActionKind::InputGradient : ActionKind::Backward;
      case schedule_search::TaskKind::WeightGradient:
        return ActionKind::WeightGradient;
    }
    throw Bug("a task without a kind");
  };
  std::vector<std::vector<Action>> lists;
  for (const std::vector<schedule_search::Task>& tasks : order) {
    std::vector<Action>& list = lists.emplace_back();
    for (const schedule_search::Task& task : tasks) {
      list.push_back({kind_of(task.kind), task.micro_batch, task.stage});
    }
  }
  return lists;
}

}  // namespace dapple::planner
