// A "*_conf.json" of PipeDream's converter or runtime: which modules form a stage, and which ranks
// have it; where `export` wrote it, also the device of each rank, the batch, and what replicas
// share. Source: msr-fiddle/pipedream optimizer/convert_graph_to_model.py, runtime/runtime.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dapple/interop/plans/foreign_plan.h"

namespace dapple::interop {

struct PipedreamConf {
  std::vector<std::int32_t> stage_of;            // by module, a stage of the plan; rising by one
  std::vector<std::vector<std::int32_t>> ranks;  // by stage
  std::vector<std::int64_t> depths;              // by stage, as of 1F1B; empty: not told
  // Told by our own files only:
  std::vector<std::string> devices;          // by rank
  std::optional<std::int64_t> global_batch;  // samples
  std::optional<std::int64_t> micro_batch;   // samples, over all replicas of a stage
  Replication replication = Replication::Deal;
  bool recompute = false;
};

/// Modules are the stages of an answer called `answer`, or, where there is none, the layers of a
/// profile; one more, the loss, may stand behind them. Without a module_to_stage_map every stage of
/// the answer is one of the plan. Throws Error(BadInput) with all faults. O(modules + ranks).
PipedreamConf read_pipedream_conf(const ForeignPlanFile& file, std::size_t modules,
                                  const std::string& answer);

}  // namespace dapple::interop
