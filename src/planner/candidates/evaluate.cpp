#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <optional>

#include "dapple/core/error.h"
#include "dapple/core/parallel.h"
#include "dapple/cost/compatible.h"
#include "dapple/planner/candidates/evaluate.h"
#include "dapple/planner/candidates/explain.h"
#include "dapple/planner/candidates/score.h"
#include "dapple/simulate/device_memory.h"
#include "dapple/topology/servers_of_kind.h"
#include "planner/candidates/candidate_evaluator.h"

namespace dapple::planner {
namespace {

/// Fills in what a plan has from its profile.
void complete(Plan& plan, const ModelProfile& profile) {
  fill_gradient_buckets(plan, profile);
  plan.skip_tensors = profile.skip_tensors;
  plan.boundaries = profile.boundaries;
}

/// The time of the whole global batch at once on the fastest device, memory ignored; where stages
/// differ, with every layer in its fastest form of those with groups of the plan's own size.
Duration time_on_one_device(const Plan& plan, const CostModel& costs) {
  const LayerRange all{0, costs.layer_count()};
  Duration least = Duration::infinite();
  for (const std::int32_t kind : kinds_in_use(costs.topology())) {
    std::vector<const LayerTable*> tables;
    for (FormIndex form; form.value < costs.form_count(); form = form.next()) {
      if (costs.in(form).devices_per_replica() > 1) continue;
      tables.push_back(&costs.in(form).table(plan.global_batch_size, kind));
    }
    Duration time;
    for (std::int32_t layer = 0; layer < costs.layer_count(); ++layer) {
      const LayerRange alone{layer, layer + 1};
      Duration fastest = Duration::infinite();
      for (const LayerTable* table : tables) {
        fastest = std::min(fastest, table->least_forward(alone) + table->least_backward(alone));
      }
      time += fastest;
    }
    Duration update = Duration::infinite();
    for (FormIndex form; form.value < costs.form_count(); form = form.next()) {
      const CostModel& in_form = costs.in(form);
      if (in_form.devices_per_replica() > 1) continue;
      update = std::min(update, in_form.group_reduction(all, kind) + in_form.optimizer_step(all));
    }
    least = std::min(least, time + update);
  }
  return least;
}

StageFigures figures_of(const PlanCost& costs, std::size_t stage) {
  const StageCost& cost = costs.stages[stage];
  StageFigures figures{.forward = cost.forward,
                       .backward = cost.backward,
                       .send = {},
                       .all_reduce = cost.tied_reduction,
                       .optimizer_step = cost.optimizer_step};
  if (stage < costs.boundaries.size()) figures.send = costs.boundaries[stage].forward.front().size;
  for (const SkipCost& skip : costs.skips) {
    if (skip.from.position() == stage) figures.send += skip.transfers.forward.front().size;
  }
  for (const AllReduceCost& bucket : cost.buckets) figures.all_reduce += bucket.time;
  return figures;
}

/// Plans with more stage passes than this are not simulated in the other mode for replicas.
constexpr std::int64_t kMostPassesOfOther = 2'000'000;

/// Returns the iteration in the other mode for replicas (together or independent), if that makes a
/// difference and does not take too long.
std::optional<Duration> with_other_replicas(const Plan& plan, const PlanCost& costs,
                                            const Topology& topology, SimulationMode mode) {
  if (!splits_micro_batches(plan) || mode.blocks() || has_larger_groups(plan)) return std::nullopt;
  const bool are_together = mode.replicas == Replicas::Together;
  const Replicas other = are_together ? Replicas::Independent : Replicas::Together;
  if (lane_passes(plan.stages, plan.num_micro_batches, other) > kMostPassesOfOther) {
    return std::nullopt;
  }
  return simulate::simulate(generate(plan, other), costs, topology,
                            {.contention = mode.contention, .record = false})
      .iteration;
}

double seconds(Duration time) {
  return static_cast<double>(time.ns) * 1e-9;
}

std::vector<DeviceFigures> device_figures(const Evaluation& evaluation,
                                          const std::vector<Duration>& busy,
                                          const std::vector<Bytes>& peaks) {
  std::vector<DeviceFigures> figures;
  const Timeline& timeline = evaluation.timeline;
  for (std::size_t d = 0; d < timeline.memory.size(); ++d) {
    const DeviceMemory& memory = timeline.memory[d];
    figures.push_back({.device = memory.device,
                       .peak_memory = peaks[d],
                       .memory_limit = memory.limit,
                       .busy_fraction = seconds(busy[memory.lane.position()]) /
                                        std::max(1e-9, seconds(evaluation.prediction.iteration))});
  }
  std::sort(figures.begin(), figures.end(),
            [](const auto& a, const auto& b) { return a.device < b.device; });
  return figures;
}

/// Iterations with communication made free; nothing where that changes nothing.
struct PartialTimes {
  std::optional<Duration> without_transfers;
  std::optional<Duration> without_reductions;
  /// Without either.
  std::optional<Duration> alone;
};

/// Fills in what of a prediction follows from its iteration, the timeline, the partial times and
/// the time that each lane is busy.
void predict(Evaluation& evaluation, const Plan& plan, const PartialTimes& times,
             const std::vector<Duration>& busy, const Topology& topology) {
  Prediction& prediction = evaluation.prediction;
  const Duration iteration = prediction.iteration;
  prediction.samples_per_second =
      static_cast<double>(plan.global_batch_size) / std::max(1e-9, seconds(iteration));
  prediction.bubble_fraction = bubble_fraction(evaluation.timeline, iteration, busy);
  const Duration without_transfers = times.without_transfers.value_or(iteration);
  prediction.exposed_transfer = std::max(Duration{}, iteration - without_transfers);
  prediction.exposed_all_reduce =
      std::max(Duration{}, iteration - times.without_reductions.value_or(iteration));
  prediction.parts = time_parts(
      {.costs = evaluation.costs,
       .schedule = evaluation.schedule,
       .iteration = iteration,
       .without_transfers = without_transfers,
       .alone = times.alone.value_or(times.without_reductions.value_or(without_transfers))},
      topology);
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    prediction.stages.push_back(figures_of(evaluation.costs, s));
  }
}

}  // namespace

int threads_for(const Plan& plan, Replicas replicas) {
  // A recorded simulation has room for two simulations (kBytesOfARecordedPass).
  constexpr std::int64_t kFewPasses = 10'000;
  // On shared links every replica of a pass has flows of its own.
  constexpr std::int64_t kFewPassesOfReplicas = 100'000;
  std::int64_t replicas_in_all = 0;
  for (const StagePlan& stage : plan.stages) replicas_in_all += std::ssize(stage.devices);
  const bool is_long = lane_passes(plan.stages, plan.num_micro_batches, replicas) > kFewPasses ||
                       replicas_in_all * plan.num_micro_batches > kFewPassesOfReplicas;
  return is_long ? 2 : 1;
}

Evaluation evaluate(Plan& plan, const ModelProfile& profile, const Topology& topology,
                    SimulationMode mode, const std::function<void()>& beside) {
  complete(plan, profile);
  const CostModel model(profile, topology);
  Evaluation evaluation;
  evaluation.costs = model.plan_cost(plan);
  evaluation.schedule = generate(plan, mode.replicas);
  const auto time_without = [&](simulate::SimulationOptions options) {
    options.contention = mode.contention;
    options.transfers = mode.transfers;
    options.record = false;
    return simulate::simulate(evaluation.schedule, evaluation.costs, topology, options).iteration;
  };
  simulate::SimulationResult run;
  PartialTimes times;
  std::vector<Bytes> peaks;
  const bool has_transfers = !evaluation.costs.boundaries.empty();
  const bool reduces = has_reductions(evaluation.costs);
  const std::function<void()> parts[] = {
      // The longest comes first, so that the others are done beside it.
      [&] { evaluation.otherwise = with_other_replicas(plan, evaluation.costs, topology, mode); },
      [&] {
        run = simulate::simulate(evaluation.schedule, evaluation.costs, topology,
                                 {.contention = mode.contention, .transfers = mode.transfers});
      },
      [&] {
        if (!has_transfers) return;
        times.without_transfers = time_without({.free_transfers = true});
      },
      [&] {
        if (!reduces) return;
        times.without_reductions = time_without({.free_all_reduce = true});
      },
      [&] {
        if (!has_transfers || !reduces) return;
        times.alone = time_without({.free_transfers = true, .free_all_reduce = true});
      },
      [&] {
        const std::vector<DeviceMemory> memory =
            simulate::device_memory(evaluation.schedule, evaluation.costs);
        peaks = simulate::peak_memories(evaluation.schedule, memory);
        evaluation.shortages = simulate::memory_shortages(memory, peaks);
      },
      [&] {
        if (beside) beside();
      }};
  parallel_for(std::size(parts), threads_for(plan, mode.replicas),
               [&](std::size_t i) { parts[i](); });
  evaluation.timeline = std::move(run.timeline);
  evaluation.prediction.contention = suited_to(topology.description(), mode.contention);
  evaluation.prediction.replicas = mode.replicas;
  evaluation.prediction.transfers = mode.transfers;
  evaluation.prediction.iteration = run.iteration;
  evaluation.prediction.speedup_over_one_device =
      seconds(time_on_one_device(plan, model)) / std::max(1e-9, seconds(run.iteration));
  const std::vector<Duration> busy = busy_times(evaluation.timeline);
  predict(evaluation, plan, times, busy, topology);
  evaluation.prediction.devices = device_figures(evaluation, busy, peaks);
  return evaluation;
}

std::optional<Duration> iteration_below(Duration most, Plan& plan, const CostModel& costs,
                                        const PlannerOptions& options) {
  complete(plan, costs.profile());
  const PlanCost cost = costs.plan_cost(plan);
  const SimulationMode mode = options.mode();
  const bool fits = options.ignore_memory ||
                    simulate::memory_shortages(generate(plan, mode.replicas), cost).empty();
  if (!fits) return std::nullopt;
  Score score;
  const Duration iteration =
      simulate_and_count({plan, cost, costs.topology(), mode}, score, {}, most);
  return iteration < most ? std::optional(iteration) : std::nullopt;
}

std::vector<Violation> check_plan(const Plan& plan, const ModelProfile& profile,
                                  const Topology& topology) {
  std::vector<Violation> violations = costing_faults(plan, profile, topology);
  if (!violations.empty()) return violations;
  const Schedule schedule = generate(plan);
  violations = validate(schedule, plan);
  if (!violations.empty()) return violations;
  const CostModel model(profile, topology);
  for (const MemoryShortage& shortage :
       simulate::memory_shortages(schedule, model.plan_cost(plan))) {
    violations.push_back(
        {fmt::format("/stages/{}", shortage.stage.value),
         fmt::format("memory exceeded: device {} needs {} bytes, has {}: {} are missing",
                     topology.device(shortage.device).name, shortage.needed.count,
                     shortage.limit.count, shortage.missing().count)});
  }
  return violations;
}

}  // namespace dapple::planner
