#include "least_memory.h"

#include <fmt/format.h>

#include <algorithm>

namespace dapple {
namespace {

struct Choice {
  Bytes missing{INT64_MAX};
  std::int32_t begin = 0;
  std::int32_t replicas = 0;
  bool recompute = false;
};

class LeastMemorySearch {
 public:
  LeastMemorySearch(const CostModel& costs, const SearchProblem& problem, std::int32_t devices)
      : costs_(costs),
        problem_(problem),
        devices_(devices),
        depth_(problem.gpipe ? problem.global_batch_size / problem.micro_batch_size : 1) {}

  LeastMemory run();

 private:
  Choice stage(std::int32_t begin, std::int32_t end, std::int32_t first_device,
               std::int32_t replicas) const;
  DeviceIndex device(std::int32_t position) const {
    return DeviceIndex{std::min(position, costs_.topology().device_count() - 1)};
  }

  const CostModel& costs_;
  const SearchProblem& problem_;
  std::int32_t devices_;
  std::int64_t depth_;
};

Choice LeastMemorySearch::stage(std::int32_t begin, std::int32_t end, std::int32_t first_device,
                                std::int32_t replicas) const {
  Choice choice{.missing = {INT64_MAX}, .begin = begin, .replicas = replicas, .recompute = false};
  const LayerRange layers{begin, end};
  Bytes bucket;
  if (replicas > 1) {
    for (const Bytes size : gradient_buckets(costs_.profile(), layers).sizes) {
      bucket = std::max(bucket, size);
    }
  }
  for (const bool recompute : {false, true}) {
    Bytes missing{INT64_MIN};
    for (std::int32_t i = 0; i < replicas; ++i) {
      const DeviceIndex here = device(first_device + i);
      const MemoryCost memory =
          costs_.memory_cost({.layers = layers,
                              .recompute = recompute,
                              .depth = depth_,
                              .depth_before = begin == 0 ? 0 : depth_,
                              .depth_behind = end == costs_.layer_count() ? 0 : depth_,
                              .largest_bucket = bucket},
                             replica_share(problem_.micro_batch_size, replicas, i).size(),
                             costs_.topology().device(here).kind);
      missing = std::max(missing, memory.peak() - costs_.topology().memory_limit(here));
    }
    if (missing < choice.missing) {
      choice.missing = missing;
      choice.recompute = recompute;
    }
  }
  return choice;
}

LeastMemory LeastMemorySearch::run() {
  const auto layers = static_cast<std::size_t>(costs_.layer_count());
  const auto devices = static_cast<std::size_t>(devices_);
  // best[end][used]: the first `end` layers on the first `used` devices, all of them.
  std::vector<std::vector<Choice>> best(layers + 1, std::vector<Choice>(devices + 1));
  best[0][0].missing = {INT64_MIN};
  for (std::size_t end = 1; end <= layers; ++end) {
    for (std::size_t used = 1; used <= devices; ++used) {
      const auto most =
          std::min<std::int64_t>(static_cast<std::int64_t>(used), problem_.micro_batch_size);
      for (std::int32_t replicas = 1; replicas <= most; ++replicas) {
        const std::size_t before = used - static_cast<std::size_t>(replicas);
        for (std::size_t begin = end; begin-- > 0;) {
          const Bytes so_far = best[begin][before].missing;
          if (so_far >= best[end][used].missing) continue;
          Choice choice = stage(static_cast<std::int32_t>(begin), static_cast<std::int32_t>(end),
                                static_cast<std::int32_t>(before), replicas);
          choice.missing = std::max(choice.missing, so_far);
          if (choice.missing < best[end][used].missing) best[end][used] = choice;
        }
      }
    }
  }
  std::size_t used = 1;
  for (std::size_t n = 2; n <= devices; ++n) {
    if (best[layers][n].missing < best[layers][used].missing) used = n;
  }
  LeastMemory result;
  result.missing = best[layers][used].missing;
  result.plan.micro_batch_size = problem_.micro_batch_size;
  for (std::size_t end = layers; end > 0;) {
    const Choice& choice = best[end][used];
    used -= static_cast<std::size_t>(choice.replicas);
    StagePlan stage;
    stage.layers = {choice.begin, static_cast<std::int32_t>(end)};
    stage.recompute = choice.recompute;
    for (std::int32_t i = 0; i < choice.replicas; ++i) {
      stage.devices.push_back(device(static_cast<std::int32_t>(used) + i));
    }
    result.plan.stages.insert(result.plan.stages.begin(), std::move(stage));
    end = static_cast<std::size_t>(choice.begin);
  }
  return result;
}

std::string shape_of(const Candidate& plan) {
  std::int64_t devices = 0;
  bool recompute = false;
  for (const StagePlan& stage : plan.stages) {
    devices += static_cast<std::int64_t>(stage.devices.size());
    recompute = recompute || stage.recompute;
  }
  return fmt::format("{} stage{} on {} device{}, micro-batches of {}{}", plan.stages.size(),
                     plan.stages.size() == 1 ? "" : "s", devices, devices == 1 ? "" : "s",
                     plan.micro_batch_size, recompute ? ", with recomputation" : "");
}

/// How many more devices like the last would make room, or nothing if none would.
std::optional<std::int32_t> enough_devices(const CostModel& costs, const SearchProblem& problem) {
  const std::int32_t there = costs.topology().device_count();
  const std::int32_t most =
      std::min<std::int32_t>(costs.layer_count(), std::max(2 * there, there + 64));
  if (most <= there || least_memory(costs, problem, most).missing.count > 0) return std::nullopt;
  std::int32_t too_few = there;
  std::int32_t enough = most;
  while (enough - too_few > 1) {
    const std::int32_t middle = too_few + (enough - too_few) / 2;
    (least_memory(costs, problem, middle).missing.count > 0 ? too_few : enough) = middle;
  }
  return enough;
}

std::string remedy_for(const CostModel& costs, const PlannerOptions& options,
                       const SearchProblem& closest, Bytes missing) {
  const std::int32_t devices = costs.topology().device_count();
  SearchProblem freed = closest;
  freed.micro_batch_size = 1;
  if (options.micro_batch_size && least_memory(costs, freed, devices).missing.count <= 0) {
    return "a smaller micro-batch: leave out --micro-batch, or ask for 1";
  }
  if (!options.micro_batch_size && closest.micro_batch_size > 1 &&
      least_memory(costs, freed, devices).missing.count <= 0) {
    return fmt::format(
        "a global batch with more divisors: {} is the smallest micro-batch of this "
        "one that leaves a number of micro-batches that can be searched",
        closest.micro_batch_size);
  }
  freed = closest;
  freed.gpipe = false;
  if (closest.gpipe && least_memory(costs, freed, devices).missing.count <= 0) {
    return "--schedule 1f1b: it holds fewer micro-batches at a time";
  }
  const std::string memory =
      fmt::format("{:.2f} GiB more memory per device",
                  static_cast<double>(missing.count) / (1024.0 * 1024 * 1024) + 0.005);
  if (const auto enough = enough_devices(costs, closest)) {
    return fmt::format("a deeper split over {} devices like the last (now {}), or {}", *enough,
                       devices, memory);
  }
  return memory + "; a deeper split would not help";
}

}  // namespace

LeastMemory least_memory(const CostModel& costs, const SearchProblem& problem,
                         std::int32_t devices) {
  return LeastMemorySearch(costs, problem, devices).run();
}

Infeasible explain_infeasible(const CostModel& costs, const PlannerOptions& options,
                              const std::vector<std::int64_t>& micro_batch_sizes) {
  const SearchProblem problem{.global_batch_size = options.global_batch_size,
                              .micro_batch_size = micro_batch_sizes.front(),
                              .ignore_memory = true,
                              .gpipe = options.family == ScheduleFamily::GPipe};
  const LeastMemory closest = least_memory(costs, problem, costs.topology().device_count());
  Plan plan{.global_batch_size = options.global_batch_size,
            .micro_batch_size = problem.micro_batch_size,
            .num_micro_batches = options.global_batch_size / problem.micro_batch_size,
            .family = problem.gpipe ? ScheduleFamily::GPipe : ScheduleFamily::OneFOneB,
            .warmup_depths = {},
            .stages = closest.plan.stages};
  plan.warmup_depths.assign(plan.stages.size(), problem.gpipe ? plan.num_micro_batches : 1);
  fill_gradient_buckets(plan, costs.profile());
  const std::vector<MemoryShortage> shortages = memory_shortages(costs.plan_cost(plan));
  check(!shortages.empty(), "nothing was found to fit, but the least of plans does");
  const MemoryShortage& tightest = shortages.front();
  return {.device = costs.topology().device(tightest.device).name,
          .needed = tightest.needed,
          .limit = tightest.limit,
          .closest_plan = shape_of(closest.plan),
          .remedy = remedy_for(costs, options, problem, tightest.missing())};
}

}  // namespace dapple
