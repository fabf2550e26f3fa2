#include "planner/request/search_problems.h"

#include "planner/request/gradient_synchronizations.h"
#include "planner/request/micro_batches.h"

namespace dapple::planner {

std::vector<search::SearchProblem> search_problems(const PlanningContext& context) {
  const PlannerOptions& options = context.options;
  std::vector<search::SearchProblem> problems;
  for (const GradientSynchronization& gradients :
       gradient_synchronizations(options, context.profile)) {
    for (const std::int64_t size : micro_batch_sizes(options).sizes) {
      problems.push_back(
          {.global_batch_size = options.global_batch_size,
           .micro_batch_size = size,
           .gradients = gradients,
           .ignore_memory = options.ignore_memory,
           .gpipe = options.family == ScheduleFamily::GPipe,
           .links_are_shared = shares_links(options.contention),
           .collectives_share_links = options.contention == Contention::SharedWithCollectives,
           .replicas = options.replicas,
           .transfers = options.transfers,
           .pins = options.pins,
           .shares_by_speed = has_shares_by_speed(options, context.topology),
           .may_deal = may_deal(options)});
    }
  }
  return problems;
}

}  // namespace dapple::planner
