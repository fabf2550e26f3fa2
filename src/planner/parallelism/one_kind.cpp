#include "planner/parallelism/one_kind.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <variant>
#include <vector>

#include "dapple/core/error.h"
#include "dapple/cost/compatible.h"
#include "dapple/planner/candidates/evaluate.h"
#include "dapple/planner/parallelism/asked_parallelisms.h"
#include "dapple/planner/result/made_plan.h"
#include "dapple/search/placement/placement_space.h"
#include "dapple/topology/servers_of_kind.h"
#include "planner/candidates/work_lower_bound.h"
#include "planner/request/part_of_search.h"

namespace dapple::planner {
namespace {

/// The part of the time limit that the searches for plans of one kind may take together.
constexpr double kPartOfTime = 0.5;

/// The progress of a search for one kind: its bound is not one of the whole.
class OneKindProgress : public PartOfSearch {
 public:
  explicit OneKindProgress(Progress& whole) : PartOfSearch(whole, kPartOfTime) {}
  void update(const SearchProgress& progress) override {
    SearchProgress without_bound = progress;
    without_bound.bound.reset();
    PartOfSearch::update(without_bound);
  }
};

/// Whether the search for the whole may miss plans on one kind alone.
bool may_miss_plans(const PlanningContext& context) {
  if (context.options.planner != PlannerKind::Exact || kinds_in_use(context.topology).size() < 2) {
    return false;
  }
  return !search::PlacementSpace(context.topology, context.options.pins.in_order).is_complete();
}

/// Returns a lower bound on every plan of the forms that are asked for; nothing where no plan can
/// be as pinned, or no form has groups.
std::optional<Duration> bound_of_work(const PlanningContext& context,
                                      const std::optional<PlanRestriction>& restriction,
                                      const std::set<Parallelism>* among) {
  const Pins& pins = context.options.pins;
  const std::int32_t devices = context.topology.device_count();
  if (pins.replicas.value_or(1) > devices || pins.stages.value_or(1) > devices) return std::nullopt;
  std::optional<Duration> least;
  for (const AskedParallelism& asked : asked_parallelisms(context, restriction, among)) {
    const auto* inputs = std::get_if<PlanInputs>(&asked.inputs);
    // A stage in any of several forms does no less work than in the best of them.
    if (inputs == nullptr || !asked.stage_forms.empty()) continue;
    const Topology topology{inputs->topology};
    if (!check_compatible(inputs->profile, topology, context.options.global_batch_size).empty()) {
      continue;
    }
    const Duration of_form = work_lower_bound({inputs->profile, topology, context.options});
    least = std::min(least.value_or(of_form), of_form);
  }
  return least;
}

/// The servers of one kind.
struct ServersOfKind {
  std::int32_t kind = 0;
  Topology topology;
  /// Lower bound on all plans on them.
  Duration of_work;
};

}  // namespace

std::optional<PlanOfOneKind> plan_of_one_kind(const PlanningContext& context,
                                              const std::optional<PlanRestriction>& restriction,
                                              const std::set<Parallelism>* among) {
  if (!may_miss_plans(context)) return std::nullopt;
  std::optional<OneKindProgress> progress;
  if (context.progress != nullptr) progress.emplace(*context.progress);
  std::vector<ServersOfKind> parts;
  for (const std::int32_t kind : kinds_in_use(context.topology)) {
    Topology topology{servers_of_kind(context.topology, kind)};
    const auto of_work =
        bound_of_work({context.profile, topology, context.options}, restriction, among);
    if (of_work) parts.push_back({kind, std::move(topology), *of_work});
  }
  std::stable_sort(parts.begin(), parts.end(), [](const ServersOfKind& a, const ServersOfKind& b) {
    return a.of_work < b.of_work;
  });
  std::optional<PlanOfOneKind> best;
  Duration fastest = Duration::infinite();
  for (const ServersOfKind& part : parts) {
    if (part.of_work >= fastest) break;
    const PlanningContext of_part{context.profile, part.topology, context.options,
                                  progress ? &*progress : nullptr};
    auto made = make_plan_of_any_parallelism(of_part, restriction, among);
    auto* plan = std::get_if<MadePlan>(&made);
    if (plan == nullptr || plan->document.prediction.iteration >= fastest) continue;
    fastest = plan->document.prediction.iteration;
    best = {.kind = part.kind, .plan = std::move(plan->document.plan)};
  }
  return best;
}

std::optional<SimulatedPlan> in_whole(const PlanOfOneKind& found, const PlanInputs& inputs,
                                      const Topology& topology, const PlannerOptions& options) {
  SimulatedPlan simulated{.plan = found.plan};
  Plan& plan = simulated.plan;
  // While parts of a space are searched, the first form is that of the profile.
  plan.parallelism = {};
  plan.stage_forms = stage_forms_of(inputs.profile);
  std::vector<Parallelism> forms{inputs.profile.parallelism};
  forms.insert(forms.end(), plan.stage_forms.begin(), plan.stage_forms.end());
  std::vector<DeviceIndex> of_kind;
  for (std::int32_t d = 0; d < topology.device_count(); ++d) {
    if (topology.device({d}).kind == found.kind) of_kind.push_back({d});
  }
  for (StagePlan& stage : plan.stages) {
    const auto form = std::find(forms.begin(), forms.end(), form_of(found.plan, stage));
    if (form == forms.end()) return std::nullopt;
    stage.form = index_at<FormIndex>(static_cast<std::size_t>(form - forms.begin()));
    for (DeviceIndex& device : stage.devices) {
      check(device.position() < of_kind.size(),
            "the whole has fewer devices of a kind than a part");
      device = of_kind[device.position()];
    }
  }
  const auto iteration =
      iteration_below(Duration::infinite(), plan, CostModel(inputs.profile, topology), options);
  if (!iteration) return std::nullopt;
  simulated.iteration = *iteration;
  return simulated;
}

}  // namespace dapple::planner
