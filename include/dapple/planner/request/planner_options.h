// The request to the planner: what a plan is made for, by which options, and who is told of the
// progress.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "dapple/core/quantity.h"
#include "dapple/plan/optimality.h"
#include "dapple/plan/pins.h"
#include "dapple/plan/plan.h"
#include "dapple/plan/record_text.h"
#include "dapple/plan/request.h"
#include "dapple/plan/schedule_family.h"
#include "dapple/plan/simulation_mode.h"
#include "dapple/profile/model_profile.h"
#include "dapple/topology/topology.h"

namespace dapple::planner {

/// The state of a running search.
struct SearchProgress {
  std::int64_t states = 0;
  std::int64_t candidates = 0;
  std::int64_t simulated = 0;
  /// The simulated iteration of the best plan so far.
  std::optional<Duration> best;
  /// Lower bound on the iteration of every plan; missing while nothing is proven.
  std::optional<Duration> bound;
  /// Which part of the space is searched, such as "form 2 of 9 (tensor 4)"; empty where it has one.
  std::string part = {};
};

/// Receives the progress of the planner, and tells it when to stop. Called from one thread at a
/// time.
class Progress {
 public:
  virtual ~Progress() = default;
  virtual void update(const SearchProgress& progress) = 0;
  /// Polled at short intervals. Once it returns true, the planner ends with the best plan so far
  /// and the bound proven by then.
  virtual bool should_stop() { return false; }
  /// Polled in place of should_stop() while a search has further parts to come. It may return true
  /// once this part of the time limit, above 0 and below 1, is over.
  virtual bool should_end_part(double /*part*/) { return should_stop(); }
};

class PlanPool;

/// The target of plans that dapple-exec trains by.
inline constexpr std::string_view kExecutorTarget = "dapple-exec";

struct PlannerOptions {
  std::int64_t global_batch_size = 1;
  /// If not given, all divisors of the global batch are tried.
  std::optional<std::int64_t> micro_batch_size = {};
  /// The size of gradient buckets; if not given, several are tried.
  std::optional<Bytes> bucket_size = kDefaultBucketSize;
  OptimizerTiming optimizer = OptimizerTiming::AtEnd;
  /// Whether buckets are reduced beside the last backward, or only behind it.
  bool overlaps_gradients = true;
  /// If not given, 1F1B at any depths, which includes GPipe.
  std::optional<ScheduleFamily> family = {};
  /// Whether all families but Given are tried; requires that `family` is not given.
  bool every_family = false;
  Contention contention = Contention::Shared;
  Replicas replicas = Replicas::Together;
  /// Where transfers are not overlapped, replicas are together and the family is 1F1B or GPipe.
  Transfers transfers = Transfers::Overlapped;
  /// Whether to plan as if every device had unlimited memory.
  bool ignore_memory = false;
  /// The limit on what the planner keeps at a time, counted by the sizes of its elements, so that
  /// the plan is the same on any machine. What a search has no room for stays open, and plans that
  /// are too long to be simulated within the limit are not made.
  Bytes memory_limit = kDefaultMemoryLimit;
  int threads = 2;  // >= 1; the plan does not depend on it
  PlannerKind planner = PlannerKind::Exact;
  /// The exact search ends once the proven gap is no larger than this.
  Factor target_gap = {};
  Pins pins = {};
  /// The largest tensor-parallel degree of a plan; if not given, any that layers have variants for.
  std::optional<std::int64_t> max_tensor = {};
  /// Whether stages may differ in their form of parallelism, under 1F1B or GPipe and for no target
  /// runtime.
  bool mixes_forms = false;
  /// Whether their groups may also have different sizes, as far as asked_parallelisms() has such
  /// sets of forms. Requires: `mixes_forms`.
  bool mixes_group_sizes = false;
  /// Whether replicas of a stage may have shares by speed. They have equal ones all the same where
  /// replicas are independent or transfers block, for a target runtime, with the DAPPLE planner,
  /// and in families besides 1F1B and GPipe.
  Shares shares = Shares::Equal;
  /// Whether stages may also deal whole micro-batches to their replicas in turn, with the exact
  /// planner under 1F1B or GPipe. None does where replicas are independent or transfers block, or
  /// for a target runtime.
  Replications replications = Replications::Split;
  /// Whether only some layers of every stage may recompute, where a form recomputes parts of
  /// layers. All do where stages may differ in their form, or a target runtime has no other way.
  RecomputedLayers recomputed_layers = RecomputedLayers::All;
  /// Whether only forms of parallelism are allowed of which dapple-exec trains every plan.
  bool for_executor = false;
  /// Whether state is sharded. With Sharding::Optimizer or Any, parameters are updated at the end.
  Sharding sharding = Sharding::None;
  /// Whether to compare with baselines, and never to return a slower plan than the best of them.
  bool baselines = true;
  /// If given, make_plan_of_any_parallelism() returns, of the fastest plan and those close to it,
  /// one of the least median where devices are not equally fast; others pay no heed to it.
  std::optional<JitterRequest> jitter = {};

  SimulationMode mode() const { return {contention, replicas, transfers}; }
  /// Whether depths are searched: GPipe has one depth, and a policy of depths may be pinned.
  bool has_free_depths() const { return family != ScheduleFamily::GPipe && !pins.least_depths; }
};

/// Which spaces decision diagrams search, of those that they have room for: the large ones, in the
/// small ones of which the exact search follows; all, in the same way; or all, and the exact search
/// none of them. No command asks for the last two: tests compare the searches.
enum class Diagrams { WhereLarge, First, Only };

/// How far the DAPPLE planner goes: its opening plans, which take a fraction of its time, a narrow
/// search, where that takes less than the main one, the main one, and the refinement of the depths
/// of the best plans.
enum class DappleSteps { Opening, NarrowSearch, Searches, All };

/// What a plan is made for. It refers to its parts, which must outlive it.
struct PlanningContext {
  const ModelProfile& profile;
  const Topology& topology;
  const PlannerOptions& options;
  /// Receives the progress and says when to stop; may be null.
  Progress* progress = nullptr;
  /// The iteration of a plan of another part of the space: plans that take as long or longer need
  /// not be found.
  Duration to_beat = Duration::infinite();
  /// A first plan of this part, and its iteration; may be null. Where it does not beat the other
  /// part's, no other first plans are made.
  const Plan* first_plan = nullptr;
  Duration first_iteration = Duration::infinite();
  /// Keeps plans that are simulated; may be null.
  PlanPool* pool = nullptr;
  /// Whether the DAPPLE planner, too, looks for faster plans than that of the other part only.
  bool only_faster = false;
  DappleSteps dapple_steps = DappleSteps::All;
  /// Which spaces decision diagrams search.
  Diagrams diagrams = Diagrams::WhereLarge;

  /// Returns the threshold, theta in docs/bounds.md, where the best plan takes `best`: plans whose
  /// bound is not below it need not be examined to reach the requested gap.
  Duration threshold(Duration best) const {
    return gap_threshold(std::min(best, to_beat), options.target_gap);
  }

  bool has_slower_first_plan() const { return first_plan != nullptr && to_beat <= first_iteration; }

  /// Returns the same context with other options, which must outlive the result.
  PlanningContext with(const PlannerOptions& others) const {
    return {profile,         topology, others,      progress,     to_beat, first_plan,
            first_iteration, pool,     only_faster, dapple_steps, diagrams};
  }
};

/// Whether stages may have shares by speed: this is asked for, there are several kinds of device,
/// and nothing else forbids it. O(devices).
bool has_shares_by_speed(const PlannerOptions& options, const Topology& topology);

/// Whether stages may deal micro-batches: this is asked for, and nothing else forbids it.
bool may_deal(const PlannerOptions& options);

/// Whether plans may fit of which none would if no stage dealt its micro-batches: a replica then
/// shares none, so that more of them are allowed, holds fewer than all under GPipe and, where
/// replicas share the optimizer's state, leaves it smaller on each without more samples in other
/// stages. `topology` is that of the form of parallelism.
bool may_fit_only_dealt(const PlannerOptions& options, const Topology& topology);

/// Returns what is searched on request, or on some devices. O(devices).
FurtherDimensions further_dimensions(const PlannerOptions& options, const Topology& topology);

/// Whether plans that are asked for may be of groups of devices on several servers, whose
/// collectives share links with all else. O(variants * layers).
bool may_span_servers(const PlannerOptions& options, const ModelProfile& profile,
                      const Topology& topology);

/// Returns the request that the plan's file records for these options.
PlanRequest request_of(const PlannerOptions& options);

/// Returns the options of a request, for a plan with this global batch, with the default number of
/// threads.
PlannerOptions options_of(const PlanRequest& request, std::int64_t global_batch_size);

}  // namespace dapple::planner
