#include "app/commands/rank_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "dapple/cost/compatible.h"
#include "dapple/interop/exports/exports.h"
#include "dapple/planner/candidates/evaluate.h"
#include "dapple/report/show.h"

namespace dapple::app {

std::optional<std::string> loss_in_launchers_order(const Subject& subject) {
  const PlanDocument& document = subject.document;
  std::vector<DeviceIndex> devices = interop::devices_by_rank(document.plan);
  if (std::is_sorted(devices.begin(), devices.end())) return std::nullopt;
  std::sort(devices.begin(), devices.end());
  Plan launched = document.plan;
  auto next = devices.begin();
  for (const std::vector<StageIndex>& stages : stages_by_device_group(document.plan)) {
    const std::size_t replicas = launched.stages[stages.front().position()].devices.size();
    const std::vector<DeviceIndex> own(next, next + static_cast<std::ptrdiff_t>(replicas));
    for (const StageIndex stage : stages) launched.stages[stage.position()].devices = own;
    next += static_cast<std::ptrdiff_t>(replicas);
  }
  if (!costing_faults(launched, document.profile, subject.topology).empty()) {
    return "the plan cannot be costed";
  }
  const SimulationMode mode = document.prediction.mode();
  const planner::Evaluation there =
      planner::evaluate(launched, document.profile, subject.topology, mode);
  if (!there.shortages.empty()) return "the plan does not fit memory";
  Plan plan = document.plan;
  const Duration here =
      planner::evaluate(plan, document.profile, subject.topology, mode).prediction.iteration;
  if (there.prediction.iteration == here) return std::nullopt;
  return fmt::format("an iteration takes {} instead of {}",
                     report::show(there.prediction.iteration), report::show(here));
}

}  // namespace dapple::app
