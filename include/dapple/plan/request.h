// The request to the planner, as a plan file records it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/plan/pins.h"
#include "dapple/plan/plan.h"
#include "dapple/plan/schedule_family.h"
#include "dapple/plan/simulation_mode.h"

namespace dapple {

enum class PlannerKind {
  /// Proves how far the plan is from the optimum.
  Exact,
  /// The DAPPLE planner alone, which proves nothing.
  Dapple,
};

/// Returns "exact" or "dapple".
std::string_view to_string(PlannerKind planner);

/// How the replicas of a stage may share its micro-batches.
enum class Shares {
  /// As evenly as whole samples allow.
  Equal,
  /// So or, on devices of several kinds, by their speeds: whichever makes the faster plan.
  Any,
};

/// Returns "equal" or "auto".
std::string_view to_string(Shares shares);

/// How the replicas of a stage may divide the micro-batches.
enum class Replications {
  /// They share every micro-batch.
  Split,
  /// So, or they take whole micro-batches in turn: whichever makes the faster plan.
  Any,
};

/// Returns "split" or "auto".
std::string_view to_string(Replications replications);

/// Which layers of a stage recompute in a form in which layers recompute parts.
enum class RecomputedLayers {
  /// All that have these parts.
  All,
  /// So, or the first ones of every stage, or every second, third or fourth one, whichever makes
  /// the fastest plan.
  Any,
};

/// Returns "all" or "auto".
std::string_view to_string(RecomputedLayers layers);

/// What of a stage's state is sharded.
enum class Sharding {
  None,
  /// The optimizer's state, over the replicas: ZeRO stage 1, and FSDP that keeps parameters
  /// gathered.
  Optimizer,
  /// All state, over devices of a group.
  Full,
  /// Whichever makes the faster plan.
  Any,
};

/// What users may also call Sharding::Optimizer, by what FSDP does: gather parameters once an
/// iteration and keep them.
inline constexpr std::string_view kFullKeep = "full-keep";

/// Returns what of the state is sharded.
Sharding sharding_of(const Parallelism& parallelism);

/// Returns "none", "optimizer", "full" or "auto".
std::string_view to_string(Sharding sharding);

/// The default limit on the memory of a search, counted by the sizes of the objects that it keeps.
inline constexpr Bytes kDefaultMemoryLimit{std::int64_t{2} << 30};

/// What stopped a search before it was complete.
enum class StopReason { None, TimeLimit, Signal };

/// Devices that are not equally fast: each has a random factor on its computations, drawn anew for
/// every iteration (docs/model.md, section 10.11).
struct JitterRequest {
  /// The standard deviation of the factor, which is normally distributed around one and cut off
  /// three deviations from it and below a tenth. Below one.
  Factor deviation;
  /// Above zero.
  std::uint64_t seed = 1;

  friend bool operator==(const JitterRequest&, const JitterRequest&) = default;
};

/// The request to the planner, defaults included: every option that affects the space of plans, the
/// proof, or the comparison with other plans. Together with the profile, the topology and the
/// global batch size it determines the plan file, unless the search was stopped.
struct PlanRequest {
  PlannerKind planner = PlannerKind::Exact;
  /// Every family if not given.
  std::optional<ScheduleFamily> family = ScheduleFamily::OneFOneB;
  /// All divisors of the global batch size if not given.
  std::optional<std::int64_t> micro_batch_size;
  /// The size of gradient buckets; several sizes if not given.
  std::optional<Bytes> bucket_size = kDefaultBucketSize;
  OptimizerTiming optimizer = OptimizerTiming::AtEnd;
  bool overlaps_gradients = true;
  SimulationMode mode = {};
  /// Whether devices are treated as having unlimited memory.
  bool ignore_memory = false;
  /// The memory limit of the planner itself.
  Bytes memory_limit = kDefaultMemoryLimit;
  /// The search may end once the proven gap is no larger than this.
  Factor target_gap = {};
  Pins pins = {};
  /// The largest tensor-parallel degree; any if not given.
  std::optional<std::int64_t> max_tensor = {};
  Sharding sharding = Sharding::None;
  Shares shares = Shares::Equal;
  Replications replications = Replications::Split;
  RecomputedLayers recomputed_layers = RecomputedLayers::All;
  /// Whether stages may differ in their form of parallelism.
  bool mixes_forms = false;
  /// Whether their groups may also have different sizes.
  bool mixes_group_sizes = false;
  /// The runtime that must be able to execute the plan, as named by --for, or empty.
  std::string target;
  /// Whether the plan is compared with baselines.
  bool baselines = true;
  StopReason stopped_by = StopReason::None;
  /// The time limit, if it stopped the search.
  std::optional<Duration> time_limit = {};
  /// Warnings about the files that were read.
  std::vector<std::string> input_warnings = {};
  /// How far the speeds of devices vary, where the plan is chosen by the median of its iterations.
  std::optional<JitterRequest> jitter = {};

  friend bool operator==(const PlanRequest&, const PlanRequest&) = default;
};

}  // namespace dapple
