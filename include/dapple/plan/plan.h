// A plan: which layers form which stage, on which devices, with which micro-batches and in which
// order. `Plan` is what a schedule is generated from; `PlanDocument` is all that a plan file holds,
// so that nothing else is needed to simulate, check or run it.
//
// Source: DAPPLE (PPoPP'21) sections 3 and 4. Departures: stages may leave devices idle; the
// warm-up depth of every stage is free between 1 and the number of micro-batches.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dapple/core/error.h"
#include "dapple/core/index.h"
#include "dapple/core/quantity.h"
#include "dapple/plan/action.h"
#include "dapple/plan/pins.h"
#include "dapple/profile/model_profile.h"
#include "dapple/topology/topology.h"

namespace dapple {

/// What the replicas of a stage share out.
enum class Replication {
  Split,  // each micro-batch: replica i of r gets floor(B/r) + (i < B mod r) consecutive samples
  Deal,   // whole micro-batches, in turn: replica i gets those with number i modulo r
};

/// Who decides in which order a device works. The first four follow from the plan's numbers; the
/// orders of the others depend on costs and memory, so that the plan carries them.
enum class ScheduleFamily {
  GPipe,          // all forwards, then all backwards
  OneFOneB,       // K forwards, then one backward and one forward in turn, then the backwards left
  Interleaved,    // 1F1B in turns over several stages of each device (Megatron-LM, SC'21)
  BreadthFirst,   // all forwards stage by stage, then all backwards (Lamy-Poirier, MLSys'23)
  ListScheduled,  // at most K in flight as in 1F1B, in the order that the costs ask for
  ZeroBubbleH1,   // the backward in two parts, memory as 1F1B (Qi et al., ICLR'24)
  ZeroBubbleH2,   // the same with as much in flight as fills every bubble
  ZeroBubbleV,    // two stages per device, there and back again
  Given,          // from a file
};

/// "gpipe", "1f1b", "interleaved", "breadth-first", "list-scheduled", "zb-h1", "zb-h2", "zb-v",
/// "given".
std::string_view to_string(ScheduleFamily family);
inline constexpr ScheduleFamily kScheduleFamilies[] = {
    ScheduleFamily::GPipe,        ScheduleFamily::OneFOneB,      ScheduleFamily::Interleaved,
    ScheduleFamily::BreadthFirst, ScheduleFamily::ListScheduled, ScheduleFamily::ZeroBubbleH1,
    ScheduleFamily::ZeroBubbleH2, ScheduleFamily::ZeroBubbleV,   ScheduleFamily::Given};

/// Whether a plan of that family carries its order.
bool carries_order(ScheduleFamily family);

/// Whether a stage of that family may make the gradients of its input and of its weights apart.
bool may_split_backward(ScheduleFamily family);
std::string_view to_string(Replication replication);

/// How a simulation treats transfers and all-reduces that use the same ports at the same time.
enum class Contention {
  /// Flows share ports max-min fair, whatever they belong to: every pair of a transfer is a flow,
  /// and so is every phase of an all-reduce.
  Shared,
  /// Different boundaries and collectives do not slow each other. The pairs of one transfer share
  /// ports, and a boundary's port serves its transfers in order, busy for the bytes, not for the
  /// latency.
  Off,
};

/// "on", "off".
std::string_view to_string(Contention contention);

/// When a stage's parameters are updated.
enum class OptimizerTiming {
  AtEnd,      // once all of its gradients are reduced, so that their norm may be clipped
  PerBucket,  // those of a bucket once it is reduced, beside the reduction of the next
};

/// "at-end", "per-bucket".
std::string_view to_string(OptimizerTiming timing);

/// Gradients are reduced in buckets of this size, PyTorch DDP's default.
inline constexpr Bytes kDefaultBucketSize{25 * 1024 * 1024};

/// How a stage of several replicas gets from gradients to new parameters.
struct GradientHandling {
  Bytes bucket_size = kDefaultBucketSize;  // a bucket is closed once it holds so much
  OptimizerTiming optimizer = OptimizerTiming::AtEnd;

  friend bool operator==(const GradientHandling&, const GradientHandling&) = default;
};

/// How a simulation treats the replicas of a stage that splits micro-batches.
enum class Replicas {
  /// As one machine: they start a micro-batch together, when the last share of its input has
  /// arrived, and what they make leaves when the slowest has it.
  Together,
  /// Each on its own: it starts its share when all that this needs has arrived, and sends what it
  /// makes when it has it. They meet where transfers do, and at all-reduces.
  Independent,
};

/// "together", "independent".
std::string_view to_string(Replicas replicas);

/// How a plan is simulated.
struct SimulationMode {
  Contention contention = Contention::Shared;
  Replicas replicas = Replicas::Together;

  friend bool operator==(const SimulationMode&, const SimulationMode&) = default;
};

struct StagePlan {
  LayerRange layers;
  std::vector<DeviceIndex> devices;  // replica by replica
  Replication replication = Replication::Split;
  bool recompute = false;               // keep only the stage's input, run the forward again
  std::vector<Bytes> gradient_buckets;  // reduced in this order; empty for one replica
};

/// Gradients of parameters that layers on several stages use (profile's ties): each of these stages
/// holds a copy, and their gradients are summed over the devices of all of them, each on its own
/// first, once all of these stages have made them.
struct TiedGradients {
  LayerIndex holder;               // whose parameters they are
  std::vector<StageIndex> stages;  // ascending, at least two

  friend bool operator==(const TiedGradients&, const TiedGradients&) = default;
};

struct Plan {
  std::int64_t global_batch_size = 1;
  std::int64_t micro_batch_size = 1;
  std::int64_t num_micro_batches = 1;
  GradientHandling gradients = {};  // the buckets themselves are each stage's
  ScheduleFamily family = ScheduleFamily::OneFOneB;
  std::vector<std::int64_t> warmup_depths;  // per stage, most micro-batches in flight
  /// Stages that each device holds, its chunks. With v of them and S groups of devices there are
  /// S * v stages: stage i on the devices of stage i mod S, or, in a V of two, of 2S - 1 - i.
  std::int64_t chunks_per_device = 1;
  /// Where the family carries its order: per lane, in the order of the schedule's lanes, the
  /// forwards and backwards.
  std::vector<std::vector<Action>> order = {};
  std::vector<StagePlan> stages;
  /// Those of tied_gradients(). Every stage reduces them in this order, behind its own buckets.
  std::vector<TiedGradients> tied_gradients = {};
};

/// The gradients to which several of the stages add, by holder. O(ties * users * stages).
std::vector<TiedGradients> tied_gradients(const ModelProfile& profile,
                                          const std::vector<StagePlan>& stages);

/// Positions in plan.tied_gradients of those that some of the stages hold, ascending. O(ties *
/// stages asked for * log stages).
std::vector<std::int32_t> ties_of(const Plan& plan, const std::vector<StageIndex>& stages);

/// The first of the stages that holds them: the one that their reduction on a device goes by.
/// Requires: one of them does.
StageIndex speaker_of(const TiedGradients& tied, const std::vector<StageIndex>& stages);

/// Stages that share their devices, by their first: {{0, 4}, {1, 5}, {2, 6}, {3, 7}}.
/// O(stages log stages). Requires: every stage has devices.
std::vector<std::vector<StageIndex>> stages_by_device_group(const Plan& plan);

/// Samples of one micro-batch, [begin, end).
struct SampleRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  constexpr std::int64_t size() const { return end - begin; }
};
/// The share of replica `replica` of `replicas`: as even as whole samples allow, the larger shares
/// first. O(1). Requires: 0 <= replica < replicas.
SampleRange replica_share(std::int64_t micro_batch_size, std::int64_t replicas,
                          std::int64_t replica);

/// Samples that a replica of `stage` works on at a time: its share, or a whole micro-batch if
/// dealt.
SampleRange samples_of(const Plan& plan, const StagePlan& stage, std::size_t replica);

/// Micro-batches that replica `replica` of `stage` works on.
std::int64_t micro_batches_of(const Plan& plan, const StagePlan& stage, std::size_t replica);

/// Whether some stage splits micro-batches over several replicas: elsewhere both ways to treat them
/// are one. O(stages).
bool splits_micro_batches(const Plan& plan);
/// Whether some stage deals whole micro-batches to several replicas. O(stages).
bool deals_micro_batches(const Plan& plan);

/// Most micro-batches times stages of a plan. Its schedule has up to six actions for each, and must
/// fit into memory.
inline constexpr std::int64_t kMaxStagePasses = 10'000'000;

/// Devices per stage and micro-batches in few words: "8:8, 32 of 64" is two stages of eight devices
/// and 32 micro-batches of 64 samples; "16 straight, ..." 16 stages of one device each; more than
/// four equal stages in a row are counted, "6x2:4". Of stages that share devices it counts the
/// first, and says "with 2 stages each". ", recomputing" if any stage does. O(stages).
std::string shape_of(const Plan& plan);

/// Structural faults, each named, with a JSON pointer into the plan: layers not covered or covered
/// twice, devices used twice or not there, fewer samples than replicas, batch sizes that do not
/// multiply, warm-up depths that are out of range or rise from a stage to the next. Memory and
/// deadlocks are not looked at here. Empty if the plan is sound. O(stages + devices).
std::vector<Violation> validate(const Plan& plan, std::int32_t layer_count,
                                const Topology& topology);

/// Costs of a stage as the plan was made with them, for readers of the file.
struct StageFigures {
  Duration forward;     // one micro-batch, slowest replica
  Duration backward;    // recomputation included
  Bytes send;           // activations of one micro-batch to the next stage, all replicas
  Duration all_reduce;  // of all buckets and tied gradients one after another, without overlap
  Duration optimizer_step;
};

struct DeviceFigures {
  DeviceIndex device;
  Bytes peak_memory;
  Bytes memory_limit;
  double busy_fraction = 0;  // of the iteration, computing
};

/// Where the time of an iteration goes: parts that add up to it exactly, none negative. Formulas in
/// planner/candidates/explain.h.
struct TimeParts {
  Duration compute;         // all forwards and backwards, spread evenly over all devices there are
  Duration recomputation;   // the same of the forwards that are run again
  Duration imbalance;       // what the busiest stage computes beyond these two
  Duration bubble;          // its waiting with free communication: filling and draining
  Duration transfers;       // its waiting for activations and gradients
  Duration all_reduce;      // what reducing gradients adds
  Duration optimizer_step;  // of the busiest stage

  Duration total() const;
  friend bool operator==(const TimeParts&, const TimeParts&) = default;
};

/// The parts with their names, in the order in which they are shown.
struct TimePart {
  const char* name;  // in words
  const char* key;   // in files, in nanoseconds
  Duration TimeParts::*part;
};
inline constexpr TimePart kTimeParts[] = {
    {"compute", "compute_ns", &TimeParts::compute},
    {"recomputation", "recomputation_ns", &TimeParts::recomputation},
    {"imbalance", "imbalance_ns", &TimeParts::imbalance},
    {"bubble", "bubble_ns", &TimeParts::bubble},
    {"transfers", "transfers_ns", &TimeParts::transfers},
    {"all-reduce", "all_reduce_ns", &TimeParts::all_reduce},
    {"optimizer step", "optimizer_step_ns", &TimeParts::optimizer_step},
};

/// Predicted by simulation in that mode; definitions in the formats' section of the README.
struct Prediction {
  Contention contention = Contention::Shared;
  Replicas replicas = Replicas::Together;
  Duration iteration;
  double samples_per_second = 0;
  std::optional<double> speedup_over_one_device;
  std::optional<Duration> lower_bound;
  std::optional<double> optimality_gap;
  double bubble_fraction = 0;
  Duration exposed_transfer;
  Duration exposed_all_reduce;
  TimeParts parts;  // of the iteration
  std::vector<StageFigures> stages;
  std::vector<DeviceFigures> devices;  // the used ones, by index
};

/// Another way to train the same model, simulated with the same costs.
struct Baseline {
  std::string name;
  std::string shape;  // shape_of() its plan
  Duration iteration;
  TimeParts parts;  // of the iteration
  bool feasible = true;
  Bytes missing;  // on its tightest device
  /// Memory keeps some stage from holding as many micro-batches as there are stages from it on, the
  /// least that can keep it busy.
  bool depth_limited = false;
};

/// What no plan of ours has, whatever is asked for: no bound speaks of plans that do.
inline constexpr std::string_view kOutsideSpace =
    "tensor, sequence and expert parallelism; sharded state";

/// The planner of a plan whose schedule alone was chosen.
inline constexpr std::string_view kReschedulePlanner = "reschedule";

/// What was searched. `complete` only if nothing of the declared space was left out.
struct SearchRecord {
  std::string planner;
  bool complete = false;
  std::vector<std::string> searched;   // the dimensions, in words
  std::vector<std::string> cut;        // what was left out, and why
  std::string outside{kOutsideSpace};  // what was never in the space; empty in files without it
  std::int64_t states = 0;
  std::int64_t candidates = 0;  // complete plans; of a rescheduled one, orders or depths tried
  std::int64_t simulated = 0;
  std::int64_t open = 0;  // plans and parts of plans that may be faster: the gap lies in them
  std::int64_t kept = 0;  // partial plans and bounds in memory in the end, some 200 bytes each
};

/// What is known of the plans of one schedule family, where several were looked at.
struct ScheduleRecord {
  ScheduleFamily family = ScheduleFamily::OneFOneB;
  std::optional<Duration> iteration;    // of the best plan found, if any
  std::optional<Duration> lower_bound;  // no plan of the family is faster
  std::string shape;                    // shape_of() the best plan; empty without one
  Bytes missing;                        // by the one that comes closest, where nothing fits
  std::string reason;                   // why it is not the plan's family, or by how much it is

  friend bool operator==(const ScheduleRecord&, const ScheduleRecord&) = default;
};

enum class PlannerKind {
  Exact,   // proves how far the plan is from the best
  Dapple,  // the DAPPLE planner alone: proves nothing
};

/// "exact", "dapple".
std::string_view to_string(PlannerKind planner);

/// What a search may keep in memory, counted by the sizes of what it keeps.
inline constexpr Bytes kDefaultMemoryLimit{std::int64_t{2} << 30};

/// What ended a search before it was done.
enum class StopReason { None, TimeLimit, Signal };

/// What was asked of the planner, defaults included: every option that shaped the space of plans,
/// the proof, or what the plan was compared with. With the profile, the topology and the global
/// batch size it determines the plan file, unless the search was stopped.
struct PlanRequest {
  PlannerKind planner = PlannerKind::Exact;
  std::optional<ScheduleFamily> family = ScheduleFamily::OneFOneB;  // every family if not given
  std::optional<std::int64_t> micro_batch_size;  // all divisors of the global batch if not given
  std::optional<Bytes> bucket_size = kDefaultBucketSize;  // of gradients; several if not given
  OptimizerTiming optimizer = OptimizerTiming::AtEnd;
  SimulationMode mode = {};
  bool ignore_memory = false;                // as if every device had room for everything
  Bytes memory_limit = kDefaultMemoryLimit;  // of the planner itself
  Factor target_gap = {};                    // the search may end once the proven gap is no larger
  Pins pins = {};
  std::string target;     // the runtime that has to express the plan, as --for names it, or empty
  bool baselines = true;  // compared with them
  StopReason stopped_by = StopReason::None;
  std::optional<Duration> time_limit = {};       // where that is what stopped the search
  std::vector<std::string> input_warnings = {};  // about the files that were read

  friend bool operator==(const PlanRequest&, const PlanRequest&) = default;
};

struct PlanDocument {
  std::string tool;  // "dapple-plan 0.1.0"
  ModelProfile profile;
  TopologyDescription topology;
  Plan plan;
  Prediction prediction;
  std::vector<Baseline> baselines;
  /// Nothing where no planner chose the plan, or the file is of a version that did not say.
  std::optional<PlanRequest> request = {};
  SearchRecord search;
  std::vector<ScheduleRecord> schedules = {};  // none where 1F1B or GPipe alone was searched
  std::vector<std::string> warnings;
};

}  // namespace dapple
