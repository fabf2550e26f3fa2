#include "exec_app/request/runnable_plan.h"

#include <set>
#include <utility>
#include <vector>

#include "dapple/command_line/files.h"
#include "dapple/core/error.h"
#include "dapple/cost/costs.h"
#include "dapple/schedule/schedule.h"

namespace dapple {

RunnablePlan::RunnablePlan(const std::string& path)
    : document(load_plan(path)), topology(document.topology, source_name(path)) {
  std::vector<Violation> faults = costing_faults(document.plan, document.profile, topology);
  if (faults.empty()) faults = validate(generate(document.plan), document.plan);
  if (!faults.empty()) throw Error(ErrorKind::BadInput, source_name(path), std::move(faults));
}

std::size_t RunnablePlan::device_count() const {
  std::set<DeviceIndex> devices;
  for (const StagePlan& stage : document.plan.stages) {
    devices.insert(stage.devices.begin(), stage.devices.end());
  }
  return devices.size();
}

}  // namespace dapple
