// What the exports have in common.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dapple/core/error.h"
#include "dapple/interop/exports.h"
#include "dapple/plan/plan.h"

namespace dapple {

Export export_megatron(const ExportSubject& subject);
Export export_deepspeed(const ExportSubject& subject);
Export export_torch_csv(const ExportSubject& subject);
Export export_torchtitan(const ExportSubject& subject);
Export export_rankfile(const ExportSubject& subject);
Export export_hostfile(const ExportSubject& subject);
Export export_visible_devices(const ExportSubject& subject);

/// What a runtime can do, where it is less than a plan may ask for.
struct RuntimeLimits {
  std::string name;          // "Megatron-LM"
  bool any_order = false;    // of forwards and backwards; else 1F1B in the least depths
  bool interleaves = false;  // else a device holds one stage
  bool any_graph = false;    // else one tensor goes from stage to stage
};

/// What keeps the plan from running there: replica counts that differ, shares that differ, an order
/// or depths that it does not have, tensors past a stage, stages of which only some recompute.
std::vector<Violation> faults_for(const RuntimeLimits& runtime, const PlanDocument& document);

/// Samples that one replica works on at a time. Requires: no faults_for().
std::int64_t samples_per_replica(const Plan& plan);

/// Micro-batches that one replica works on. Requires: no faults_for().
std::int64_t micro_batches_per_replica(const Plan& plan);

/// "BERT-48 on 2x8xV100": a line of comment.
std::string title_of(const ExportSubject& subject);

/// A line of comment for each group of devices, "# ranks 0 to 1: node0:0 node0:1".
std::string ranks_as_comment(const ExportSubject& subject);

/// A string of Python or a shell, in double quotes; names of layers may hold anything.
std::string quoted(std::string_view text);

}  // namespace dapple
