#include "exec_app/request/runnable_plan.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "dapple/command_line/files.h"
#include "dapple/core/error.h"
#include "dapple/cost/compatible.h"
#include "dapple/exec/train/training_job.h"
#include "dapple/report/show.h"
#include "dapple/schedule/schedule.h"

namespace dapple::exec_app {

RunnablePlan::RunnablePlan(const std::string& path)
    : document(command_line::load_plan(path)),
      topology(document.topology, command_line::source_name(path)),
      single_devices(document.original_topology(), command_line::source_name(path)) {
  std::vector<Violation> faults = costing_faults(document.plan, document.profile, topology);
  if (faults.empty()) faults = validate(generate(document.plan), document.plan);
  if (faults.empty() && document.plan.skip_tensors == SkipTensors::Direct) {
    faults.push_back(
        {"/skip_tensors", "expected forwarded tensors, as no others are run, got direct"});
  }
  const bool are_cut = document.plan.boundaries == Boundaries::ScatterGather;
  if (faults.empty() && are_cut && exec::has_different_groups(document.plan)) {
    faults.push_back({"/boundaries",
                      "expected whole tensors, as stages whose groups differ send no shares, got "
                      "scatter-gather"});
  }
  if (!faults.empty())
    throw Error(ErrorKind::BadInput, command_line::source_name(path), std::move(faults));
}

std::size_t RunnablePlan::device_count() const {
  std::set<DeviceIndex> devices;
  for (const StagePlan& stage : document.plan.stages) {
    devices.insert(stage.devices.begin(), stage.devices.end());
  }
  return devices.size();
}

std::size_t RunnablePlan::rank_count() const {
  return device_count() * static_cast<std::size_t>(document.plan.parallelism.group_size());
}

void log_threads(const RunnablePlan& plan, std::int64_t ranks) {
  std::size_t thread = 0;
  const std::vector<StagePlan>& all = plan.document.plan.stages;
  for (const std::vector<StageIndex>& stages : stages_by_device_group(plan.document.plan)) {
    std::string work;
    for (const StageIndex s : stages) {
      const StagePlan& stage = all[s.position()];
      work += fmt::format("{}stage {}, {} layer{}, {}{}", work.empty() ? "" : "; ", s.value,
                          stage.layers.size(), stage.layers.size() == 1 ? "" : "s",
                          printable(report::show_layers(stage.layers, plan.document.profile)),
                          stage.recompute ? ", recomputed" : "");
    }
    for (const DeviceIndex device : all[stages.front().position()].devices) {
      const std::int64_t members = ranks * all[stages.front().position()].devices_per_replica;
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        const std::int64_t own = (device.value * ranks + rank) % members;
        const std::string of_group =
            members == 1 ? "" : fmt::format(", rank {} of {}", own, members);
        spdlog::info("thread {} is {}{}: {}", thread++,
                     printable(plan.topology.device(device).name), of_group, work);
      }
    }
  }
}

}  // namespace dapple::exec_app
