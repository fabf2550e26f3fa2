#include "dapple/planner/request/planner_options.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "dapple/profile/variants.h"
#include "dapple/topology/servers_of_kind.h"

namespace dapple::planner {

namespace {

/// Whether a search may choose how replicas divide micro-batches.
bool may_divide_freely(const PlannerOptions& options) {
  const bool is_1f1b = !options.family || *options.family == ScheduleFamily::GPipe;
  return options.planner == PlannerKind::Exact && is_1f1b &&
         options.replicas == Replicas::Together && options.transfers == Transfers::Overlapped &&
         !options.pins.equal_shares;
}

}  // namespace

bool has_shares_by_speed(const PlannerOptions& options, const Topology& topology) {
  return options.shares == Shares::Any && may_divide_freely(options) &&
         kinds_in_use(topology).size() > 1;
}

bool may_deal(const PlannerOptions& options) {
  return options.replications == Replications::Any && may_divide_freely(options) &&
         !options.every_family && !options.pins.least_depths;
}

bool may_fit_only_dealt(const PlannerOptions& options, const Topology& topology) {
  return may_deal(options) && (options.pins.replicas || options.family == ScheduleFamily::GPipe ||
                               topology.description().shards_optimizer);
}

FurtherDimensions further_dimensions(const PlannerOptions& options, const Topology& topology) {
  return {.bucket_sizes = !options.bucket_size,
          .shares_by_speed = has_shares_by_speed(options, topology),
          .dealt_micro_batches = may_deal(options)};
}

bool may_span_servers(const PlannerOptions& options, const ModelProfile& profile,
                      const Topology& topology) {
  if (topology.server_count() == 1) return false;
  // State may be sharded over any devices.
  if (options.sharding == Sharding::Full || options.sharding == Sharding::Any) return true;
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (const ServerGroup& servers : topology.description().servers) {
    least = std::min<std::int64_t>(least, servers.devices);
  }
  // Pinned shards of the optimizer's state are those of a group.
  const std::int64_t shards = options.pins.shards.value_or(1);
  const std::vector<Parallelism> forms = parallelisms_of(profile);
  return std::any_of(forms.begin(), forms.end(), [&](const Parallelism& form) {
    return std::max(form.group_size(), form.tensor * shards) > least;
  });
}

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
                      .shares = options.shares,
                      .replications = options.replications,
                      .recomputed_layers = options.recomputed_layers,
                      .mixes_forms = options.mixes_forms,
                      .mixes_group_sizes = options.mixes_group_sizes,
                      .target = std::string{options.for_executor ? kExecutorTarget : ""},
                      .baselines = options.baselines,
                      .jitter = options.jitter};
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
                         .mixes_group_sizes = request.mixes_group_sizes,
                         .shares = request.shares,
                         .replications = request.replications,
                         .recomputed_layers = request.recomputed_layers,
                         .for_executor = request.target == kExecutorTarget,
                         .sharding = request.sharding,
                         .baselines = request.baselines,
                         .jitter = request.jitter};
  // 1F1B includes GPipe, which is 1F1B with all micro-batches in flight.
  if (options.family == ScheduleFamily::OneFOneB) options.family.reset();
  return options;
}

}  // namespace dapple::planner
