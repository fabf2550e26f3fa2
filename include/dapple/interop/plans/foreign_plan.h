// Plans from the files of other planners and runtimes:
//
//   pipedream  "gpus=N.txt" of its optimizer, with which nodes of a graph form which stage; beside
//   it
//              what that printed, or a "*_conf.json", for the replicas
//   megatron   options of Megatron-LM with its pipeline layout, in a script or as --layout
//   deepspeed  the parts of a PipelineModule, in a program or a JSON file; beside it its settings
//   torch      torchtitan's options with the modules of each stage; beside it PyTorch's CSV
//   schedule sailor     a plan of Sailor's planner
//
// Sources: msr-fiddle/pipedream optimizer/ and runtime/, Megatron-LM's pipeline layout, DeepSpeed
// runtime/pipe/module.py, PyTorch distributed/pipelining/schedules.py, torchtitan's job
// configuration, eth-easl/sailor Planner/.
//
// What comes out is the structure of a plan for a model and a topology: stages, devices,
// micro-batches, order. It is to be costed and checked like any other. Where a file does not say
// something, an option does; the rest is refused by place.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dapple/core/error.h"
#include "dapple/plan/plan.h"
#include "dapple/profile/model_profile.h"
#include "dapple/topology/topology.h"

namespace dapple::interop {

enum class PlanFormat { Pipedream, Megatron, Deepspeed, Torch, Sailor };

/// As --format takes it: "pipedream", "megatron", "deepspeed", "torch", "sailor".
std::string_view name_of(PlanFormat format);
std::vector<PlanFormat> all_plan_formats();

/// What the text looks like; nothing if it looks like none of them. O(length of the text).
std::optional<PlanFormat> detect_plan_format(std::string_view text);

/// What files do not say, or what is to be used in place of what they say.
struct ForeignPlanOptions {
  std::optional<std::int64_t> global_batch;  // the file's, else the profile's, if not given
  std::optional<std::int64_t> micro_batch;   // samples, over all replicas of a stage
  std::vector<std::int64_t> replicas;        // of each stage, or one number for all of them
  std::vector<std::string> devices;  // of the ranks in their order; the topology's, if empty
  std::optional<std::int64_t> tensor_parallel;  // GPUs that are one device of the topology
  std::optional<Replication> replication;       // PipeDream's deal, all others' split, if not given
};

struct ForeignPlanFile {
  std::string text;
  std::string name;  // what errors call it
  PlanFormat format = PlanFormat::Pipedream;
};

struct PlanGround {
  const ModelProfile& profile;
  const Topology& topology;
};

struct ImportedPlan {
  /// The ground's; only its layers may stand in another order, each behind its inputs, where a
  /// stage of PipeDream's is otherwise no run of layers.
  ModelProfile profile;
  Plan plan;
  std::vector<std::string> warnings;
};

/// Faults of a plan that came from another tool's file, which has no place for our JSON pointers:
/// "/stages/1/devices/0" is "stage 1, replica 0". O(length).
std::vector<Violation> in_words(std::vector<Violation> faults);

/// Files of one kind. Throws Error(BadInput) with the faults of a file, or of the plan (validate()
/// of plan/plan.h) in_words(), or Error(Usage) naming an option that is missing
/// or would do nothing. Memory is not looked at. O(length + layers + actions), times log layers.
ImportedPlan import_plan(const std::vector<ForeignPlanFile>& files, const PlanGround& ground,
                         const ForeignPlanOptions& options);

}  // namespace dapple::interop
