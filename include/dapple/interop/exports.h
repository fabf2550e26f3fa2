// A plan as other runtimes and launchers take it. What one of them cannot express is refused by
// name and place, never left out; what it does a little otherwise is told as a warning.
//
// Ranks: stage by stage, of each its replicas in their order, so that rank = stage * replicas +
// replica where all stages have as many. Devices that hold several stages are one rank.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dapple/core/index.h"
#include "dapple/plan/plan.h"
#include "dapple/profile/model_profile.h"
#include "dapple/topology/topology.h"

namespace dapple {

struct ExportSubject {
  const PlanDocument& document;
  const Topology& topology;
};

/// A file beside the main one.
struct ExportFile {
  std::string ending;  // behind the main one's name without its ending, ".0.et"
  std::string text;
};

struct Export {
  std::string text;
  std::vector<std::string> warnings;
  std::vector<ExportFile> files = {};
};

/// What a runtime can do, where it is less than a plan may ask for.
struct RuntimeLimits {
  std::string_view name;         // "Megatron-LM"
  bool any_order = false;        // of forwards and backwards; else 1F1B
  bool any_depths = false;       // of 1F1B; else the least that keep all stages busy
  bool interleaves = false;      // else a device holds one stage
  bool any_graph = false;        // else one tensor goes from stage to stage
  bool ties = true;              // gradients over stages that share weights
  bool deals = true;             // whole micro-batches to replicas in turn
  bool deals_unequally = false;  // then also to other numbers of replicas from stage to stage
  bool recomputes = true;        // all stages or none
  bool counts_blocks = false;    // boundaries only beside transformer blocks
  bool block_in_every_stage = false;
};

/// Layers that begin no stage of a plan that the runtime can express, ascending: a tensor would
/// skip a stage, stages would share weights, or the boundary is beside no transformer block. Throws
/// Error(BadInput) where a runtime that counts blocks finds none. O(layers * edges).
std::vector<std::int32_t> inexpressible_cuts(const RuntimeLimits& runtime,
                                             const ModelProfile& profile);

struct ExportTarget {
  std::string_view name;        // "megatron"
  std::string_view ending;      // of a file's name, ".megatron.sh"
  std::string_view what;        // in a few words
  const RuntimeLimits* limits;  // nothing where every plan can be expressed
  /// Throws Error(BadInput) without a source, its places JSON pointers into the plan. Requires: a
  /// sound plan.
  Export (*make)(const ExportSubject& subject);
};

/// All of them, in the order in which they are shown.
const std::vector<ExportTarget>& export_targets();

/// The device of each rank. O(stages + devices).
std::vector<DeviceIndex> devices_by_rank(const Plan& plan);

}  // namespace dapple
