#include "app/request/for_target.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "dapple/command_line/options.h"
#include "dapple/interop/exports/exports.h"
#include "dapple/planner/request/plan_restriction.h"
#include "dapple/planner/request/planner_options.h"
#include "dapple/profile/variants.h"
#include "dapple/report/show.h"

namespace dapple::app {
namespace {

/// Returns the families that the runtime can run. GPipe is left out, as it is 1F1B with all
/// micro-batches in flight.
std::vector<ScheduleFamily> families_of(const interop::RuntimeLimits& limits,
                                        const ModelProfile& profile) {
  std::vector<ScheduleFamily> families{ScheduleFamily::OneFOneB};
  for (const ScheduleFamily family : kScheduleFamilies) {
    const bool is_beyond = !is_planned_as_1f1b(family) && family != ScheduleFamily::Given;
    if (is_beyond && interop::runs(limits, profile, family)) families.push_back(family);
  }
  return families;
}

void check_schedule(const interop::RuntimeLimits& limits, const ModelProfile& profile,
                    const planner::PlannerOptions& planner) {
  const ScheduleFamily family = planner.family.value_or(ScheduleFamily::OneFOneB);
  if (planner.every_family || interop::runs(limits, profile, family)) return;
  if (interop::runnable_orders(limits, family) == interop::RunnableOrders::None) {
    throw command_line::usage_error("--schedule", interop::family_refusal(limits, family));
  }
  throw command_line::usage_error(
      "--schedule", fmt::format("expected whole backwards, as layers share weights, whose "
                                "gradients {} does not make in a second part, got {}",
                                limits.name, to_string(family)));
}

/// Returns the layers that begin no stage. Throws Error(BadInput) that names the model's option.
std::vector<std::int32_t> joints_of(const interop::RuntimeLimits& limits,
                                    const ModelProfile& profile) {
  try {
    return interop::inexpressible_cuts(limits, profile);
  } catch (const Error& error) { throw Error{error.kind(), "--model", error.violations()}; }
}

/// Throws Error(Usage) if the runtime cuts the model into stages itself, and into none as pinned.
void check_boundaries(const interop::RuntimeLimits& limits, const Pins& pins,
                      const ModelProfile& profile) {
  if (limits.own_boundaries == nullptr) return;
  const auto layers = static_cast<std::int32_t>(profile.layers.size());
  for (std::int32_t stages = 1; stages <= layers; ++stages) {
    if (pins.stages.value_or(stages) != stages) continue;
    const auto boundaries = limits.own_boundaries(profile, stages);
    if (boundaries && pins.allow_boundaries(*boundaries)) return;
  }
  Pins of_stages;
  of_stages.stages = pins.stages;
  of_stages.cuts = pins.cuts;
  of_stages.joints = pins.joints;
  throw command_line::usage_error(
      "--pin", fmt::format("expected stages as {} cuts the model itself, got {}, which it has at "
                           "no number of stages",
                           limits.name, fmt::join(to_texts(of_stages, profile), ", ")));
}

/// Whether the runtime recomputes block by block, and the profile says what that takes: plans whose
/// stages are recomputed as a whole would then need more memory than predicted. A pin asks for
/// them.
bool recomputes_blocks_only(const interop::RuntimeLimits& limits, const Pins& pins,
                            const ModelProfile& profile) {
  const std::vector<Parallelism> forms = parallelisms_of(profile);
  return pins.recompute != true && limits.recomputed_parts.includes(kWholeLayer) &&
         std::any_of(forms.begin(), forms.end(),
                     [](const Parallelism& form) { return form.recomputes == kWholeLayer; });
}

/// Whether the file says that PyTorch's runtime cannot shard the optimizer's state, as files of
/// older versions do, which did not search such plans.
bool lacks_sharded_optimizer(const PlanDocument& document) {
  const std::string& target = document.request->target;
  if (target != "torchtitan" && target != "torch-csv") return false;
  return std::any_of(document.parallelisms.begin(), document.parallelisms.end(),
                     [](const ParallelismRecord& record) {
                       return record.parallelism.shards_optimizer &&
                              record.reason.ends_with(" have no sharded state");
                     });
}

}  // namespace

std::vector<std::string> limited_targets() {
  std::vector<std::string> names;
  for (const interop::ExportTarget& target : interop::export_targets()) {
    if (target.limits != nullptr) names.emplace_back(target.name);
  }
  names.emplace_back(planner::kExecutorTarget);
  return names;
}

namespace {

constexpr const char* kMegatronTarget = "megatron";
constexpr const char* kMegatronFramework = "megatron-lm";

}  // namespace

std::string target_named(const std::string& name) {
  return name == kMegatronFramework ? kMegatronTarget : name;
}

std::string target_given(const command_line::Options& options, const std::string& option) {
  return options.text(option) == kMegatronFramework ? kMegatronTarget : options.choice(option);
}

std::string framework_of_target(const std::string& target) {
  return target == kMegatronTarget ? kMegatronFramework : target;
}

namespace {

/// Returns the limits of a target that has some, or nullptr.
const interop::RuntimeLimits* limits_of(const std::string& target) {
  for (const interop::ExportTarget& each : interop::export_targets()) {
    if (each.limits != nullptr && each.name == target) return each.limits;
  }
  return nullptr;
}

}  // namespace

ContextExchanges context_exchanges_of(const std::string& target) {
  if (target == planner::kExecutorTarget) return {.all_gather = true};
  const interop::RuntimeLimits* const limits = limits_of(target);
  return limits == nullptr ? ContextExchanges{} : limits->context_exchanges;
}

std::optional<planner::PlanRestriction> restriction_of(const std::string& target,
                                                       const planner::PlannerOptions& planner,
                                                       const ModelProfile& profile) {
  if (target == planner::kExecutorTarget) return std::nullopt;
  const interop::RuntimeLimits* const found = limits_of(target);
  if (found == nullptr) {
    throw command_line::usage_error(
        "--for", fmt::format("expected one of {}, got \"{}\"", fmt::join(limited_targets(), ", "),
                             printable(target)));
  }
  const interop::RuntimeLimits& limits = *found;
  check_schedule(limits, profile, planner);
  if (!limits.recomputes && planner.pins.recompute == true) {
    throw command_line::usage_error(
        "--pin", fmt::format("expected no recompute=on, which {} does not have", limits.name));
  }
  const ScheduleFamily family = planner.family.value_or(ScheduleFamily::OneFOneB);
  planner::PlanRestriction restriction{
      .target = target,
      .runtime = std::string{limits.name},
      .least_depths =
          interop::runnable_orders(limits, family) == interop::RunnableOrders::LeastDepths,
      .recomputes = limits.recomputes && !recomputes_blocks_only(limits, planner.pins, profile),
      .recomputed_parts = limits.recomputed_parts,
      .recomputed_layers = limits.recomputed_layers,
      .tensor_parallel = limits.tensor_parallel,
      .sequence_parallel = limits.sequence_parallel,
      .context_exchanges = limits.context_exchanges,
      .expert_parallel = limits.expert_parallel,
      .experts_need_sequence = limits.experts_need_sequence,
      .context_shards_state = limits.context_shards_state,
      .shards_optimizer = limits.shards_optimizer,
      .shards_optimizer_in_groups = limits.shards_optimizer_in_groups,
      .shards_all_state = limits.shards_all_state,
      .in_order = limits.numbers_ranks,
      .joints = joints_of(limits, profile),
      .own_boundaries = limits.own_boundaries,
      .needs_filled_pipeline = limits.needs_filled_pipeline,
      .families = families_of(limits, profile)};
  for (const std::int32_t cut : planner.pins.cuts) {
    if (!std::binary_search(restriction.joints.begin(), restriction.joints.end(), cut)) continue;
    throw command_line::usage_error(
        "--pin",
        fmt::format("expected no cut={}, where {} has no boundary",
                    printable(profile.layers[static_cast<std::size_t>(cut)].name), limits.name));
  }
  check_boundaries(limits, planner.pins, profile);
  return restriction;
}

std::optional<planner::PlanRestriction> restriction_in(const PlanDocument& document,
                                                       const std::string& source) {
  if (!document.request || document.request->target.empty()) return std::nullopt;
  try {
    auto restriction =
        restriction_of(document.request->target,
                       planner::options_of(*document.request, document.plan.global_batch_size),
                       document.original_profile());
    if (restriction && lacks_sharded_optimizer(document)) restriction->shards_optimizer = false;
    return restriction;
  } catch (const Error& error) {
    throw Error{
        ErrorKind::BadInput, source, {{"/request/for", error.violations().front().message}}};
  }
}

}  // namespace dapple::app
