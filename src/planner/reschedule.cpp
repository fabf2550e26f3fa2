#include "dapple/planner/reschedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "dapple/schedule_search/order_search.h"
#include "dapple/search/bound.h"
#include "dapple/search/even_split.h"
#include "dapple/simulate/device_memory.h"
#include "reorder.h"
#include "scoring.h"
#include "task_problem.h"

namespace dapple {
namespace {

/// How often what waits at the boundaries may ask for less in flight.
constexpr int kMostTightenings = 8;
constexpr std::int64_t kActionsForDepths = 24'000'000;

class Rescheduler {
 public:
  Rescheduler(const Plan& plan, const CostModel& costs, const Reschedule& options)
      : filed_(plan),
        profile_(costs.profile()),
        topology_(costs.topology()),
        options_(options),
        costs_(costs) {}

  std::variant<Reordered, NoSchedule> run();

 private:
  bool recut();
  void choose_depths();
  void take_order();
  void search_order();
  Duration bound_of(const FoundOrder& found, const TaskProblem& problem,
                    const PlanCost& costs) const;
  bool deals() const {
    return std::any_of(plan_.stages.begin(), plan_.stages.end(), [](const StagePlan& stage) {
      return stage.replication == Replication::Deal && stage.devices.size() > 1;
    });
  }
  void refuse(std::string reason) { reasons_.push_back(std::move(reason)); }

  const Plan& filed_;
  const ModelProfile& profile_;
  const Topology& topology_;
  const Reschedule& options_;
  const CostModel& costs_;
  Plan plan_;
  std::optional<Duration> lower_bound_;
  std::vector<std::string> reasons_;
};

std::variant<Reordered, NoSchedule> Rescheduler::run() {
  plan_ = filed_;
  plan_.family = options_.family;
  plan_.chunks_per_device = options_.chunks_per_device;
  plan_.order.clear();
  if (recut()) {
    fill_gradient_buckets(plan_, profile_);
    if (options_.family == ScheduleFamily::Given) {
      take_order();
    } else if (carries_order(options_.family)) {
      search_order();
    } else {
      choose_depths();
    }
  }
  if (!reasons_.empty()) return NoSchedule{std::move(reasons_)};
  // A searched order's bound is to the last backward, behind which a step follows.
  return Reordered{.plan = std::move(plan_), .lower_bound = lower_bound_};
}

/// Stages for every chunk of every group of devices. False if there are not enough layers.
bool Rescheduler::recut() {
  const std::vector<std::vector<StageIndex>> groups = stages_by_device_group(filed_);
  const auto group_count = static_cast<std::int64_t>(groups.size());
  const std::int64_t stages = group_count * options_.chunks_per_device;
  const auto group_of = [&](std::int64_t stage) {
    const bool is_way_back = options_.family == ScheduleFamily::ZeroBubbleV && stage >= group_count;
    const std::int64_t group = is_way_back ? stages - 1 - stage : stage % group_count;
    return groups[static_cast<std::size_t>(group)].front().position();
  };
  const auto is_kept = [&](const StagePlan& stage, std::size_t number) {
    return stage.devices == filed_.stages[group_of(static_cast<std::int64_t>(number))].devices;
  };
  bool same_places = stages == static_cast<std::int64_t>(filed_.stages.size());
  for (std::size_t s = 0; same_places && s < filed_.stages.size(); ++s) {
    same_places = is_kept(filed_.stages[s], s);
  }
  if (same_places) return true;
  if (stages > costs_.layer_count()) {
    refuse(fmt::format("expected at least {} layers, one for each stage, got {}", stages,
                       costs_.layer_count()));
    return false;
  }
  const auto time_of = [&](std::int32_t stage, LayerRange layers) {
    const StagePlan& home = filed_.stages[group_of(stage)];
    Duration slowest;
    for (std::size_t i = 0; i < home.devices.size(); ++i) {
      const LayerTable& table =
          costs_.table(samples_of(filed_, home, i).size(), topology_.device(home.devices[i]).kind);
      slowest = std::max(slowest, table.forward(layers) + table.backward(layers));
    }
    return slowest;
  };
  plan_.stages.clear();
  const std::vector<LayerRange> cuts =
      balanced_split(costs_.layer_count(), static_cast<std::int32_t>(stages), time_of);
  for (std::int64_t s = 0; s < stages; ++s) {
    StagePlan stage = filed_.stages[group_of(s)];
    stage.layers = cuts[static_cast<std::size_t>(s)];
    stage.gradient_buckets.clear();
    plan_.stages.push_back(std::move(stage));
  }
  return true;
}

void Rescheduler::choose_depths() {
  plan_.warmup_depths.assign(plan_.stages.size(), plan_.num_micro_batches);
  if (options_.family == ScheduleFamily::OneFOneB && deals()) {
    // Less in flight may deadlock, which depends on who is dealt what: what it had is kept.
    if (filed_.family == options_.family) plan_.warmup_depths = filed_.warmup_depths;
    return;
  }
  if (options_.family == ScheduleFamily::OneFOneB) {
    const PlannerOptions search{.global_batch_size = plan_.global_batch_size,
                                .micro_batch_size = plan_.micro_batch_size,
                                .bucket_size = plan_.gradients.bucket_size,
                                .optimizer = plan_.gradients.optimizer,
                                .family = options_.family,
                                .contention = options_.contention,
                                .replicas = options_.replicas};
    const Scorer scorer(profile_, topology_, search);
    const Score score = scorer.improve({.micro_batch_size = plan_.micro_batch_size,
                                        .gradients = plan_.gradients,
                                        .stages = plan_.stages,
                                        .bound = {}},
                                       0, kActionsForDepths);
    if (!score.best.feasible()) {
      refuse("not even one micro-batch in flight on every stage fits into memory");
      return;
    }
    plan_.warmup_depths = score.best.plan.warmup_depths;
    return;
  }
  const std::vector<Violation> faults = validate(plan_, costs_.layer_count(), topology_);
  for (const Violation& fault : faults) refuse(fault.place + ": " + fault.message);
  if (faults.empty()) fill_depths(plan_);
}

void Rescheduler::take_order() {
  plan_.order = options_.order;
  plan_.warmup_depths.assign(plan_.stages.size(), plan_.num_micro_batches);
  for (const Violation& fault : validate(plan_, costs_.layer_count(), topology_)) {
    refuse(fault.place + ": " + fault.message);
  }
  if (!reasons_.empty()) return;
  fill_depths(plan_);
  for (const Violation& fault : validate(generate(plan_), plan_)) {
    refuse(fault.place.empty() ? fault.message : fault.place + ": " + fault.message);
  }
}

/// Buffers for micro-batches that wait depend on the depths, which are the order's: memory is
/// counted without them first, and where the order then lacks some it gets by with less.
void Rescheduler::search_order() {
  if (deals()) {
    return refuse(
        fmt::format("expected replicas that share each micro-batch, as {} deals none, "
                    "got a stage that deals them",
                    to_string(plan_.family)));
  }
  plan_.warmup_depths.assign(plan_.stages.size(), 1);
  const PlanCost costs = costs_.plan_cost(plan_);
  TaskProblem problem = task_problem(plan_, costs);
  for (int attempt = 0; attempt < kMostTightenings; ++attempt) {
    const std::optional<FoundOrder> found = dapple::search_order(
        problem, {.evaluations = options_.evaluations, .should_stop = options_.should_stop});
    if (!found) break;
    if (!lower_bound_) lower_bound_ = bound_of(*found, problem, costs);
    plan_.order = actions_of(found->order, problem.split_backward);
    fill_depths(plan_);
    const Schedule schedule = generate(plan_);
    const PlanCost fresh = costs_.plan_cost(plan_);
    const std::vector<MemoryShortage> shortages = memory_shortages(schedule, fresh);
    if (shortages.empty()) return;
    const bool in_slots = plan_.chunks_per_device == 1;
    for (const MemoryShortage& shortage : shortages) {
      const DeviceIndex group = problem.stages[shortage.stage.position()].device;
      Bytes& limit = problem.memory_limits[group.position()];
      limit -= in_slots ? Bytes{1} : shortage.missing();
      if (limit.count < 0) limit = {};
    }
  }
  refuse(fmt::format("no order of {} was found that fits into memory", to_string(plan_.family)));
}

Duration Rescheduler::bound_of(const FoundOrder& found, const TaskProblem& problem,
                               const PlanCost& costs) const {
  const SimulationMode mode{options_.contention, options_.replicas};
  if (!follows_least_path({plan_, costs, topology_, mode})) return found.lower_bound;
  return lower_bound(with_least_path(problem, costs));
}

}  // namespace

std::variant<Reordered, NoSchedule> reorder(const Plan& plan, const CostModel& costs,
                                            const Reschedule& options) {
  return Rescheduler(plan, costs, options).run();
}

std::variant<Rescheduled, NoSchedule> reschedule(const Plan& plan, const ModelProfile& profile,
                                                 const Topology& topology,
                                                 const Reschedule& options) {
  auto reordered = reorder(plan, CostModel(profile, topology), options);
  if (auto* none = std::get_if<NoSchedule>(&reordered)) return std::move(*none);
  Rescheduled result;
  result.plan = std::move(std::get<Reordered>(reordered).plan);
  result.lower_bound = std::get<Reordered>(reordered).lower_bound;
  result.evaluation =
      evaluate(result.plan, profile, topology, {options.contention, options.replicas});
  return result;
}

}  // namespace dapple
