// The common intermediate form of imported plans: what a file states of a plan, and its conversion
// to a plan for a model and a topology.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dapple/interop/plans/foreign_plan.h"

namespace dapple::interop {

struct PlanSketch {
  // The name of the file that states the stages.
  std::string source;
  std::vector<LayerRange> stages;
  // The device group of each stage; if empty, stage i is on group i modulo the number of groups.
  std::vector<std::size_t> group_of;
  // The ranks of the replicas of each device group; unused if `devices` is not empty.
  std::vector<std::vector<std::int32_t>> ranks;
  // The devices of each device group, if they are chosen without ranks.
  std::vector<std::vector<DeviceIndex>> devices;
  std::optional<std::int64_t> global_batch;
  // The samples of a micro-batch over all replicas of a stage.
  std::optional<std::int64_t> micro_batch;
  std::optional<std::int64_t> num_micro_batches;
  Replication replication = Replication::Split;
  bool recompute = false;
  ScheduleFamily family = ScheduleFamily::OneFOneB;
  // The warm-up depths of 1F1B; if empty, the smallest that keep all stages busy.
  std::vector<std::int64_t> depths;
  // The file with the order of actions, for the family Given.
  const ForeignPlanFile* order = nullptr;
  // The names of the devices by rank, as the file states them; may be empty.
  std::vector<std::string> rank_devices;
};

/// Numbers the ranks group by group, with the same number of replicas in each group. O(groups *
/// replicas).
std::vector<std::vector<std::int32_t>> even_ranks(std::size_t groups, std::int64_t replicas);

/// Returns the number of replicas of each device group for runtimes in which all groups have the
/// same number: that of --replicas, else `told` by the file, else the number of --devices per
/// group. Throws Error(Usage) if none of them is available or --replicas has different numbers, and
/// Error(BadInput) if the topology has too few devices.
std::int64_t replicas_of_all(std::optional<std::int64_t> told, std::size_t groups,
                             const PlanGround& ground, const ForeignPlanOptions& options,
                             const std::string& source);

/// Returns the names of devices in the order of ranks from the comments that exports write: "#
/// ranks 0 to 1: node0:0 node0:1", or "# ranks 0 to 3, 2 a device: node0:0 node0:1". The result is
/// empty if there are no such comments.
std::vector<std::string> devices_in_comments(std::string_view text);

/// Returns the number of ranks that such comments count, those of every device; nothing if there
/// are no such comments.
std::optional<std::int64_t> ranks_in_comments(std::string_view text);

/// Returns the complete plan, with warm-up depths, order and gradient buckets. A given order that
/// equals that of a family whose plans carry no order is replaced by that family. Throws
/// Error(BadInput) with all faults that validate() finds, and Error(Usage) if the size of a
/// micro-batch or the global batch is unknown.
Plan plan_of(const PlanSketch& sketch, const PlanGround& ground, const ForeignPlanOptions& options);

/// Returns the warning that the plan recomputes whole stages, whereas the runtime keeps more for
/// recomputation: `kept`, such as "the input of every block".
std::string recomputed_as_a_whole(std::string_view runtime, std::string_view kept);

/// Returns what is wrong with a degree of context or expert parallelism that is not that of the
/// group of which a device of the profile is part; an empty text if nothing is.
std::string group_degree_fault(std::int64_t degree, CollectiveMembers members,
                               const ModelProfile& profile);

/// Checks the tensor-parallel degree of a file. Throws Error(BadInput) if the profile has another
/// degree above 1, and Error(Usage) if --tensor-parallel, or the profile's degree in its absence,
/// differs.
void check_degree(std::int64_t degree, const ModelProfile& profile,
                  const ForeignPlanOptions& options, const std::string& source);

}  // namespace dapple::interop
