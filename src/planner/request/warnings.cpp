#include "dapple/planner/request/warnings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "dapple/cost/cost_model.h"
#include "dapple/plan/optimality.h"
#include "dapple/profile/doubts.h"
#include "planner/request/search_record.h"

namespace dapple::planner {
namespace {

constexpr double kGibibyte = std::int64_t{1} << 30;

std::size_t used_devices(const Plan& plan) {
  std::set<DeviceIndex> devices;
  for (const StagePlan& stage : plan.stages) {
    devices.insert(stage.devices.begin(), stage.devices.end());
  }
  return devices.size();
}

void warn_about_speedup(const PlanDocument& document, std::vector<std::string>& warnings) {
  const std::optional<double> speedup = document.prediction.speedup_over_one_device;
  const std::size_t devices = used_devices(document.plan);
  // Do not warn of a rounding error.
  if (!speedup || *speedup <= static_cast<double>(devices) * (1 + 1e-9)) return;
  warnings.push_back(
      fmt::format("the plan is {:.4g} times as fast as one device, and has {}: the profile has "
                  "samples of small "
                  "batches cost less than those of large ones",
                  *speedup, devices));
}

/// Whether a kind of device is a GPU, judged by its name, as topologies do not say.
bool is_gpu(const std::string& kind) {
  static constexpr std::array<std::string_view, 26> kFamilies{
      "gpu", "cuda", "v100", "p100",  "k80",   "a100", "a800", "h100", "h200",
      "h20", "h800", "gh2",  "gb200", "gb300", "b100", "b200", "b300", "a10",
      "a30", "a40",  "t4",   "l4",    "rtx",   "gtx",  "gh-",  "mi"};
  std::string name = kind;
  for (char& c : name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return std::any_of(kFamilies.begin(), kFamilies.end(), [&](std::string_view family) {
    const std::size_t at = name.find(family);
    // "mi" must be followed by a digit: "MI250", but not "mine".
    const bool is_whole =
        family != "mi" || (at + 2 < name.size() && name[at + 2] >= '0' && name[at + 2] <= '9');
    return at != std::string::npos && is_whole;
  });
}

/// Warns of the fullest of the plan's GPUs without reserved memory.
void warn_about_reserve(const PlanDocument& document, const Topology& topology,
                        std::vector<std::string>& warnings) {
  const DeviceFigures* fullest = nullptr;
  for (const DeviceFigures& figures : document.prediction.devices) {
    const DeviceKind& kind = topology.kind_of(figures.device);
    if (kind.reserved.count > 0 || !is_gpu(kind.name) || figures.memory_limit.count <= 0) continue;
    const bool is_fuller =
        fullest == nullptr || Wide{figures.peak_memory.count} * fullest->memory_limit.count >
                                  Wide{fullest->peak_memory.count} * figures.memory_limit.count;
    if (is_fuller) fullest = &figures;
  }
  if (fullest == nullptr) return;
  const Bytes slack = fullest->memory_limit - fullest->peak_memory;
  warnings.push_back(fmt::format(
      "nothing of the memory of {} is reserved for driver, framework and what they leave unused: "
      "{} has {:.3g} GiB to spare, {:.1f} % of what it needs, where measured peaks were 23 to 34 % "
      "above such predictions",
      topology.kind_of(fullest->device).name, topology.device(fullest->device).name,
      static_cast<double>(slack.count) / kGibibyte,
      100 * static_cast<double>(slack.count) /
          static_cast<double>(std::max<std::int64_t>(1, fullest->peak_memory.count))));
}

/// Says why devices stay idle. Without a request there was no search, so nothing is known about
/// other plans.
std::string_view why_idle(const PlanDocument& document) {
  if (!document.request) return "the plan does not use them";
  const Pins& pins = document.request->pins;
  const bool is_pinned = pins.stages || pins.replicas || !pins.cuts.empty() || !pins.joints.empty();
  return is_pinned ? "no plan that was found with what is pinned gains from them"
                   : "no plan that was found gains from them";
}

/// The factor between a plan's and a measured batch size above which a warning is given.
constexpr std::int64_t kTrustedBatchFactor = 4;

void warn_about_batch(const Plan& plan, const ModelProfile& profile,
                      std::vector<std::string>& warnings) {
  std::int64_t smallest = INT64_MAX;
  std::int64_t largest = 0;
  for (const Layer& layer : profile.layers) {
    smallest = std::min(smallest, layer.measurements.front().batch_size);
    largest = std::max(largest, layer.measurements.back().batch_size);
  }
  std::int64_t least = INT64_MAX;
  std::int64_t most = 0;
  std::size_t stages = 0;
  for (const StagePlan& stage : plan.stages) {
    const std::int64_t samples = samples_of(plan, stage, 0).size();
    if (samples * kTrustedBatchFactor >= smallest && samples <= largest * kTrustedBatchFactor) {
      continue;
    }
    least = std::min(least, samples);
    most = std::max(most, samples);
    ++stages;
  }
  if (stages == 0) return;
  const auto range = [](std::int64_t from, std::int64_t to) {
    return from == to ? fmt::format("{}", from) : fmt::format("{} to {}", from, to);
  };
  warnings.push_back(
      fmt::format("{} of {} stages work on {} samples at a time, but the profile was measured at "
                  "{}: their times "
                  "are scaled, and real kernels do not scale that far",
                  stages, plan.stages.size(), range(least, most), range(smallest, largest)));
}

/// Whether some device has room for the whole model at micro-batches of one sample.
bool fits_one_device(const CostModel& costs) {
  const Topology& topology = costs.topology();
  for (std::int32_t i = 0; i < topology.device_count(); ++i) {
    const MemoryCost memory = costs.memory_cost({.layers = {0, costs.layer_count()}}, 1,
                                                topology.device(DeviceIndex{i}).kind);
    if (memory.peak() <= topology.memory_limit(DeviceIndex{i})) return true;
  }
  return false;
}

/// Whether the plan runs backwards in two parts; a given order may have whole backwards only.
bool splits_backwards(const Plan& plan) {
  if (plan.family != ScheduleFamily::Given) return may_split_backward(plan.family);
  return std::any_of(plan.order.begin(), plan.order.end(), [](const std::vector<Action>& actions) {
    return std::any_of(actions.begin(), actions.end(), [](const Action& action) {
      return action.kind == ActionKind::InputGradient;
    });
  });
}

/// Warns of layers whose backward runs in two parts, if the profile has not measured these.
void warn_about_halves(const Plan& plan, const ModelProfile& profile,
                       std::vector<std::string>& warnings) {
  if (!splits_backwards(plan)) return;
  std::size_t trained = 0;
  std::size_t halved = 0;
  for (const Layer& layer : profile.layers) {
    if (layer.parameters.count == 0) continue;
    ++trained;
    if (!layer.measurements.front().input_gradient) ++halved;
  }
  if (halved == 0) return;
  warnings.push_back(
      halved == trained
          ? "the profile does not measure the parts of its layers' backwards: each counts as half"
          : fmt::format("the profile does not measure the parts of the backward of {} of {} layers "
                        "with parameters: each counts as half",
                        halved, trained));
}

/// Returns warnings about the assumptions behind a plan's figures: batch sizes far from a measured
/// one; idle devices, with the reason `why_idle`; a single-device time for a model that no single
/// device has room for; parts of backwards that were not measured; no optimizer time.
std::vector<std::string> warnings_about_costs(const Plan& plan, const ModelProfile& profile,
                                              const Topology& topology, std::string_view why_idle) {
  std::vector<std::string> warnings;
  warn_about_batch(plan, profile, warnings);
  std::int32_t used = 0;
  for (const StagePlan& stage : plan.stages)
    used += static_cast<std::int32_t>(stage.devices.size());
  if (used < topology.device_count()) {
    warnings.push_back(fmt::format("{} of {} devices stay idle: {}", topology.device_count() - used,
                                   topology.device_count(), why_idle));
  }
  if (!fits_one_device(CostModel(profile, topology))) {
    warnings.push_back("the speedup is over one device that had room for the model: none here has");
  }
  warn_about_halves(plan, profile, warnings);
  if (!profile.optimizer.step_ns_per_parameter_byte) {
    warnings.push_back(
        "the profile has no step_ns_per_parameter_byte: the optimizer step counts as "
        "no time");
  }
  return warnings;
}

/// Warns of what ended the search, unless the requested gap was reached.
void warn_of_end(const PlanDocument& document, std::vector<std::string>& warnings) {
  const PlanRequest& request = *document.request;
  const bool is_exact = request.planner == PlannerKind::Exact;
  if (has_reached_gap(document)) return;
  if (request.stopped_by == StopReason::None) {
    if (!is_exact) return;
    warnings.push_back(cause_of_gap(document));
    return;
  }
  const double limit = static_cast<double>(request.time_limit.value_or(Duration{}).ns) * 1e-9;
  warnings.push_back(fmt::format("the search was {} before {}",
                                 request.stopped_by == StopReason::Signal
                                     ? "interrupted"
                                     : fmt::format("stopped by --time-limit {}", limit),
                                 is_exact ? "the gap was closed" : "it was through"));
}

}  // namespace

std::vector<std::string> warnings_about(const PlanDocument& document, const Topology& topology) {
  std::vector<std::string> warnings = doubts_about(document.profile);
  warn_about_speedup(document, warnings);
  warn_about_reserve(document, topology, warnings);
  std::vector<std::string> others =
      warnings_about_costs(document.plan, document.profile, topology, why_idle(document));
  warnings.insert(warnings.end(), std::make_move_iterator(others.begin()),
                  std::make_move_iterator(others.end()));
  return warnings;
}

std::vector<std::string> warnings_of(const PlanDocument& document, const Topology& topology) {
  const PlanRequest& request = *document.request;
  std::vector<std::string> warnings = request.input_warnings;
  for (std::string& warning : warnings_about(document, topology)) {
    warnings.push_back(std::move(warning));
  }
  if (request.ignore_memory) {
    warnings.emplace_back("searched with --unlimited-memory: the plan may not fit");
  }
  if (request.mode.contention == Contention::Off) {
    warnings.emplace_back(
        "simulated with --contention off: transfers do not slow each other, so real iterations may "
        "take longer");
  }
  warn_of_end(document, warnings);
  return warnings;
}

}  // namespace dapple::planner
