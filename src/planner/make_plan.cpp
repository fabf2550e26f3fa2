#include <optional>

#include "dapple/core/error.h"
#include "dapple/planner/make_plan.h"
#include "dapple/planner/request/planner_options.h"
#include "dapple/planner/request/warnings.h"
#include "dapple/planner/result/infeasible.h"
#include "dapple/planner/result/made_plan.h"
#include "planner/families/plan_families.h"
#include "planner/one_family/plan_one_family.h"
#include "planner/request/asked_families.h"
#include "planner/request/part_of_search.h"

namespace dapple::planner {
namespace {

/// The part of the time limit that the 1F1B search may take where other families follow.
constexpr double kFirstPart = 0.5;

std::variant<MadePlan, Infeasible> plan_as_asked(const PlanningContext& context) {
  if (!asks_for_families(context.options)) return plan_one_family(context);
  if (context.options.replicas == Replicas::Independent) {
    throw Error(ErrorKind::BadInput, "",
                {{"/request/replicas",
                  "expected together with a schedule beyond 1f1b and gpipe, whose bounds are of "
                  "replicas that start together, got independent"}});
  }
  std::optional<PartOfSearch> first_part;
  if (context.progress != nullptr) first_part.emplace(*context.progress, kFirstPart);
  const PlannerOptions start = options_to_start(context.options);
  auto first = plan_one_family({context.profile, context.topology, start,
                                first_part ? &*first_part : nullptr, context.to_beat,
                                context.first_plan, context.first_iteration, context.pool,
                                context.only_faster, context.dapple_steps});
  return plan_families(std::move(first), context);
}

}  // namespace

std::variant<MadePlan, Infeasible> make_plan(const PlanningContext& context) {
  auto made = plan_as_asked(context);
  if (auto* plan = std::get_if<MadePlan>(&made)) {
    PlanRequest& request = plan->document.request.emplace(request_of(context.options));
    // Where they are equal all the same, files remain as they are without the question.
    if (!has_shares_by_speed(context.options, context.topology)) request.shares = Shares::Equal;
    if (!may_deal(context.options)) request.replications = Replications::Split;
    plan->document.warnings = warnings_of(plan->document, context.topology);
  }
  return made;
}

}  // namespace dapple::planner
