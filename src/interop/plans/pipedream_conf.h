// Reads a "*_conf.json" of PipeDream's converter or runtime, which states the modules and the ranks
// of each stage. A file written by `export` also states the device of each rank, the batch sizes,
// the replication and recomputation. Source: msr-fiddle/pipedream
// optimizer/convert_graph_to_model.py, runtime/runtime.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dapple/interop/plans/foreign_plan.h"

namespace dapple::interop {

struct PipedreamConf {
  // The stage of each module, beginning with 0; each is that of the module before it or the next.
  std::vector<std::int32_t> stage_of;
  // The ranks of each stage.
  std::vector<std::vector<std::int32_t>> ranks;
  // The warm-up depth of 1F1B of each stage; empty if the file does not state them.
  std::vector<std::int64_t> depths;

  // The following members are only stated by files that `export` wrote.
  // The names of the devices by rank.
  std::vector<std::string> devices;
  std::optional<std::int64_t> global_batch;
  // The samples of a micro-batch over all replicas of a stage.
  std::optional<std::int64_t> micro_batch;
  Replication replication = Replication::Deal;
  bool recompute = false;
};

/// Reads the file. Its modules are the stages of the optimizer's answer, a file called `answer`,
/// or, if `answer` is empty, the layers of a profile; one more module, the loss, may follow them.
/// With an answer and without a module_to_stage_map every stage of the answer is a stage of the
/// plan. Throws Error(BadInput) with all faults. O(modules + ranks).
PipedreamConf read_pipedream_conf(const ForeignPlanFile& file, std::size_t modules,
                                  const std::string& answer);

}  // namespace dapple::interop
