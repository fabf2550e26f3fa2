// A plan as other runtimes and launchers take it. What one of them cannot run is refused by name
// and place; what it does a little otherwise, or what its files have no place for, is told as a
// warning.
//
// Ranks: stage by stage, of each its replicas in their order, so that rank = stage * replicas +
// replica where all stages have as many. Devices that hold several stages are one rank. Where a
// device is several GPUs (tensor_parallel of the profile), it has as many ranks, side by side.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dapple/core/index.h"
#include "dapple/io/files/output_files.h"
#include "dapple/plan/document.h"
#include "dapple/plan/plan.h"
#include "dapple/profile/model_profile.h"
#include "dapple/topology/topology.h"

namespace dapple::interop {

struct ExportSubject {
  const PlanDocument& document;
  const Topology& topology;
};

struct Export {
  std::string text;  // of the one file; empty where the target is a folder
  std::vector<std::string> warnings;
  std::vector<io::FileText> files = {};  // of that folder
};

/// What a runtime can do, where it is less than a plan may ask for.
struct RuntimeLimits {
  std::string_view name;         // "Megatron-LM"
  bool any_order = false;        // of forwards and backwards, forwards as numbered; else 1F1B
  bool any_depths = false;       // of 1F1B; else the least that keep all stages busy
  bool interleaves = false;      // else a device holds one stage
  bool any_graph = false;        // else one tensor goes from stage to stage
  bool ties = true;              // gradients of shared weights over stages, and in a second part
  bool deals = true;             // whole micro-batches to replicas in turn
  bool deals_unequally = false;  // then also to other numbers of replicas from stage to stage
  bool recomputes = true;        // all stages or none
  bool counts_blocks = false;    // boundaries only beside transformer blocks
  bool block_in_every_stage = false;
  bool numbers_ranks = false;   // its launcher does, server by server, device by device
  bool tensor_parallel = true;  // devices of several GPUs, which share their tensors
};

/// Layers that begin no stage of a plan that the runtime can express, ascending: a tensor would
/// skip a stage, stages would share weights, or the boundary is beside no transformer block. Throws
/// Error(BadInput) where a runtime that counts blocks cannot tell them, or one without tensor
/// parallelism is to have some. O(layers log layers + edges).
std::vector<std::int32_t> inexpressible_cuts(const RuntimeLimits& runtime,
                                             const ModelProfile& profile);

/// What a plan chooses and the files of a target have no place for.
struct FileGaps {
  bool stages = false;           // layers and devices of each
  bool order = false;            // of actions
  bool micro_batch = false;      // its samples
  bool recomputation = false;    // whether stages recompute
  bool buckets = false;          // of gradients, their size
  bool steps_by_bucket = false;  // of the optimizer
  bool devices = false;          // of ranks
  bool servers = false;          // of ranks
  bool gpus = false;             // of ranks, by their number in the server
};

struct ExportTarget {
  std::string_view name;        // "megatron"
  std::string_view ending;      // of the name of a file or a folder, ".megatron.sh"
  std::string_view what;        // in a few words
  const RuntimeLimits* limits;  // nothing where every plan can be expressed
  FileGaps gaps;
  Export (*make)(const ExportSubject& subject);  // as export_plan(), without what is left out
  bool is_folder = false;                        // several files
};

/// All of them, in the order in which they are shown.
const std::vector<ExportTarget>& export_targets();

/// What of this plan the target's files leave out, in words, each with the target that has it, if
/// one does: "which device each rank has (--to rankfile does)". O(devices).
std::vector<std::string> left_out(const ExportTarget& target, const ExportSubject& subject);

/// The plan's files for the target, with a warning that names all that is left_out(). Throws
/// Error(BadInput) without a source, its places JSON pointers into the plan. Requires: a sound
/// plan.
Export export_plan(const ExportTarget& target, const ExportSubject& subject);

/// The device of each rank; where a device has several, of their groups. O(stages + devices).
std::vector<DeviceIndex> devices_by_rank(const Plan& plan);

}  // namespace dapple::interop
