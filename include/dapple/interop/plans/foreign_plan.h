// Imports plans from the files of other planners and runtimes:
//
//   pipedream  "gpus=N.txt" of its optimizer, which assigns the nodes of a graph to stages;
//              optionally what the optimizer printed, or a "*_conf.json", for the replicas
//   megatron   options of Megatron-LM with its pipeline layout, in a script or as --layout
//   deepspeed  the parts of a PipelineModule, in a program or a JSON file; optionally the settings
//   torch      torchtitan's options with the modules of each stage; optionally a CSV schedule of
//              PyTorch
//   sailor     a plan of Sailor's planner
//   nanotron   a configuration of nanotron, which cuts the stages itself
//   layout     degrees of parallelism in words, "pp=4,dp=2,mbs=1" (interop/plans/layout.h)
//
// Sources: msr-fiddle/pipedream optimizer/ and runtime/, Megatron-LM's pipeline layout, DeepSpeed
// runtime/pipe/module.py, PyTorch distributed/pipelining/schedules.py, torchtitan's job
// configuration, nanotron's config/ and models/base.py, eth-easl/sailor Planner/.
//
// The result is the structure of a plan for a model and a topology: stages, devices, micro-batches,
// order. It has to be costed and checked like any other plan. What a file does not say is taken
// from options; what a plan cannot express is refused with its place in the file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dapple/core/error.h"
#include "dapple/interop/text/foreign_format.h"
#include "dapple/plan/plan.h"
#include "dapple/profile/model_profile.h"
#include "dapple/profile/recomputation.h"
#include "dapple/topology/topology.h"

namespace dapple::interop {

enum class PlanFormat { Pipedream, Megatron, Deepspeed, Torch, Sailor, Nanotron, Layout };

/// Returns the name of the format that --format takes, such as "megatron".
std::string_view name_of(PlanFormat format);
/// Returns the names of every format, in the order in which messages list them.
std::vector<ForeignFormat<PlanFormat>> plan_formats();

/// Returns the format that the text appears to have, or nothing if it resembles none of them.
/// O(length of the text).
std::optional<PlanFormat> detect_plan_format(std::string_view text);

/// Values that the files do not state, or that replace those they state.
struct ForeignPlanOptions {
  /// The samples of an iteration; if not given, those of the file, else of the profile.
  std::optional<std::int64_t> global_batch;
  /// The samples of a micro-batch over all replicas of a stage.
  std::optional<std::int64_t> micro_batch;
  /// The number of replicas of each stage, or a single number for all stages.
  std::vector<std::int64_t> replicas;
  /// The names of the devices in the order of ranks; if empty, the topology's devices in their
  /// order, unless the file names devices.
  std::vector<std::string> devices;
  /// The number of GPUs that form one device of the topology.
  std::optional<std::int64_t> tensor_parallel;
  /// How replicas divide micro-batches; if not given, by dealing for PipeDream (unless its conf
  /// file says otherwise) and by splitting for all other formats.
  std::optional<Replication> replication;
};

struct ForeignPlanFile {
  std::string text;
  /// The name of the file in errors.
  std::string name;
  PlanFormat format = PlanFormat::Pipedream;
};

/// The model, in the form of parallelism that the plan states, and the topology that it is imported
/// for.
struct PlanGround {
  const ModelProfile& profile;
  const Topology& topology;
  /// The parts that the profile's layers recompute, which no stage then does besides.
  RecomputedParts recomputed_parts = {};
};

struct ImportedPlan {
  /// The profile of the PlanGround. Its layers are reordered, each still after its inputs, if a
  /// stage of PipeDream's would otherwise not be a contiguous range of layers.
  ModelProfile profile;
  Plan plan;
  std::vector<std::string> warnings;
};

/// Rewrites the JSON pointers in the faults of a plan, which mean nothing in another tool's file,
/// in words: "/stages/1/devices/0" becomes "stage 1, replica 0". O(length).
std::vector<Violation> in_words(std::vector<Violation> faults);

/// Imports a plan from files of one format. Throws Error(BadInput) with the faults of a file, or
/// with those that validate() finds in the plan, in_words(), and Error(Usage) naming an option that
/// is missing or would have no effect. Memory limits are not checked. O(length + layers + actions),
/// times log layers.
ImportedPlan import_plan(const std::vector<ForeignPlanFile>& files, const PlanGround& ground,
                         const ForeignPlanOptions& options);

}  // namespace dapple::interop
