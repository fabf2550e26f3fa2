// What a file says of a plan, and the plan that it becomes for a model and a topology.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dapple/interop/plans/foreign_plan.h"

namespace dapple::interop {

struct PlanSketch {
  std::string source;  // the file whose stages these are
  std::vector<LayerRange> stages;
  std::vector<std::size_t> group_of;  // by stage; stage i is on group i modulo the groups, if empty
  /// By group of devices, the ranks of its replicas; or, where the file itself names devices:
  std::vector<std::vector<std::int32_t>> ranks;
  std::vector<std::vector<DeviceIndex>> devices;
  std::optional<std::int64_t> global_batch;
  std::optional<std::int64_t> micro_batch;  // samples over all replicas of a stage
  std::optional<std::int64_t> num_micro_batches;
  Replication replication = Replication::Split;
  bool recompute = false;
  ScheduleFamily family = ScheduleFamily::OneFOneB;
  std::vector<std::int64_t> depths;        // of 1F1B; the least, if empty
  const ForeignPlanFile* order = nullptr;  // of the family Given
  std::vector<std::string> rank_devices;   // names, as comments tell them
};

/// Ranks group by group, as many for each. O(groups * replicas).
std::vector<std::vector<std::int32_t>> even_ranks(std::size_t groups, std::int64_t replicas);

/// How many replicas each group has, where all have as many: the file's number, --replicas, or what
/// --devices gives for each. Throws Error(Usage) where nothing says it, Error(BadInput) where there
/// are not so many devices.
std::int64_t replicas_of_all(std::optional<std::int64_t> told, std::size_t groups,
                             const PlanGround& ground, const ForeignPlanOptions& options,
                             const std::string& source);

/// Names of devices in the order of ranks, from lines "# ranks 0 to 1: node0:0 node0:1" as our own
/// exports write them, or "# ranks 0 to 3, 2 a device: node0:0 node0:1"; none where there are none.
std::vector<std::string> devices_in_comments(std::string_view text);

/// The whole plan with depths, order and gradient buckets; a given order that a family has without
/// looking at costs is that family's. Throws Error(BadInput) with all faults
/// that validate() names, Error(Usage) where no micro-batch or global batch is told.
Plan plan_of(const PlanSketch& sketch, const PlanGround& ground, const ForeignPlanOptions& options);

/// The warning where a runtime recomputes as well, but keeps more: "the input of every block".
std::string recomputed_as_a_whole(std::string_view runtime, std::string_view kept);

/// Refuses a degree of a file that neither the profile nor --tensor-parallel says.
void check_degree(std::int64_t degree, const ModelProfile& profile,
                  const ForeignPlanOptions& options, const std::string& source);

}  // namespace dapple::interop
