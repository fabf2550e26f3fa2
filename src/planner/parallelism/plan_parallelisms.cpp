#include "dapple/planner/parallelism/plan_parallelisms.h"

#include <algorithm>
#include <optional>
#include <set>
#include <variant>
#include <vector>

#include "dapple/plan/record_text.h"
#include "dapple/planner/candidates/plan_pool.h"
#include "dapple/planner/parallelism/asked_parallelisms.h"
#include "dapple/profile/variants.h"
#include "dapple/topology/servers_of_kind.h"
#include "planner/parallelism/one_kind.h"
#include "planner/parallelism/parallelism_comparison.h"
#include "planner/request/asked_families.h"
#include "planner/request/part_of_search.h"
#include "planner/result/median_choice.h"

namespace dapple::planner {
namespace {

/// Whether a remedy is more memory or devices.
bool is_more_hardware(RemedyKind kind) {
  return kind == RemedyKind::MoreDevices || kind == RemedyKind::OnlyMoreMemory ||
         kind == RemedyKind::MoreMemory || kind == RemedyKind::SomeMemory;
}

/// Whether there is a form of parallelism that is asked for and has groups.
bool has_parts(const PlanningContext& context, const std::optional<PlanRestriction>& restriction) {
  const std::vector<AskedParallelism> asked = asked_parallelisms(context, restriction);
  return std::any_of(asked.begin(), asked.end(), [](const AskedParallelism& form) {
    return std::holds_alternative<PlanInputs>(form.inputs);
  });
}

/// Names sharded state as the remedy where nothing but more hardware was found to help, and the
/// DAPPLE planner finds a plan with it.
void look_for_sharded_remedy(Infeasible& infeasible, const PlanningContext& context,
                             const std::optional<PlanRestriction>& restriction) {
  const PlannerOptions& asked = context.options;
  const bool is_lacking =
      infeasible.shortage && !infeasible.stopped && is_more_hardware(infeasible.remedy.kind);
  if (!is_lacking || asked.sharding != Sharding::None ||
      asked.optimizer == OptimizerTiming::PerBucket || asks_for_families(asked)) {
    return;
  }
  PlannerOptions options = asked;
  options.planner = PlannerKind::Dapple;
  options.baselines = false;
  const bool may_shard_optimizer = !restriction || restriction->shards_optimizer;
  const bool may_shard_all = !restriction || restriction->shards_all_state;
  for (const Sharding sharding : {Sharding::Optimizer, Sharding::Full}) {
    const bool is_full = sharding == Sharding::Full;
    if (is_full ? !may_shard_all : !may_shard_optimizer) continue;
    options.sharding = sharding;
    if (is_full && !has_parts(context.with(options), restriction)) continue;
    const auto made = ParallelismComparison(context.with(options), restriction, nullptr).run();
    if (!std::holds_alternative<MadePlan>(made)) continue;
    infeasible.remedy = {.kind = is_full ? RemedyKind::AllStateSharded : RemedyKind::ShardedState};
    return;
  }
}

/// Sets what the document says of the layers that recompute.
void set_recomputed_layers(MadePlan& made, const PlanningContext& context,
                           const std::optional<PlanRestriction>& restriction) {
  PlanDocument& document = made.document;
  const bool is_searched = searches_some_layers(context, restriction);
  if (document.request) {
    document.request->recomputed_layers =
        is_searched ? RecomputedLayers::Any : RecomputedLayers::All;
  }
  const SelectableLayers all{.first = true, .every_nth = true};
  const SelectableLayers selectable = restriction ? restriction->recomputed_layers : all;
  const SelectableLayers searched = is_searched ? selectable : SelectableLayers{};
  if (recomputes_in_some_form(context.profile)) {
    document.search.outside += recomputation_outside_space(searched);
  }
}

/// Makes a plan from a profile without variants.
std::variant<MadePlan, Infeasible> plan_of_own_form(
    const PlanningContext& context, const std::optional<PlanRestriction>& restriction) {
  const auto of_one_kind = plan_of_one_kind(context, restriction, nullptr);
  if (!of_one_kind) return plan_as_restricted(context, restriction);
  const PlanInputs inputs{context.profile, context.topology.description()};
  const auto first = in_whole(*of_one_kind, inputs, context.topology, context.options);
  if (!first) return plan_as_restricted(context, restriction);
  PlanningContext from_first = context;
  from_first.first_plan = &first->plan;
  from_first.first_iteration = first->iteration;
  return plan_as_restricted(from_first, restriction);
}

/// Makes the fastest plan of any form of parallelism.
std::variant<MadePlan, Infeasible> make_fastest_plan(
    const PlanningContext& context, const std::optional<PlanRestriction>& restriction,
    const std::set<Parallelism>* among) {
  const bool has_variants = parallelisms_of(context.profile).size() > 1;
  const Pins& pins = context.options.pins;
  const bool is_pinned = pins.tensor.value_or(1) != 1 || pins.context.value_or(1) != 1 ||
                         pins.experts.value_or(1) != 1 || pins.expert_tensor.value_or(1) != 1 ||
                         pins.shards.value_or(1) != 1 || pins.recomputation;
  const bool may_shard = context.options.sharding != Sharding::None;
  auto made = has_variants || is_pinned || may_shard
                  ? ParallelismComparison(context, restriction, among).run()
                  : plan_of_own_form(context, restriction);
  if (auto* infeasible = std::get_if<Infeasible>(&made)) {
    look_for_sharded_remedy(*infeasible, context, restriction);
  } else if (kinds_in_use(context.topology).size() > 1) {
    const bool are_by_speed =
        !restriction && has_shares_by_speed(context.options, context.topology);
    std::get<MadePlan>(made).document.search.outside +=
        shares_outside_space(are_by_speed ? Shares::Any : Shares::Equal);
  }
  if (auto* plan = std::get_if<MadePlan>(&made)) set_recomputed_layers(*plan, context, restriction);
  return made;
}

/// The part of the time limit that the search may take where plans are compared behind it.
constexpr double kPartOfSearch = 0.75;

}  // namespace

std::variant<MadePlan, Infeasible> make_plan_of_any_parallelism(
    const PlanningContext& context, const std::optional<PlanRestriction>& restriction,
    const std::set<Parallelism>* among) {
  if (!context.options.jitter) return make_fastest_plan(context, restriction, among);
  PlannerOptions options = context.options;
  options.jitter.reset();
  std::optional<PartOfSearch> part;
  if (context.progress != nullptr) part.emplace(*context.progress, kPartOfSearch);
  PlanPool pool;
  PlanningContext first = context.with(options);
  first.progress = part ? &*part : nullptr;
  first.pool = &pool;
  auto made = make_fastest_plan(first, restriction, among);
  if (auto* plan = std::get_if<MadePlan>(&made)) {
    choose_by_median(*plan, pool, context, restriction);
  }
  return made;
}

}  // namespace dapple::planner
