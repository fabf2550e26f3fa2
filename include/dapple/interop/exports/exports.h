// Exports plans to the formats of other runtimes and launchers. A plan that a target cannot run is
// refused with the name of the runtime and the place in the plan; what the target runs slightly
// differently, or what its files cannot express, is reported as a warning.
//
// Ranks are numbered stage by stage, and within a stage replica by replica, so that rank = stage *
// replicas + replica where all stages have the same number of replicas. A device that holds several
// stages is one rank. A device of several GPUs (tensor_parallel of the profile) has as many
// consecutive ranks as GPUs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dapple/core/index.h"
#include "dapple/io/files/output_files.h"
#include "dapple/plan/document.h"
#include "dapple/plan/plan.h"
#include "dapple/plan/schedule_family.h"
#include "dapple/profile/context_exchanges.h"
#include "dapple/profile/model_profile.h"
#include "dapple/profile/recomputation.h"
#include "dapple/topology/topology.h"

namespace dapple::interop {

/// The plan to export, with the topology that it was made for.
struct ExportSubject {
  const PlanDocument& document;
  const Topology& topology;
};

struct Export {
  /// The text of the single output file; empty if the target is a folder.
  std::string text;
  std::vector<std::string> warnings;
  /// The files of the folder; empty if the target is a single file.
  std::vector<io::FileText> files = {};
};

/// What a runtime supports, where that is less than a plan may ask for.
struct RuntimeLimits {
  /// The runtime's name in messages, such as "Megatron-LM".
  std::string_view name;
  /// Whether forwards and backwards may run in any order in which the forwards of each stage follow
  /// the numbers of the micro-batches; otherwise the runtime has 1F1B, and the interleaved schedule
  /// with `interleaves`. The function runnable_orders() says this of each family.
  bool any_order = false;
  /// Whether 1F1B may have any warm-up depths; otherwise it has the smallest ones that keep all
  /// stages busy.
  bool any_depths = false;
  /// Whether a device may hold several stages; otherwise it holds one.
  bool interleaves = false;
  /// Whether any tensors may cross a stage boundary; otherwise a stage passes only the output of
  /// its last layer to the next stage.
  bool any_graph = false;
  /// Whether the runtime sums the gradients of shared weights over stages, and computes them in the
  /// second part of a split backward.
  bool ties = true;
  /// Whether replicas may take whole micro-batches in turn.
  bool deals = true;
  /// Whether dealt stages may also differ in their numbers of replicas.
  bool deals_unequally = false;
  /// Whether stages may recompute; either all of them do or none.
  bool recomputes = true;
  /// The parts of every layer that may be recomputed instead.
  RecomputedParts recomputed_parts = {};
  /// Whether some layers of every stage alone may be recomputed, as whole layers.
  SelectableLayers recomputed_layers = {};
  /// Whether stage boundaries may only stand beside transformer blocks.
  bool counts_blocks = false;
  /// Whether every stage must hold a transformer block.
  bool block_in_every_stage = false;
  /// Returns the layers that begin the stages, the first one left out, of a model that the runtime
  /// cuts into so many itself; nothing if it cannot. Null if a plan says where stages begin.
  std::optional<std::vector<std::int32_t>> (*own_boundaries)(const ModelProfile& profile,
                                                             std::int64_t stages) = nullptr;
  /// Whether it has 1F1B on so many stages only with as many micro-batches or one less.
  bool needs_filled_pipeline = false;
  /// Whether the runtime's launcher numbers the ranks, server by server and device by device.
  bool numbers_ranks = false;
  /// Whether a device may be a tensor-parallel group of several GPUs.
  bool tensor_parallel = true;
  /// Whether such a group may also be sequence parallel.
  bool sequence_parallel = false;
  /// How such a group may be context parallel, and whether it may be expert parallel.
  ContextExchanges context_exchanges = {};
  bool expert_parallel = false;
  /// Whether experts beside tensor parallelism need sequence parallelism.
  bool experts_need_sequence = false;
  /// Whether context parallelism shards state over its ranks, all of it or the optimizer's.
  bool context_shards_state = false;
  /// Whether the replicas of a stage may shard its optimizer state, and data-parallel ranks all
  /// state.
  bool shards_optimizer = false;
  /// Whether it may be sharded over fewer than all ranks that hold the same parameters.
  bool shards_optimizer_in_groups = false;
  bool shards_all_state = false;
};

/// The orders of a schedule family that a runtime runs.
enum class RunnableOrders {
  /// The runtime does not have the family.
  None,
  /// The runtime has only the order of the smallest warm-up depths that keep all stages busy.
  LeastDepths,
  /// The runtime has every order that the family's numbers can give.
  OfTheFamily,
  /// Any order runs in which the forwards of each stage follow the numbers of the micro-batches.
  ForwardsInTurn,
};
/// Returns the orders of the family that the runtime runs, for plans whose backwards it can run.
RunnableOrders runnable_orders(const RuntimeLimits& runtime, ScheduleFamily family);

/// Whether the runtime cannot split the model's backwards into input gradient and weight gradient:
/// layers share weights, whose gradients the runtime does not compute in a second part.
bool needs_whole_backwards(const RuntimeLimits& runtime, const ModelProfile& profile);

/// Whether the runtime runs the model under the family, in some order.
bool runs(const RuntimeLimits& runtime, const ModelProfile& profile, ScheduleFamily family);

/// Returns what is said of a family without runnable_orders(): "expected 1f1b or interleaved, which
/// Megatron-LM runs, got gpipe".
std::string family_refusal(const RuntimeLimits& runtime, ScheduleFamily family);

/// Returns, in ascending order, the layers that cannot begin a stage of a plan for this runtime: a
/// tensor would skip a stage, stages would share weights, or the boundary would not stand beside a
/// transformer block. Throws Error(BadInput), with an empty source and JSON pointers into the
/// profile as places, if the runtime counts transformer blocks and they cannot be identified, or if
/// it lacks tensor parallelism and the profile's degree is not 1.
/// O(layers log layers + edges).
std::vector<std::int32_t> inexpressible_cuts(const RuntimeLimits& runtime,
                                             const ModelProfile& profile);

/// The choices of a plan that the files of a target cannot express; true means left out.
struct FileGaps {
  /// The layers and devices of each stage.
  bool stages = false;
  /// The order of actions.
  bool order = false;
  /// The number of samples of a micro-batch.
  bool micro_batch = false;
  /// Whether stages recompute.
  bool recomputation = false;
  /// That tensor ranks send shares of tensors.
  bool shares = false;
  /// The size of gradient buckets.
  bool buckets = false;
  /// The size of gradient buckets where the profile states no precision: the file counts
  /// parameters.
  bool buckets_without_precision = false;
  /// That the optimizer steps bucket by bucket.
  bool steps_by_bucket = false;
  /// The device of each rank.
  bool devices = false;
  /// The server of each rank.
  bool servers = false;
  /// The GPU of each rank, by its number within the server.
  bool gpus = false;
};

struct ExportTarget {
  /// The name of the target, such as "megatron".
  std::string_view name;
  /// The ending of the output file's or folder's name, such as ".megatron.sh".
  std::string_view ending;
  /// A description of the output in a few words.
  std::string_view what;
  /// The limits of the runtime; null if every plan can be expressed.
  const RuntimeLimits* limits;
  FileGaps gaps;
  /// Makes the files as export_plan() does, without the warning that names what is left out.
  Export (*make)(const ExportSubject& subject);
  /// Whether the output is a folder of several files.
  bool is_folder = false;
};

/// Returns all targets in the order in which they are shown.
const std::vector<ExportTarget>& export_targets();

/// Describes what the target's files leave out of this plan, one entry for each choice, with a
/// target that includes it, if there is one: "which device each rank has (rankfile does)".
/// O(devices).
std::vector<std::string> left_out(const ExportTarget& target, const ExportSubject& subject);

/// Returns the plan's files for the target, with a warning that names everything that is
/// left_out(). Throws Error(BadInput), with an empty source and JSON pointers into the plan as
/// places, if the target cannot run the plan. Requires: the plan is valid.
Export export_plan(const ExportTarget& target, const ExportSubject& subject);

/// Returns the device of each rank; where devices have several ranks each, the device of each group
/// of ranks. O(stages + devices).
std::vector<DeviceIndex> devices_by_rank(const Plan& plan);

}  // namespace dapple::interop
