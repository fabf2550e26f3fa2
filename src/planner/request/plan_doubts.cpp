// Warnings about a plan that follow from its own figures.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "dapple/planner/request/planner.h"
#include "dapple/profile/doubts.h"

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

}  // namespace

std::vector<std::string> warnings_about(const PlanDocument& document, const Topology& topology) {
  std::vector<std::string> warnings = doubts_about(document.profile);
  warn_about_speedup(document, warnings);
  warn_about_reserve(document, topology, warnings);
  std::vector<std::string> others =
      warnings_about(document.plan, document.profile, topology, why_idle(document));
  warnings.insert(warnings.end(), std::make_move_iterator(others.begin()),
                  std::make_move_iterator(others.end()));
  return warnings;
}

}  // namespace dapple::planner
