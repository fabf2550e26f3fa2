#include "least_memory.h"

#include <fmt/format.h>

#include <algorithm>

#include "gradient_handlings.h"

namespace dapple {
namespace {

struct Choice {
  Bytes missing{INT64_MAX};
  std::int32_t begin = 0;
  std::int32_t replicas = 0;
  bool recompute = false;
};

/// Best ways to split the first layers over the first devices: [end][used].
using Table = std::vector<std::vector<Choice>>;

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
  void add_stage(const Table& before, Table& behind) const;
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
    for (const Bytes size :
         gradient_buckets(costs_.profile(), layers, problem_.gradients.bucket_size).sizes) {
      bucket = std::max(bucket, size);
    }
  }
  for (const bool recompute : {false, true}) {
    if (!problem_.pins.allow(layers, replicas, recompute)) continue;
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

void LeastMemorySearch::add_stage(const Table& before, Table& behind) const {
  const auto layers = static_cast<std::size_t>(costs_.layer_count());
  const auto devices = static_cast<std::size_t>(devices_);
  for (std::size_t end = 1; end <= layers; ++end) {
    for (std::size_t used = 1; used <= devices; ++used) {
      const auto most =
          std::min<std::int64_t>(static_cast<std::int64_t>(used), problem_.micro_batch_size);
      Choice& best = behind[end][used];
      for (std::int32_t replicas = 1; replicas <= most; ++replicas) {
        const std::size_t first = used - static_cast<std::size_t>(replicas);
        for (std::size_t begin = end; begin-- > 0;) {
          const Bytes so_far = before[begin][first].missing;
          if (so_far >= best.missing) continue;
          Choice choice = stage(static_cast<std::int32_t>(begin), static_cast<std::int32_t>(end),
                                static_cast<std::int32_t>(first), replicas);
          choice.missing = std::max(choice.missing, so_far);
          if (choice.missing < best.missing) best = choice;
        }
      }
    }
  }
}

LeastMemory LeastMemorySearch::run() {
  const auto layers = static_cast<std::size_t>(costs_.layer_count());
  const auto devices = static_cast<std::size_t>(devices_);
  const Table nothing(layers + 1, std::vector<Choice>(devices + 1));
  // tables[s][end][used]: the first `end` layers on the first `used` devices, all of them, as s
  // stages; where their number is free there is one table for all numbers.
  std::vector<Table> tables{nothing};
  tables.front()[0][0].missing = {INT64_MIN};
  const std::int32_t stages = problem_.pins.stages.value_or(0);
  for (std::int32_t s = 0; s < stages; ++s) {
    tables.push_back(nothing);
    add_stage(tables[tables.size() - 2], tables.back());
  }
  // Stages are added in front of longer ones only, so a table may be read while it is filled.
  if (stages == 0) add_stage(tables.back(), tables.back());

  std::size_t used = 1;
  for (std::size_t n = 2; n <= devices; ++n) {
    if (tables.back()[layers][n].missing < tables.back()[layers][used].missing) used = n;
  }
  LeastMemory result;
  result.missing = tables.back()[layers][used].missing;
  result.plan.micro_batch_size = problem_.micro_batch_size;
  result.plan.gradients = problem_.gradients;
  if (result.missing.count == INT64_MAX) return result;
  for (std::size_t end = layers; end > 0;) {
    const Choice& choice = tables.back()[end][used];
    used -= static_cast<std::size_t>(choice.replicas);
    StagePlan stage;
    stage.layers = {choice.begin, static_cast<std::int32_t>(end)};
    stage.recompute = choice.recompute;
    for (std::int32_t i = 0; i < choice.replicas; ++i) {
      stage.devices.push_back(device(static_cast<std::int32_t>(used) + i));
    }
    result.plan.stages.insert(result.plan.stages.begin(), std::move(stage));
    end = static_cast<std::size_t>(choice.begin);
    if (stages > 0) tables.pop_back();
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

/// The request with other pins, at the micro-batch size and bucket size that need the least memory.
SearchProblem least_problem(const CostModel& costs, const PlannerOptions& options, const Pins& pins,
                            const std::vector<std::int64_t>& micro_batch_sizes) {
  const auto enough = std::lower_bound(micro_batch_sizes.begin(), micro_batch_sizes.end(),
                                       pins.replicas.value_or(1));
  return {
      .global_batch_size = options.global_batch_size,
      .micro_batch_size = enough == micro_batch_sizes.end() ? micro_batch_sizes.back() : *enough,
      .gradients = gradient_handlings(options, costs.profile()).front(),
      .ignore_memory = options.ignore_memory,
      .gpipe = options.family == ScheduleFamily::GPipe,
      .pins = pins};
}

/// The pins without one of them each, in the order of to_texts().
std::vector<Pins> each_left_out(const Pins& pins) {
  std::vector<Pins> fewer;
  const auto leave_out = [&](auto change) { change(fewer.emplace_back(pins)); };
  if (pins.stages) leave_out([](Pins& rest) { rest.stages.reset(); });
  if (pins.replicas) leave_out([](Pins& rest) { rest.replicas.reset(); });
  if (pins.recompute) leave_out([](Pins& rest) { rest.recompute.reset(); });
  if (pins.least_depths) leave_out([](Pins& rest) { rest.least_depths = false; });
  for (std::size_t i = 0; i < pins.cuts.size(); ++i) {
    leave_out([i](Pins& rest) { rest.cuts.erase(rest.cuts.begin() + static_cast<int>(i)); });
  }
  for (std::size_t i = 0; i < pins.joints.size(); ++i) {
    leave_out([i](Pins& rest) { rest.joints.erase(rest.joints.begin() + static_cast<int>(i)); });
  }
  return fewer;
}

/// Leaving out one pin, or all of them, if something fits then.
std::optional<std::string> remedy_among_pins(const CostModel& costs, const PlannerOptions& options,
                                             const std::vector<std::int64_t>& micro_batch_sizes) {
  const auto fits = [&](const Pins& pins) {
    const Bytes missing =
        least_memory(costs, least_problem(costs, options, pins, micro_batch_sizes),
                     costs.topology().device_count())
            .missing;
    return missing.count <= 0 || (options.ignore_memory && missing.count != INT64_MAX);
  };
  if (options.pins.empty()) return std::nullopt;
  const std::vector<std::string> texts = to_texts(options.pins, costs.profile());
  const std::vector<Pins> fewer = each_left_out(options.pins);
  for (std::size_t i = 0; i < fewer.size(); ++i) {
    if (fits(fewer[i])) return "leave out --pin " + texts[i];
  }
  if (texts.size() > 1 && fits({})) return "leave out all that is pinned";
  return std::nullopt;
}

/// Why no plan is as pinned.
std::string conflict_of(const CostModel& costs, const Pins& pins, std::int64_t micro_batch_size) {
  const std::int64_t replicas = pins.replicas.value_or(1);
  if (replicas > micro_batch_size) {
    return fmt::format("{} replicas need micro-batches of {} samples or more, the largest has {}",
                       replicas, replicas, micro_batch_size);
  }
  const std::int64_t stages = pins.stages.value_or(static_cast<std::int32_t>(pins.cuts.size()) + 1);
  const std::int64_t devices = costs.topology().device_count();
  if (stages * replicas > devices) {
    return fmt::format("{} stage{} of {} replica{} need {} devices, there are {}", stages,
                       stages == 1 ? "" : "s", replicas, replicas == 1 ? "" : "s",
                       stages * replicas, devices);
  }
  return fmt::format("no split of {} layers is as pinned", costs.layer_count());
}

}  // namespace

LeastMemory least_memory(const CostModel& costs, const SearchProblem& problem,
                         std::int32_t devices) {
  return LeastMemorySearch(costs, problem, devices).run();
}

LeastMemory least_memory(const CostModel& costs, const PlannerOptions& options,
                         const std::vector<std::int64_t>& micro_batch_sizes) {
  return least_memory(costs, least_problem(costs, options, options.pins, micro_batch_sizes),
                      costs.topology().device_count());
}

Infeasible explain_infeasible(const CostModel& costs, const PlannerOptions& options,
                              const std::vector<std::int64_t>& micro_batch_sizes) {
  const SearchProblem problem = least_problem(costs, options, options.pins, micro_batch_sizes);
  const LeastMemory closest = least_memory(costs, problem, costs.topology().device_count());
  Infeasible infeasible;
  infeasible.pins = to_texts(options.pins, costs.profile());
  const auto fewer_pins = remedy_among_pins(costs, options, micro_batch_sizes);
  if (closest.plan.stages.empty()) {
    infeasible.conflict = conflict_of(costs, options.pins, problem.micro_batch_size);
    infeasible.remedy = fewer_pins.value_or("none was found: nothing fits without pins either");
    return infeasible;
  }
  Plan plan{.global_batch_size = options.global_batch_size,
            .micro_batch_size = problem.micro_batch_size,
            .num_micro_batches = options.global_batch_size / problem.micro_batch_size,
            .gradients = problem.gradients,
            .family = problem.gpipe ? ScheduleFamily::GPipe : ScheduleFamily::OneFOneB,
            .warmup_depths = {},
            .stages = closest.plan.stages};
  plan.warmup_depths.assign(plan.stages.size(), problem.gpipe ? plan.num_micro_batches : 1);
  fill_gradient_buckets(plan, costs.profile());
  const std::vector<MemoryShortage> shortages = memory_shortages(costs.plan_cost(plan));
  check(!shortages.empty(), "nothing was found to fit, but the least of plans does");
  const MemoryShortage& tightest = shortages.front();
  infeasible.device = costs.topology().device(tightest.device).name;
  infeasible.needed = tightest.needed;
  infeasible.limit = tightest.limit;
  infeasible.closest_plan = shape_of(closest.plan);
  infeasible.remedy =
      fewer_pins ? *fewer_pins : remedy_for(costs, options, problem, tightest.missing());
  return infeasible;
}

}  // namespace dapple
