#include "dapple/planner/baselines/baselines.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <optional>

#include "dapple/core/parallel.h"
#include "dapple/cost/compatible.h"
#include "dapple/planner/request/planner_options.h"
#include "dapple/search/dapple_search/even_split.h"
#include "dapple/search/pipedream_search/pipedream_search.h"
#include "dapple/search/placement/placement.h"
#include "planner/baselines/baseline_search.h"
#include "planner/request/micro_batches.h"
#include "planner/request/stop_question.h"

namespace dapple::planner {
namespace {

using Devices = std::vector<DeviceIndex>;

/// With more states than this, PipeDream's search would take longer than all other baselines.
constexpr std::int32_t kMostPipedreamStates = 250;

/// Limits the states of PipeDream's search, which takes states^2 * units^2 / 4 steps on its largest
/// level.
std::int32_t most_pipedream_states(const Topology& topology) {
  constexpr double kMostSteps = 1e9;
  double units = 1;
  for (const search::PipedreamLevel& level : search::pipedream_levels(topology)) {
    units = std::max(units, static_cast<double>(level.units));
  }
  const double most = 2 * std::sqrt(kMostSteps) / units;
  return std::clamp(static_cast<std::int32_t>(most), 2, kMostPipedreamStates);
}

/// Placements of stages and the micro-batch sizes to try with each; the layers of the stages follow
/// from both.
struct Shapes {
  struct Shape {
    std::size_t placement = 0;
    std::int64_t micro_batch_size = 1;
  };
  // The devices of each stage, for each placement.
  std::vector<std::vector<Devices>> placements;
  std::vector<Shape> shapes;
  std::function<std::vector<LayerRange>(std::int64_t micro_batch_size,
                                        const std::vector<Devices>& placement)>
      split;

  /// Adds a placement, with every micro-batch size that gives each replica a sample.
  /// `most_replicas` is the largest number of replicas of any stage.
  void add(std::vector<Devices> placement, std::int64_t most_replicas,
           const std::vector<std::int64_t>& sizes) {
    for (const std::int64_t size : sizes) {
      if (size >= most_replicas) shapes.push_back({placements.size(), size});
    }
    placements.push_back(std::move(placement));
  }

  search::Candidate candidate(std::size_t number) const {
    const std::vector<Devices>& placement = placements[shapes[number].placement];
    search::Candidate candidate{
        .micro_batch_size = shapes[number].micro_batch_size, .stages = {}, .bound = {}};
    const std::vector<LayerRange> ranges = split(candidate.micro_batch_size, placement);
    for (std::size_t s = 0; s < ranges.size(); ++s) {
      StagePlan& stage = candidate.stages.emplace_back();
      stage.layers = ranges[s];
      stage.devices = placement[s];
    }
    return candidate;
  }
};

/// Makes the shapes of each baseline, which must not outlive this object.
class BaselineShapes {
 public:
  BaselineShapes(const PlanningContext& context, const std::function<bool()>& should_stop)
      : context_(context),
        should_stop_(should_stop),
        costs_(context.profile, context.topology),
        layers_(static_cast<std::int32_t>(context.profile.layers.size())),
        sizes_(micro_batch_sizes(context.options).sizes) {}

  Shapes one_stage() const;
  Shapes even() const;
  Shapes straight() const;
  Shapes pipedream() const;

 private:
  std::vector<std::vector<Devices>> placements(std::int32_t stages, std::int32_t replicas) const;
  const LayerTable& table(std::int64_t micro_batch_size, const Devices& devices) const;

  const PlanningContext context_;
  const std::function<bool()>& should_stop_;
  CostModel costs_;
  std::int32_t layers_;
  std::vector<std::int64_t> sizes_;
};

/// Returns the distinct placements of `stages` stages with `replicas` replicas each under the three
/// policies.
std::vector<std::vector<Devices>> BaselineShapes::placements(std::int32_t stages,
                                                             std::int32_t replicas) const {
  std::vector<std::vector<Devices>> found;
  for (const search::PlacementPolicy policy : search::kPlacementPolicies) {
    std::vector<std::int32_t> used(static_cast<std::size_t>(context_.topology.server_count()), 0);
    std::vector<Devices> placement(static_cast<std::size_t>(stages));
    // Policies place the last stage first.
    for (std::size_t s = placement.size(); s-- > 0;) {
      const auto taken = search::place(policy, used, replicas, context_.topology);
      check(taken.has_value(), "a baseline needs more devices than there are");
      placement[s] = search::take_devices(used, *taken, context_.topology);
    }
    if (std::find(found.begin(), found.end(), placement) == found.end()) {
      found.push_back(std::move(placement));
    }
  }
  return found;
}

/// Returns the layer times for the largest share of a micro-batch on the kind of the first device.
const LayerTable& BaselineShapes::table(std::int64_t micro_batch_size,
                                        const Devices& devices) const {
  const auto replicas = static_cast<std::int64_t>(devices.size());
  return costs_.table(replica_share(micro_batch_size, replicas, 0).size(),
                      context_.topology.device(devices.front()).kind);
}

/// One stage on all devices, or on as many as the largest micro-batch has samples.
Shapes BaselineShapes::one_stage() const {
  const auto replicas = static_cast<std::int32_t>(
      std::min<std::int64_t>(context_.topology.device_count(), sizes_.back()));
  Shapes shapes;
  for (std::vector<Devices>& placement : placements(1, replicas)) {
    shapes.add(std::move(placement), replicas, sizes_);
  }
  shapes.split = [this](std::int64_t, const std::vector<Devices>&) {
    return std::vector<LayerRange>{{0, layers_}};
  };
  return shapes;
}

/// Two or more stages on equal numbers of devices, so that all devices are used.
Shapes BaselineShapes::even() const {
  const std::int32_t devices = context_.topology.device_count();
  Shapes shapes;
  for (std::int32_t stages = 2; stages <= std::min(devices, layers_); ++stages) {
    const std::int32_t replicas = devices / stages;
    if (devices % stages != 0 || replicas > sizes_.back()) continue;
    for (std::vector<Devices>& placement : placements(stages, replicas)) {
      shapes.add(std::move(placement), replicas, sizes_);
    }
  }
  shapes.split = [this](std::int64_t size, const std::vector<Devices>& placement) {
    make_room(costs_, context_.options);
    return search::even_split(table(size, placement.front()), layers_,
                              static_cast<std::int32_t>(placement.size()));
  };
  return shapes;
}

Shapes BaselineShapes::straight() const {
  const std::int32_t stages = std::min(context_.topology.device_count(), layers_);
  Shapes shapes;
  if (stages < 2) return shapes;
  for (std::vector<Devices>& placement : placements(stages, 1)) {
    shapes.add(std::move(placement), 1, sizes_);
  }
  shapes.split = [this](std::int64_t size, const std::vector<Devices>& placement) {
    make_room(costs_, context_.options);
    std::vector<const LayerTable*> times;
    for (const Devices& devices : placement) times.push_back(&table(size, devices));
    const auto time_of = [&](std::int32_t stage, LayerRange layers) {
      const LayerTable& own = *times[static_cast<std::size_t>(stage)];
      return own.least_forward(layers) + own.least_backward(layers);
    };
    return search::balanced_split(layers_, static_cast<std::int32_t>(placement.size()), time_of);
  };
  return shapes;
}

/// PipeDream's partition for the profiled minibatch, with every micro-batch size.
Shapes BaselineShapes::pipedream() const {
  const search::PipedreamOptions options{
      .samples = search::profiled_batch(context_.profile),
      .times =
          time_source(context_.profile, context_.topology.kind_of(DeviceIndex{0})).value_or(kOne),
      .max_states = most_pipedream_states(context_.topology)};
  const std::vector<search::PipedreamState> states =
      search::pipedream_states(context_.profile, options).states;
  const search::PipedreamPartition partition = search::partition_pipedream(
      states, search::pipedream_levels(context_.topology), should_stop_);
  if (partition.stages.empty()) return {};
  const std::vector<LayerRange> ranges =
      search::nearest_ranges(partition, states,
                             search::layer_compute_times(context_.profile, options))
          .ranges;
  Devices in_fill_order;
  for (std::int32_t s = 0; s < context_.topology.server_count(); ++s) {
    const Devices& devices = context_.topology.fill_order(ServerIndex{s});
    in_fill_order.insert(in_fill_order.end(), devices.begin(), devices.end());
  }
  std::vector<Devices> placement;
  std::size_t most_replicas = 0;
  for (const search::PipedreamStage& stage : partition.stages) {
    Devices& devices = placement.emplace_back();
    for (const std::int32_t position : stage.devices) {
      devices.push_back(in_fill_order[static_cast<std::size_t>(position)]);
    }
    std::sort(devices.begin(), devices.end());
    most_replicas = std::max(most_replicas, devices.size());
  }
  Shapes shapes;
  shapes.add(std::move(placement), static_cast<std::int64_t>(most_replicas), sizes_);
  shapes.split = [ranges](std::int64_t, const std::vector<Devices>&) { return ranges; };
  return shapes;
}

}  // namespace

std::vector<BaselinePlan> make_baselines(const PlanningContext& context) {
  struct Kind {
    ScheduleFamily schedule;
    Shapes (BaselineShapes::*shapes)() const;
  };
  static constexpr Kind kKinds[] = {
      {ScheduleFamily::OneFOneB, &BaselineShapes::one_stage},
      {ScheduleFamily::GPipe, &BaselineShapes::even},
      {ScheduleFamily::OneFOneB, &BaselineShapes::even},
      {ScheduleFamily::OneFOneB, &BaselineShapes::straight},
      {ScheduleFamily::OneFOneB, &BaselineShapes::pipedream},
  };
  static_assert(std::size(kKinds) + 1 == std::size(kBaselineNames));
  const StopQuestion is_stopped(context.progress);
  const std::function<bool()> should_stop = [&] { return is_stopped(); };
  std::vector<std::optional<BaselinePlan>> found(std::size(kKinds));
  parallel_for(found.size(), context.options.threads, [&](std::size_t i) {
    if (is_stopped()) return;
    const BaselineShapes all(context, should_stop);
    const Shapes shapes = (all.*kKinds[i].shapes)();
    BaselineFamily family;
    family.name = kBaselineNames[i];
    family.schedule = kKinds[i].schedule;
    family.count = shapes.shapes.size();
    family.candidate = [&](std::size_t number) { return shapes.candidate(number); };
    found[i] = best_of(family, context, should_stop);
  });
  std::vector<BaselinePlan> baselines;
  for (std::optional<BaselinePlan>& baseline : found) {
    if (baseline) baselines.push_back(std::move(*baseline));
  }
  return baselines;
}

std::vector<search::Candidate> even_candidates(const PlanningContext& context) {
  const std::function<bool()> never;
  const BaselineShapes all(context, never);
  const Shapes shapes = all.even();
  std::vector<search::Candidate> candidates;
  candidates.reserve(shapes.shapes.size());
  for (std::size_t i = 0; i < shapes.shapes.size(); ++i) candidates.push_back(shapes.candidate(i));
  return candidates;
}

std::optional<BaselinePlan> best_even_plan(const PlanningContext& context, Duration to_beat) {
  const StopQuestion is_stopped(context.progress);
  const std::function<bool()> should_stop = [&] { return is_stopped(); };
  const BaselineShapes all(context, should_stop);
  std::optional<BaselinePlan> best;
  for (const auto make_shapes : {&BaselineShapes::one_stage, &BaselineShapes::even}) {
    const Shapes shapes = (all.*make_shapes)();
    BaselineFamily family;
    family.name = kBestUniformName;
    family.to_beat = best ? best->figures.iteration : to_beat;
    family.count = shapes.shapes.size();
    family.candidate = [&](std::size_t number) { return shapes.candidate(number); };
    auto found = best_of(family, context, should_stop);
    if (found && found->figures.feasible && found->figures.iteration < family.to_beat) {
      best = std::move(found);
    }
  }
  return best;
}

}  // namespace dapple::planner
