#include "dapple/planner/baselines.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>

#include "baseline_search.h"
#include "dapple/core/parallel.h"
#include "dapple/search/even_split.h"
#include "dapple/search/pipedream_search.h"
#include "dapple/search/placement.h"
#include "micro_batches.h"
#include "stop_question.h"

namespace dapple {
namespace {

using Devices = std::vector<DeviceIndex>;

/// Above this many states, PipeDream's search would take longer than all other baselines.
constexpr std::int32_t kMostPipedreamStates = 250;

/// Its search takes states^2 * units^2 / 4 steps on the outermost level.
std::int32_t most_pipedream_states(const Topology& topology) {
  constexpr double kMostSteps = 1e9;
  double units = 1;
  for (const PipedreamLevel& level : pipedream_levels(topology)) {
    units = std::max(units, static_cast<double>(level.units));
  }
  const double most = 2 * std::sqrt(kMostSteps) / units;
  return std::clamp(static_cast<std::int32_t>(most), 2, kMostPipedreamStates);
}

class BaselineCandidates {
 public:
  explicit BaselineCandidates(const PlanningProblem& problem)
      : profile_(problem.profile),
        topology_(problem.topology),
        costs_(problem.profile, problem.topology),
        layers_(static_cast<std::int32_t>(problem.profile.layers.size())),
        sizes_(micro_batch_sizes(problem.options).sizes),
        memory_limit_(problem.options.memory_limit) {}

  std::vector<Candidate> one_stage() const;
  std::vector<Candidate> even() const;
  std::vector<Candidate> straight() const;
  std::vector<Candidate> pipedream() const;

 private:
  std::vector<std::vector<Devices>> placements(std::int32_t stages, std::int32_t replicas) const;
  const LayerTable& table(std::int64_t micro_batch_size, const Devices& devices) const;
  void make_room() const;

  const ModelProfile& profile_;
  const Topology& topology_;
  CostModel costs_;
  std::int32_t layers_;
  std::vector<std::int64_t> sizes_;
  Bytes memory_limit_;
};

Candidate candidate_of(std::int64_t micro_batch_size, const std::vector<LayerRange>& ranges,
                       const std::vector<Devices>& placement) {
  Candidate candidate{.micro_batch_size = micro_batch_size, .stages = {}, .bound = {}};
  for (std::size_t s = 0; s < ranges.size(); ++s) {
    StagePlan& stage = candidate.stages.emplace_back();
    stage.layers = ranges[s];
    stage.devices = placement[s];
  }
  return candidate;
}

/// Devices of each stage under each of the three policies, equal ones once.
std::vector<std::vector<Devices>> BaselineCandidates::placements(std::int32_t stages,
                                                                 std::int32_t replicas) const {
  std::vector<std::vector<Devices>> found;
  for (const PlacementPolicy policy : kPlacementPolicies) {
    std::vector<std::int32_t> used(static_cast<std::size_t>(topology_.server_count()), 0);
    std::vector<Devices> placement(static_cast<std::size_t>(stages));
    // Policies place the last stage first.
    for (std::size_t s = placement.size(); s-- > 0;) {
      const auto taken = place(policy, used, replicas, topology_);
      check(taken.has_value(), "a baseline needs more devices than there are");
      placement[s] = take_devices(used, *taken, topology_);
    }
    if (std::find(found.begin(), found.end(), placement) == found.end()) {
      found.push_back(std::move(placement));
    }
  }
  return found;
}

/// Of the largest share of a micro-batch, on the kind of the first device.
const LayerTable& BaselineCandidates::table(std::int64_t micro_batch_size,
                                            const Devices& devices) const {
  const auto replicas = static_cast<std::int64_t>(devices.size());
  return costs_.table(replica_share(micro_batch_size, replicas, 0).size(),
                      topology_.device(devices.front()).kind);
}

/// Before a candidate, as the tables of many sizes of micro-batches may be large.
void BaselineCandidates::make_room() const {
  constexpr std::int64_t kPartOfTables = 16;
  if (costs_.kept_by_tables() > Bytes{memory_limit_.count / kPartOfTables}) costs_.forget_tables();
}

/// All devices, or as many as the largest micro-batch has samples.
std::vector<Candidate> BaselineCandidates::one_stage() const {
  const auto replicas =
      static_cast<std::int32_t>(std::min<std::int64_t>(topology_.device_count(), sizes_.back()));
  std::vector<Candidate> candidates;
  for (const std::vector<Devices>& placement : placements(1, replicas)) {
    for (const std::int64_t size : sizes_) {
      if (size >= replicas) candidates.push_back(candidate_of(size, {{0, layers_}}, placement));
    }
  }
  return candidates;
}

/// Two stages or more on equal numbers of devices, all of which are used.
std::vector<Candidate> BaselineCandidates::even() const {
  const std::int32_t devices = topology_.device_count();
  std::vector<Candidate> candidates;
  for (std::int32_t stages = 2; stages <= std::min(devices, layers_); ++stages) {
    const std::int32_t replicas = devices / stages;
    if (devices % stages != 0 || replicas > sizes_.back()) continue;
    for (const std::vector<Devices>& placement : placements(stages, replicas)) {
      for (const std::int64_t size : sizes_) {
        if (size < replicas) continue;
        make_room();
        const LayerTable& times = table(size, placement.front());
        candidates.push_back(candidate_of(size, even_split(times, layers_, stages), placement));
      }
    }
  }
  return candidates;
}

std::vector<Candidate> BaselineCandidates::straight() const {
  const std::int32_t stages = std::min(topology_.device_count(), layers_);
  std::vector<Candidate> candidates;
  if (stages < 2) return candidates;
  for (const std::vector<Devices>& placement : placements(stages, 1)) {
    for (const std::int64_t size : sizes_) {
      make_room();
      std::vector<const LayerTable*> times;
      for (const Devices& devices : placement) times.push_back(&table(size, devices));
      const auto time_of = [&](std::int32_t stage, LayerRange layers) {
        const LayerTable& own = *times[static_cast<std::size_t>(stage)];
        return own.forward(layers) + own.backward(layers);
      };
      candidates.push_back(candidate_of(size, balanced_split(layers_, stages, time_of), placement));
    }
  }
  return candidates;
}

/// PipeDream's partition, of the minibatch that was profiled, for every size of micro-batch.
std::vector<Candidate> BaselineCandidates::pipedream() const {
  const PipedreamOptions options{
      .samples = profiled_batch(profile_),
      .time_scale = time_scale(profile_, topology_.kind_of(DeviceIndex{0})).value_or(kOne),
      .max_states = most_pipedream_states(topology_)};
  const std::vector<PipedreamState> states = pipedream_states(profile_, options).states;
  const PipedreamPartition partition = partition_pipedream(states, pipedream_levels(topology_));
  const std::vector<LayerRange> ranges =
      nearest_ranges(partition, states, layer_compute_times(profile_, options)).ranges;
  Devices in_fill_order;
  for (std::int32_t s = 0; s < topology_.server_count(); ++s) {
    const Devices& devices = topology_.fill_order(ServerIndex{s});
    in_fill_order.insert(in_fill_order.end(), devices.begin(), devices.end());
  }
  std::vector<Devices> placement;
  std::size_t most_replicas = 0;
  for (const PipedreamStage& stage : partition.stages) {
    Devices& devices = placement.emplace_back();
    for (const std::int32_t position : stage.devices) {
      devices.push_back(in_fill_order[static_cast<std::size_t>(position)]);
    }
    std::sort(devices.begin(), devices.end());
    most_replicas = std::max(most_replicas, devices.size());
  }
  std::vector<Candidate> candidates;
  for (const std::int64_t size : sizes_) {
    if (size < static_cast<std::int64_t>(most_replicas)) continue;
    candidates.push_back(candidate_of(size, ranges, placement));
  }
  return candidates;
}

}  // namespace

std::vector<BaselinePlan> make_baselines(const ModelProfile& profile, const Topology& topology,
                                         const PlannerOptions& options, Progress* progress) {
  struct Kind {
    ScheduleFamily schedule;
    std::vector<Candidate> (BaselineCandidates::*candidates)() const;
  };
  static constexpr Kind kKinds[] = {
      {ScheduleFamily::OneFOneB, &BaselineCandidates::one_stage},
      {ScheduleFamily::GPipe, &BaselineCandidates::even},
      {ScheduleFamily::OneFOneB, &BaselineCandidates::even},
      {ScheduleFamily::OneFOneB, &BaselineCandidates::straight},
      {ScheduleFamily::OneFOneB, &BaselineCandidates::pipedream},
  };
  static_assert(std::size(kKinds) + 1 == std::size(kBaselineNames));
  const StopQuestion is_stopped(progress);
  const PlanningProblem problem{profile, topology, options, [&] { return is_stopped(); }};
  std::vector<std::optional<BaselinePlan>> found(std::size(kKinds));
  parallel_for(found.size(), options.threads, [&](std::size_t i) {
    if (is_stopped()) return;
    const BaselineCandidates candidates(problem);
    found[i] = best_of({.name = kBaselineNames[i],
                        .schedule = kKinds[i].schedule,
                        .candidates = (candidates.*kKinds[i].candidates)()},
                       problem);
  });
  std::vector<BaselinePlan> baselines;
  for (std::optional<BaselinePlan>& baseline : found) {
    if (baseline) baselines.push_back(std::move(*baseline));
  }
  return baselines;
}

}  // namespace dapple
