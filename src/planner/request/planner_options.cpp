#include "dapple/planner/request/planner_options.h"

namespace dapple::planner {

PlanRequest request_of(const PlannerOptions& options) {
  PlanRequest request{.planner = options.planner,
                      .family = options.family.value_or(ScheduleFamily::OneFOneB),
                      .micro_batch_size = options.micro_batch_size,
                      .bucket_size = options.bucket_size,
                      .optimizer = options.optimizer,
                      .overlaps_gradients = options.overlaps_gradients,
                      .mode = options.mode(),
                      .ignore_memory = options.ignore_memory,
                      .memory_limit = options.memory_limit,
                      .target_gap = options.target_gap,
                      .pins = options.pins,
                      .max_tensor = options.max_tensor,
                      .sharding = options.sharding,
                      .mixes_forms = options.mixes_forms,
                      .target = {},
                      .baselines = options.baselines};
  if (options.every_family) request.family.reset();
  return request;
}

PlannerOptions options_of(const PlanRequest& request, std::int64_t global_batch_size) {
  PlannerOptions options{.global_batch_size = global_batch_size,
                         .micro_batch_size = request.micro_batch_size,
                         .bucket_size = request.bucket_size,
                         .optimizer = request.optimizer,
                         .overlaps_gradients = request.overlaps_gradients,
                         .family = request.family,
                         .every_family = !request.family,
                         .contention = request.mode.contention,
                         .replicas = request.mode.replicas,
                         .transfers = request.mode.transfers,
                         .ignore_memory = request.ignore_memory,
                         .memory_limit = request.memory_limit,
                         .planner = request.planner,
                         .target_gap = request.target_gap,
                         .pins = request.pins,
                         .max_tensor = request.max_tensor,
                         .mixes_forms = request.mixes_forms,
                         .sharding = request.sharding,
                         .baselines = request.baselines};
  // 1F1B includes GPipe, which is 1F1B with all micro-batches in flight.
  if (options.family == ScheduleFamily::OneFOneB) options.family.reset();
  return options;
}

}  // namespace dapple::planner
