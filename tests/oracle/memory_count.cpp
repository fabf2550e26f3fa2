#include "memory_count.h"

#include <algorithm>

#include "dapple/core/error.h"

namespace dapple::small {
namespace {

constexpr std::int64_t kBillion = 1'000'000'000;

std::int64_t rounded_up(std::int64_t numerator, std::int64_t denominator) {
  return (numerator + denominator - 1) / denominator;
}

std::int64_t scaled_up(std::int64_t bytes, Factor factor) {
  return rounded_up(bytes * factor.billionths, kBillion);
}

/// Section 2.2: proportional to the largest batch that was measured.
std::int64_t sized(Bytes Measurement::*size, const Layer& layer, std::int64_t samples) {
  const Measurement& largest = layer.measurements.back();
  return rounded_up((largest.*size).count * samples, largest.batch_size);
}

/// Section 2.4.
std::int64_t boundary(const ModelProfile& profile, std::int32_t cut, std::int64_t samples) {
  std::int64_t sum = 0;
  for (std::int32_t made = 0; made < cut; ++made) {
    bool crosses = false;
    for (std::size_t later = static_cast<std::size_t>(cut); later < profile.layers.size();
         ++later) {
      for (const LayerIndex input : profile.layers[later].inputs) {
        crosses = crosses || input.value == made;
      }
    }
    const Layer& layer = profile.layers[static_cast<std::size_t>(made)];
    if (crosses) sum += sized(&Measurement::output, layer, samples);
  }
  return sum;
}

/// Section 7.1.
std::int64_t largest_bucket(const ModelProfile& profile, const Plan& plan, const StagePlan& stage) {
  if (stage.devices.size() == 1) return 0;
  std::int64_t largest = 0;
  std::int64_t open = 0;
  for (std::int32_t l = stage.layers.end; l-- > stage.layers.begin;) {
    open += scaled_up(profile.layers[static_cast<std::size_t>(l)].parameters.count,
                      profile.optimizer.gradient_bytes_per_parameter_byte);
    largest = std::max(largest, open);
    if (open >= plan.gradients.bucket_size.count) open = 0;
  }
  return largest;
}

/// Section 3: the first replicas take one sample more where they do not come out even.
std::int64_t samples_on(const Plan& plan, const StagePlan& stage, std::size_t replica) {
  if (!stage.samples.empty()) return stage.samples[replica];
  const auto replicas = static_cast<std::int64_t>(stage.devices.size());
  const bool has_one_more = static_cast<std::int64_t>(replica) < plan.micro_batch_size % replicas;
  return plan.micro_batch_size / replicas + (has_one_more ? 1 : 0);
}

CountedMemory of_replica(const ModelProfile& profile, const TopologyDescription& topology,
                         const Plan& plan, const std::vector<std::int64_t>& in_flight,
                         std::size_t s, std::size_t replica) {
  const StagePlan& stage = plan.stages[s];
  const std::int64_t samples = samples_on(plan, stage, replica);
  std::int64_t weights = 0;
  std::int64_t stashes = 0;
  std::int64_t workspace = 0;
  for (std::int32_t l = stage.layers.begin; l < stage.layers.end; ++l) {
    const Layer& layer = profile.layers[static_cast<std::size_t>(l)];
    weights += layer.parameters.count;
    stashes += sized(&Measurement::stash, layer, samples);
    workspace = std::max(workspace, sized(&Measurement::workspace, layer, samples));
  }
  const std::int64_t own = in_flight[s];
  const bool has_before = s > 0;
  const bool has_behind = s + 1 < plan.stages.size();
  const std::int64_t before = has_before ? std::max<std::int64_t>(0, in_flight[s - 1] - own) : 0;
  const std::int64_t behind = has_behind ? std::max<std::int64_t>(0, own - in_flight[s + 1]) : 0;
  const std::int64_t input = boundary(profile, stage.layers.begin, samples);
  const std::int64_t output = boundary(profile, stage.layers.end, samples);
  const Optimizer& optimizer = profile.optimizer;
  CountedMemory memory;
  memory.fixed = weights + scaled_up(weights, optimizer.gradient_bytes_per_parameter_byte) +
                 scaled_up(weights, optimizer.framework_bytes_per_parameter_byte) +
                 scaled_up(weights, optimizer.state_bytes_per_parameter_byte) +
                 largest_bucket(profile, plan, stage) + (4 + before) * input +
                 (4 + behind) * output + workspace;
  memory.per_micro_batch = stashes;
  if (stage.recompute) {
    const Layer& first = profile.layers[static_cast<std::size_t>(stage.layers.begin)];
    memory.per_micro_batch = has_before ? input : sized(&Measurement::stash, first, samples);
    memory.recomputation = stashes;
  }
  const DeviceKind& kind = topology.devices.front();
  memory.room = kind.memory.count - kind.reserved.count;
  return memory;
}

/// From the start of a micro-batch's forward to the end of its B or W.
std::vector<std::int64_t> most_in_flight(const Plan& plan) {
  std::vector<std::int64_t> most;
  for (const std::vector<Action>& order : plan.order) {
    std::int64_t now = 0;
    std::int64_t peak = 0;
    for (const Action& action : order) {
      if (action.kind == ActionKind::Forward) peak = std::max(peak, ++now);
      if (action.kind == ActionKind::Backward || action.kind == ActionKind::WeightGradient) --now;
    }
    most.push_back(peak);
  }
  return most;
}

std::int64_t peak_of(const std::vector<Action>& order, const CountedMemory& memory) {
  std::int64_t held = memory.fixed;
  std::int64_t peak = held;
  for (const Action& action : order) {
    const bool is_forward = action.kind == ActionKind::Forward;
    const bool ends =
        action.kind == ActionKind::Backward || action.kind == ActionKind::WeightGradient;
    const bool recomputes =
        action.kind == ActionKind::Backward || action.kind == ActionKind::InputGradient;
    if (is_forward) held += memory.per_micro_batch;
    if (recomputes) held += memory.recomputation;
    peak = std::max(peak, held);
    if (ends) held -= memory.per_micro_batch + memory.recomputation;
  }
  return peak;
}

}  // namespace

std::vector<CountedMemory> count_memory(const ModelProfile& profile,
                                        const TopologyDescription& topology, const Plan& plan,
                                        const std::vector<std::int64_t>& in_flight,
                                        std::size_t stage) {
  check(profile.ties.empty() && topology.devices.size() == 1,
        "more is asked of memory than is counted");
  std::vector<CountedMemory> replicas;
  for (std::size_t r = 0; r < plan.stages[stage].devices.size(); ++r) {
    replicas.push_back(of_replica(profile, topology, plan, in_flight, stage, r));
  }
  return replicas;
}

bool may_hold(const ModelProfile& profile, const TopologyDescription& topology, const Plan& plan,
              const std::vector<std::int64_t>& in_flight) {
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    for (const CountedMemory& memory : count_memory(profile, topology, plan, in_flight, s)) {
      const std::int64_t held =
          memory.fixed + in_flight[s] * memory.per_micro_batch + memory.recomputation;
      if (held > memory.room) return false;
    }
  }
  return true;
}

bool order_fits(const ModelProfile& profile, const TopologyDescription& topology,
                const Plan& plan) {
  const std::vector<std::int64_t> in_flight = most_in_flight(plan);
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    for (const CountedMemory& memory : count_memory(profile, topology, plan, in_flight, s)) {
      if (peak_of(plan.order[s], memory) > memory.room) return false;
    }
  }
  return true;
}

}  // namespace dapple::small
