#include "app/commands/other_scaling.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <variant>

#include "dapple/planner/candidates/evaluate.h"
#include "dapple/planner/make_plan.h"
#include "dapple/planner/request/plan_restriction.h"
#include "dapple/planner/request/planner_options.h"
#include "dapple/planner/restricted/restricted.h"
#include "dapple/planner/result/made_plan.h"

namespace dapple::app {
namespace {

/// Returns the smallest batch of the layers that were measured at one batch size only, if there are
/// any.
std::optional<std::int64_t> smallest_single(const ModelProfile& profile) {
  std::optional<std::int64_t> smallest;
  for (const Layer& layer : profile.layers) {
    for (std::size_t kind = 0; kind <= profile.other_devices.size(); ++kind) {
      const std::vector<Measurement>& measurements = measurements_on(layer, kind);
      if (measurements.size() > 1) continue;
      const std::int64_t batch = measurements.front().batch_size;
      smallest = std::min(smallest.value_or(batch), batch);
    }
  }
  return smallest;
}

/// Returns the fewest samples that a replica with any works on at a time.
std::int64_t least_samples(const Plan& plan) {
  std::int64_t least = plan.micro_batch_size;
  for (const StagePlan& stage : plan.stages) {
    for (std::size_t replica = 0; replica < stage.devices.size(); ++replica) {
      const std::int64_t samples = samples_of(plan, stage, replica).size();
      if (samples > 0) least = std::min(least, samples);
    }
  }
  return least;
}

ModelProfile with_other_scaling(const ModelProfile& profile) {
  ModelProfile other = profile;
  other.batch_scaling = profile.batch_scaling == BatchScaling::Floor ? BatchScaling::Proportional
                                                                     : BatchScaling::Floor;
  return other;
}

}  // namespace

std::optional<OtherScaling> in_other_scaling(const PlanDocument& document,
                                             const Topology& topology) {
  const ModelProfile& profile = document.profile;
  if (!profile.batch_scaling) return std::nullopt;
  OtherScaling scaling{.samples = least_samples(document.plan),
                       .measured = smallest_single(profile).value_or(0),
                       .own = *profile.batch_scaling,
                       .iteration = document.prediction.iteration,
                       .otherwise = {},
                       .searched = std::nullopt,
                       .shape = {}};
  if (Wide{scaling.samples} * kLeaningPart >= scaling.measured) return std::nullopt;
  Plan plan = document.plan;
  const SimulationMode mode = document.prediction.mode();
  scaling.otherwise =
      planner::evaluate(plan, with_other_scaling(profile), topology, mode).prediction.iteration;
  return scaling;
}

void search_in_other_scaling(OtherScaling& scaling, const planner::PlanningContext& context,
                             const std::optional<planner::PlanRestriction>& restriction) {
  if (scaling.own == BatchScaling::Floor) return;
  planner::PlannerOptions options = context.options;
  options.planner = PlannerKind::Dapple;
  options.baselines = false;
  const ModelProfile profile = with_other_scaling(context.profile);
  planner::Progress* const progress = context.progress;
  planner::PlanningContext other{profile, context.topology, options, progress};
  // What a plan would gain at all is asked, not how much the best one would.
  other.dapple_steps = planner::DappleSteps::NarrowSearch;
  const auto made =
      restriction ? planner::make_restricted_plan(other, *restriction) : planner::make_plan(other);
  const auto* plan = std::get_if<planner::MadePlan>(&made);
  if (plan == nullptr || (progress != nullptr && progress->should_stop())) return;
  scaling.searched = plan->document.prediction.iteration;
  scaling.shape = shape_of(plan->document.plan);
}

std::string text_of(const OtherScaling& scaling, const report::TextStyle& style) {
  const bool is_floor = scaling.own == BatchScaling::Floor;
  const Duration in_proportion = is_floor ? scaling.otherwise : scaling.iteration;
  const Duration floor = is_floor ? scaling.iteration : scaling.otherwise;
  std::string text = fmt::format(
      "replicas work on {} sample{} at a time, and the smallest batch measured has {}: {} if times "
      "are in proportion, {} if a small batch takes as long as a measured one (floor).",
      scaling.samples, scaling.samples == 1 ? "" : "s", scaling.measured,
      report::show(in_proportion), report::show(floor));
  if (scaling.searched && *scaling.searched < floor) {
    text += fmt::format(
        " A plan searched under floor takes {} then, {:.1f} % less: {}",
        report::show(*scaling.searched),
        100 * static_cast<double>((floor - *scaling.searched).ns) / static_cast<double>(floor.ns),
        scaling.shape);
  } else if (scaling.searched) {
    text += " A plan searched under floor is no faster then";
  }
  constexpr std::string_view kHead = "Small batches: ";
  return std::string(kHead) + report::fill_lines(printable(text), kHead.size(), style) + '\n';
}

}  // namespace dapple::app
