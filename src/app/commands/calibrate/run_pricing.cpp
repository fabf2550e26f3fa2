#include "app/commands/calibrate/run_pricing.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <tuple>
#include <utility>

#include "app/request/inputs.h"
#include "app/request/runtimes.h"
#include "dapple/command_line/files.h"
#include "dapple/core/error.h"
#include "dapple/interop/profiles/configuration.h"
#include "dapple/io/files/read_file.h"
#include "dapple/planner/candidates/evaluate.h"

namespace dapple::app {
namespace {

std::string name_of_runtime(const MeasuredRun& run) {
  return run.runtime ? run.runtime->name : std::string();
}

/// The topology's file, and the runtime that keeps a part of its memory.
std::pair<std::string, std::string> topology_key(const MeasuredRun& run) {
  return {run.topology, name_of_runtime(run)};
}

/// What two runs have in common that have one profile on one topology.
auto key_of(const MeasuredRun& run) {
  const estimate::EstimateOptions& options = run.options;
  return std::tuple(run.configuration, run.topology, options.sequence,
                    static_cast<int>(options.precision), options.has_fused_attention,
                    options.has_sequence_parallelism, options.max_tensor, options.max_context,
                    options.max_experts, options.max_expert_tensor, options.recomputations,
                    options.gradient_bytes, run.framework, name_of_runtime(run));
}

/// Returns the peak memory of the fullest device of the last stage.
Bytes memory_of_last_stage(const Plan& plan, const Prediction& prediction) {
  const std::vector<DeviceIndex>& devices = plan.stages.back().devices;
  Bytes most;
  for (const DeviceFigures& figures : prediction.devices) {
    if (std::find(devices.begin(), devices.end(), figures.device) == devices.end()) continue;
    most = std::max(most, figures.peak_memory);
  }
  return most;
}

/// Sets what the run's framework keeps in memory. Throws if the table does not have it.
void set_framework(const estimate::GpuTable& table, MeasuredRun& run) {
  if (run.framework.empty()) return;
  if (const estimate::Framework* const found = table.framework(run.framework)) {
    run.options.framework = *found;
    return;
  }
  throw Error{ErrorKind::BadInput,
              run.layout.source,
              {{run.layout.place, fmt::format("framework: expected one of {}, got \"{}\"",
                                              printable(estimate::names_of(table.frameworks)),
                                              printable(run.framework))}}};
}

/// Calls `read` with the file that a run names. Throws Error with the run's line if that is no
/// regular file, as others may never end, and for its faults.
template <class Read>
auto read_of(const MeasuredRun& run, const std::string& file, Read read) {
  const auto refuse = [&](ErrorKind kind, std::vector<std::string> messages) {
    std::vector<Violation> faults;
    for (std::string& message : messages) faults.push_back({run.layout.place, std::move(message)});
    return Error{kind, run.layout.source, std::move(faults)};
  };
  std::error_code ignored;
  if (std::filesystem::exists(file, ignored) && !std::filesystem::is_regular_file(file, ignored)) {
    throw refuse(ErrorKind::BadInput,
                 {fmt::format("expected a regular file, got {}", command_line::source_name(file))});
  }
  try {
    return read(file);
  } catch (const Error& error) {
    std::vector<std::string> messages;
    for (const Violation& fault : error.violations()) {
      messages.push_back(fmt::format("{}: {}{}{}", error.source(), fault.place,
                                     fault.place.empty() ? "" : ": ", fault.message));
    }
    throw refuse(error.kind(), std::move(messages));
  }
}

}  // namespace

RunPricing::RunPricing(std::vector<MeasuredRun> runs, const estimate::Gpu& gpu,
                       const estimate::GpuTable& table)
    : runs_(std::move(runs)), gpu_(gpu) {
  std::map<decltype(key_of(runs_.front())), std::vector<std::size_t>> by_key;
  for (std::size_t i = 0; i < runs_.size(); ++i) {
    MeasuredRun& run = runs_[i];
    set_framework(table, run);
    const std::string& model = run.configuration;
    if (models_.count(model) == 0) {
      models_.emplace(model, read_of(run, model, [](const std::string& file) {
                        return interop::read_configuration(io::read_file(file),
                                                           command_line::source_name(file));
                      }));
    }
    const auto on = topology_key(run);
    if (topologies_.count(on) == 0) {
      topologies_.emplace(on, read_of(run, run.topology, [&](const std::string& file) {
                            TopologyDescription description = load_topology(file);
                            if (run.runtime) reserve(*run.runtime, description);
                            return Topology{description, command_line::source_name(file)};
                          }));
    }
    require_gpu(run);
    const std::vector<Violation> faults =
        estimate::option_faults(models_.at(model), gpu_, run.options);
    if (!faults.empty()) {
      throw Error{
          ErrorKind::BadInput, run.layout.source, {{run.layout.place, faults.front().message}}};
    }
    by_key[key_of(run)].push_back(i);
  }
  for (auto& [key, positions] : by_key) alike_.push_back(std::move(positions));
}

/// Throws if the run was measured on another kind of device.
void RunPricing::require_gpu(const MeasuredRun& run) const {
  estimate::GpuTable only;
  only.gpus = {gpu_};
  for (const ServerGroup& group : topologies_.at(topology_key(run)).description().servers) {
    if (only.find(group.device) != nullptr) continue;
    throw Error{ErrorKind::BadInput,
                run.layout.source,
                {{run.layout.place, fmt::format("expected a topology of {}, as --gpu says, got {}",
                                                gpu_.name, printable(group.device))}}};
  }
}

ModelProfile RunPricing::profile_of(const MeasuredRun& run,
                                    const estimate::Calibration& calibration) const {
  ModelProfile profile =
      estimate::estimate_profile(models_.at(run.configuration), gpu_, calibration, run.options);
  // The topologies of runs may call the GPU otherwise.
  profile.device = topologies_.at(topology_key(run)).description().servers.front().device;
  if (run.runtime) apply(*run.runtime, profile);
  return profile;
}

RunPrice RunPricing::price(const MeasuredRun& run, LayoutGround& ground) const {
  Subject subject = subject_of_layout(run.layout, ground);
  SimulationMode mode;
  if (run.runtime) mode.transfers = transfers_of(*run.runtime, subject.document.plan.family);
  try {
    check_mode(subject.document.plan, mode, run.layout.source);
  } catch (const Error& error) { throw run.layout.at_its_place(error); }
  const Prediction prediction =
      planner::evaluate(subject.document.plan, subject.document.profile, subject.topology, mode)
          .prediction;
  return {.iteration = prediction.iteration,
          .memory = run.is_memory_of_last_stage
                        ? memory_of_last_stage(subject.document.plan, prediction)
                        : prediction.most_memory()};
}

std::vector<RunPrice> RunPricing::prices(const estimate::Calibration& calibration) const {
  std::vector<RunPrice> prices(runs_.size());
  for (const std::vector<std::size_t>& positions : alike_) {
    const MeasuredRun& first = runs_[positions.front()];
    LayoutGround ground{.profile = profile_of(first, calibration),
                        .topology = topologies_.at(topology_key(first)),
                        .topology_source = command_line::source_name(first.topology),
                        .options = {},
                        .runtime = first.runtime};
    for (const std::size_t position : positions) prices[position] = price(runs_[position], ground);
  }
  return prices;
}

}  // namespace dapple::app
