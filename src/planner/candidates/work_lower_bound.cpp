#include "planner/candidates/work_lower_bound.h"

#include <algorithm>

#include "dapple/search/families/family_bound.h"
#include "planner/request/micro_batches.h"

namespace dapple::planner {

Duration work_lower_bound(const ModelProfile& profile, const Topology& topology,
                          const PlannerOptions& options) {
  constexpr Duration kLongest{std::int64_t{1} << 60};
  const CostModel costs(profile, topology);
  Duration least = kLongest;
  for (const std::int64_t size : micro_batch_sizes(options).sizes) {
    // Each size needs many layer tables that no other size uses.
    costs.forget_tables();
    const search::FamilyBound bound(costs, {.global_batch_size = options.global_batch_size,
                                            .micro_batch_size = size,
                                            .split_backward = true,
                                            .optimizer = options.optimizer,
                                            .ignore_memory = true});
    // (F6) and (F7) count the stages in front for replicas that start together; (F8) holds for all.
    const bool is_together = options.replicas == Replicas::Together;
    least = std::min(least, is_together ? bound.of_loops(least) : bound.of_work(least));
  }
  return least;
}

}  // namespace dapple::planner
