#include "dapple/planner/request/warnings.h"

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
#include "dapple/plan/warning_text.h"
#include "dapple/profile/doubts.h"
#include "dapple/profile/variants.h"
#include "planner/request/gap_causes.h"

namespace dapple::planner {
namespace {

std::size_t used_devices(const Plan& plan) {
  std::set<DeviceIndex> devices;
  for (const StagePlan& stage : plan.stages) {
    devices.insert(stage.devices.begin(), stage.devices.end());
  }
  return devices.size();
}

/// Warns of forms of parallelism that some layers have variants for and others do not.
void warn_about_variants(const ModelProfile& profile, std::vector<std::string>& warnings) {
  std::set<Parallelism> forms;
  for (const Layer& layer : profile.layers) {
    for (const LayerVariant& variant : layer.variants) forms.insert(variant.parallelism);
  }
  for (const Parallelism& form : forms) {
    const std::string missing = layer_without(profile, form);
    if (!missing.empty()) warnings.push_back(warning_of_missing_variant(form, missing));
  }
}

void warn_about_speedup(const PlanDocument& document, std::vector<std::string>& warnings) {
  const std::optional<double> speedup = document.prediction.speedup_over_one_device;
  const std::size_t devices = used_devices(document.plan);
  // Do not warn of a rounding error.
  if (!speedup || *speedup <= static_cast<double>(devices) * (1 + 1e-9)) return;
  warnings.push_back(warning_of_speedup(*speedup, devices));
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
  warnings.push_back(warning_of(FullestGpu{.kind = topology.kind_of(fullest->device).name,
                                           .name = topology.device(fullest->device).name,
                                           .peak = fullest->peak_memory,
                                           .limit = fullest->memory_limit}));
}

/// Returns why devices stay idle. Without a request there was no search.
WhyIdle why_idle(const PlanDocument& document) {
  if (!document.request) return WhyIdle::NotSearched;
  const Pins& pins = document.request->pins;
  const bool is_pinned = pins.stages || pins.replicas || !pins.cuts.empty() || !pins.joints.empty();
  return is_pinned ? WhyIdle::NoGainAsPinned : WhyIdle::NoGain;
}

/// The factor between a plan's and a measured batch size above which a warning is given.
constexpr std::int64_t kTrustedBatchFactor = 4;

void warn_about_batch(const Plan& plan, const ModelProfile& profile,
                      std::vector<std::string>& warnings) {
  ScaledBatches scaled{
      .all_stages = plan.stages.size(), .fewest_measured = kMaxCount, .most_measured = 0};
  for (const Layer& layer : profile.layers) {
    for (std::size_t kind = 0; kind <= profile.other_devices.size(); ++kind) {
      const std::vector<Measurement>& measurements = measurements_on(layer, kind);
      scaled.fewest_measured = std::min(scaled.fewest_measured, measurements.front().batch_size);
      scaled.most_measured = std::max(scaled.most_measured, measurements.back().batch_size);
    }
  }
  for (const StagePlan& stage : plan.stages) {
    const std::int64_t samples =
        in_form(profile, stage.form).group.samples_of_replica(samples_of(plan, stage, 0).size());
    if (samples * kTrustedBatchFactor >= scaled.fewest_measured &&
        samples <= scaled.most_measured * kTrustedBatchFactor) {
      continue;
    }
    scaled.fewest = scaled.stages == 0 ? samples : std::min(scaled.fewest, samples);
    scaled.most = std::max(scaled.most, samples);
    ++scaled.stages;
  }
  if (scaled.stages > 0) warnings.push_back(warning_of(scaled));
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
  if (halved > 0) warnings.push_back(warning_of_halves(halved, trained));
}

/// Returns warnings about the assumptions behind a plan's figures.
std::vector<std::string> warnings_about_costs(const Plan& plan, const ModelProfile& profile,
                                              const Topology& topology, WhyIdle why_idle) {
  std::vector<std::string> warnings;
  warn_about_batch(plan, profile, warnings);
  std::int32_t used = 0;
  for (const StagePlan& stage : plan.stages)
    used += static_cast<std::int32_t>(stage.devices.size());
  if (used < topology.device_count()) {
    const auto group = static_cast<std::int32_t>(topology.description().group_size);
    const std::int32_t all = topology.device_count() * group;
    warnings.push_back(warning_of_idle_devices(all - used * group, all, why_idle));
  }
  if (!fits_one_device(CostModel(profile, topology))) warnings.emplace_back(kOneDeviceWarning);
  warn_about_halves(plan, profile, warnings);
  if (!profile.optimizer.step_ns_per_parameter_byte) warnings.emplace_back(kNoStepWarning);
  return warnings;
}

/// Warns of what ended the search, unless the requested gap was reached, or of what ended the
/// comparison of plans behind it.
void warn_of_end(const PlanDocument& document, std::vector<std::string>& warnings) {
  const PlanRequest& request = *document.request;
  const bool is_stopped = request.stopped_by != StopReason::None;
  if (has_reached_gap(document)) {
    if (!request.jitter || !is_stopped) return;
    warnings.push_back(warning_of_stopped_comparison(request.stopped_by, request.time_limit));
  } else if (is_stopped) {
    warnings.push_back(warning_of_stop(request.stopped_by, request.time_limit, request.planner));
  } else if (request.planner == PlannerKind::Exact) {
    warnings.push_back(warning_of(causes_of_gap(document)));
  }
}

}  // namespace

std::vector<std::string> warnings_about(const PlanDocument& document, const Topology& topology) {
  std::vector<std::string> warnings = doubts_about(document.profile);
  warn_about_variants(document.original_profile(), warnings);
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
  if (request.ignore_memory) warnings.emplace_back(kUnlimitedMemoryWarning);
  if (request.mode.contention == Contention::Off) warnings.emplace_back(kNoContentionWarning);
  warn_of_end(document, warnings);
  return warnings;
}

}  // namespace dapple::planner
