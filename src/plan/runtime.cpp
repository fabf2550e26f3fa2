#include "dapple/plan/runtime.h"

#include <fmt/format.h>

#include <algorithm>

#include "dapple/core/characters.h"
#include "dapple/plan/least_depth.h"
#include "dapple/profile/boundary_shares.h"

namespace dapple {

void apply(const Runtime& runtime, ModelProfile& profile) {
  profile.boundaries = runtime.boundaries;
  Optimizer& optimizer = profile.optimizer;
  if (runtime.gradient_bytes_per_parameter_byte) {
    optimizer.gradient_bytes_per_parameter_byte = *runtime.gradient_bytes_per_parameter_byte;
  }
  if (runtime.framework_bytes_per_parameter_byte) {
    optimizer.framework_bytes_per_parameter_byte = *runtime.framework_bytes_per_parameter_byte;
  }
}

void apply(const Runtime& runtime, TopologyDescription& topology) {
  for (DeviceKind& kind : topology.devices) {
    check(runtime.reserved < kind.memory, "a runtime keeps all of a device's memory");
    kind.reserved = std::max(kind.reserved, runtime.reserved);
  }
}

Transfers transfers_of(const Runtime& runtime, ScheduleFamily family) {
  const bool is_interleaved = family == ScheduleFamily::Interleaved;
  return is_interleaved && runtime.overlaps_interleaved ? Transfers::Overlapped : runtime.transfers;
}

std::vector<Violation> mode_faults(const Plan& plan, SimulationMode mode) {
  if (mode.replicas == Replicas::Independent && has_larger_groups(plan)) {
    return {{"/predicted/replicas",
             "expected together, as groups of stages have different sizes, got independent"}};
  }
  if (!mode.blocks()) return {};
  const auto fault = [&](const char* place, const std::string& expected) {
    return std::vector<Violation>{{place, fmt::format("expected {}, as transfers are {}", expected,
                                                      to_string(mode.transfers))}};
  };
  if (!is_planned_as_1f1b(plan.family) || plan.chunks_per_device > 1) {
    return fault("/schedule/family", fmt::format("1f1b or gpipe, got {}", to_string(plan.family)));
  }
  if (mode.replicas == Replicas::Independent && splits_micro_batches(plan)) {
    return fault("/predicted/replicas", "together, got independent");
  }
  if (deals_micro_batches(plan)) return fault("/stages", "split micro-batches, got dealt ones");
  if (plan.skip_tensors == SkipTensors::Direct) {
    return fault("/skip_tensors", "forwarded tensors, got direct ones");
  }
  for (std::size_t s = 1; s < plan.warmup_depths.size(); ++s) {
    const std::int64_t most = plan.warmup_depths[s] + 1;
    if (plan.warmup_depths[s - 1] <= most) continue;
    const std::string place = fmt::format("/schedule/warmup_depths/{}", s - 1);
    return fault(place.c_str(),
                 fmt::format("a depth of at most {}, one above that of the next stage, got {}",
                             most, plan.warmup_depths[s - 1]));
  }
  return {};
}

std::vector<Violation> runtime_faults(const Runtime& runtime, const Plan& plan,
                                      SimulationMode mode) {
  std::vector<Violation> faults;
  const auto expect = [&](const char* place, std::string_view wanted, std::string_view got) {
    if (wanted == got) return;
    faults.push_back({place, fmt::format("expected {}, as {} has it, got {}", wanted,
                                         printable(runtime.name), got)});
  };
  const auto overlap = [](bool overlaps) { return overlaps ? "buckets" : "none"; };
  expect("/predicted/transfers", to_string(transfers_of(runtime, plan.family)),
         to_string(mode.transfers));
  expect("/boundaries", to_string(runtime.boundaries), to_string(plan.boundaries));
  expect("/gradients/overlap", overlap(runtime.overlaps_gradients),
         overlap(plan.gradients.overlaps));
  if (!runtime.has_least_depths || plan.family != ScheduleFamily::OneFOneB) return faults;
  for (std::size_t s = 0; s < plan.warmup_depths.size(); ++s) {
    const std::int64_t least = least_depth(index_at<StageIndex>(s), plan.stages.size(),
                                           most_micro_batches_of(plan, plan.stages[s]));
    if (plan.warmup_depths[s] == least) continue;
    faults.push_back({fmt::format("/schedule/warmup_depths/{}", s),
                      fmt::format("expected {}, as {} has it, got {}", least,
                                  printable(runtime.name), plan.warmup_depths[s])});
    break;
  }
  return faults;
}

std::vector<Violation> memory_faults(const Runtime& runtime, const ModelProfile& profile,
                                     const TopologyDescription& topology) {
  std::vector<Violation> faults;
  const auto expect = [&](const char* place, const std::optional<Factor>& wanted, Factor got) {
    if (!wanted || *wanted == got) return;
    faults.push_back({place, "expected the profile's figure, got another"});
  };
  const Optimizer& optimizer = profile.optimizer;
  expect("/runtime/gradient_bytes_per_parameter_byte", runtime.gradient_bytes_per_parameter_byte,
         optimizer.gradient_bytes_per_parameter_byte);
  expect("/runtime/framework_bytes_per_parameter_byte", runtime.framework_bytes_per_parameter_byte,
         optimizer.framework_bytes_per_parameter_byte);
  for (const DeviceKind& kind : topology.devices) {
    if (kind.reserved >= runtime.reserved) continue;
    faults.push_back(
        {"/runtime/reserved",
         fmt::format("expected at most the {} bytes that {} has reserved, got {}",
                     kind.reserved.count, printable(kind.name), runtime.reserved.count)});
  }
  return faults;
}

}  // namespace dapple
