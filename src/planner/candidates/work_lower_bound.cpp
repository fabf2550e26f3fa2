#include "planner/candidates/work_lower_bound.h"

#include <algorithm>
#include <set>
#include <vector>

#include "dapple/planner/request/planner_options.h"
#include "dapple/search/decision_diagram/decision_diagram.h"
#include "dapple/search/families/family_bound.h"
#include "planner/request/micro_batches.h"
#include "planner/request/search_problems.h"

namespace dapple::planner {

namespace {

/// Returns a profile with fewer forms of stages: one of those whose work is bounded alike.
ModelProfile with_forms_of_work(const ModelProfile& profile) {
  ModelProfile reduced = profile;
  std::set<Parallelism> known{representative_of_some_layers(profile.parallelism)};
  std::erase_if(reduced.stage_forms, [&](const ModelProfile& form) {
    return !known.insert(representative_of_some_layers(form.parallelism)).second;
  });
  return reduced;
}

}  // namespace

Duration work_lower_bound(const PlanningContext& context) {
  constexpr Duration kLongest{std::int64_t{1} << 60};
  if (may_deal(context.options) || has_larger_groups(context.profile)) {
    // (F6) to (F8) are of replicas that share every micro-batch, on one device each.
    Duration least = kLongest;
    for (const search::SearchProblem& problem : search_problems(context)) {
      least = std::min(least, search::DecisionDiagram::bound_of_work(context.profile,
                                                                     context.topology, problem));
    }
    return least;
  }
  const ModelProfile profile = with_forms_of_work(context.profile);
  const CostModel costs(profile, context.topology);
  Duration least = kLongest;
  for (const std::int64_t size : micro_batch_sizes(context.options).sizes) {
    // Each size needs many layer tables that no other size uses.
    costs.forget_tables();
    const search::FamilyBound bound(costs, {.global_batch_size = context.options.global_batch_size,
                                            .micro_batch_size = size,
                                            .split_backward = true,
                                            .optimizer = context.options.optimizer,
                                            .ignore_memory = true});
    // (F6) and (F7) count the stages in front for replicas that start together; (F8) holds for all.
    const bool is_together = context.options.replicas == Replicas::Together;
    least = std::min(least, is_together ? bound.of_loops(least) : bound.of_work(least));
  }
  return least;
}

}  // namespace dapple::planner
