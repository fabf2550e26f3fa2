#include "search/bounds/prefix_bound.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "dapple/cost/compatible.h"
#include "dapple/profile/collective.h"
#include "dapple/topology/servers_of_kind.h"

namespace dapple::search {
namespace {

/// A margin that keeps floating-point sums below the whole numbers that they bound.
constexpr double kSafety = 1.0 - 1e-9;

Duration round_down(double ns) {
  return {static_cast<std::int64_t>(ns * kSafety)};
}

/// The least time per sample of a layer, in nanoseconds. Times are linear between measured batch
/// sizes, so the minimum is at one of them, at one sample, or at the whole micro-batch.
template <class TimeOf>
double least_per_sample(const std::vector<Measurement>& measurements, std::int64_t micro_batch_size,
                        TimeOf time_of) {
  std::set<std::int64_t> batches{1, micro_batch_size};
  for (const Measurement& point : measurements) {
    batches.insert(std::min(point.batch_size, micro_batch_size));
  }
  double least = 1e300;
  for (const std::int64_t batch : batches) {
    // What rounding up added, less than a nanosecond, is not proportional to the samples.
    const double time = std::max(0.0, static_cast<double>(time_of(batch).ns) - 1.0);
    least = std::min(least, time / static_cast<double>(batch));
  }
  return least;
}

/// The time per sample of a layer with one proportional measurement, in nanoseconds. Without the
/// fixed overhead it is the same at every batch size.
double proportional_per_sample(Duration time, const Layer& layer, TimeSource source) {
  const Duration overhead = fixed_overhead_on(layer, source.measured);
  return static_cast<double>(time.ns - std::min(time, overhead).ns) /
         static_cast<double>(measurements_on(layer, source.measured).front().batch_size) *
         (static_cast<double>(source.scale.billionths) / 1e9);
}

/// Returns where the times of each kind of the topology's devices come from.
std::map<std::int32_t, TimeSource> sources_of_kinds(const CostModel& costs) {
  std::map<std::int32_t, TimeSource> sources;
  for (const std::int32_t kind : kinds_in_use(costs.topology())) {
    const DeviceKind& of_devices =
        costs.topology().description().devices[static_cast<std::size_t>(kind)];
    sources.emplace(kind, time_source(costs.profile(), of_devices).value_or(kOne));
  }
  return sources;
}

/// Lower bounds on the time that a layer takes of one device per sample, in nanoseconds.
struct WorkPerSample {
  double forward = 0;
  double round_trip = 0;
};

WorkPerSample work_per_sample(const ModelProfile& profile, const Layer& layer,
                              std::int64_t micro_batch_size, TimeSource source) {
  // A data-parallel rank of a group processes at least its part of the samples.
  const std::int64_t most = profile.group.samples_of_replica(micro_batch_size);
  const double of_rank = 1.0 / static_cast<double>(profile.group.replicas);
  double forward = 0;
  double backward = 0;
  const std::vector<Measurement>& measurements = measurements_on(layer, source.measured);
  if (measurements.size() == 1 && profile.batch_scaling == BatchScaling::Proportional) {
    forward = proportional_per_sample(measurements.front().forward, layer, source);
    backward = proportional_per_sample(measurements.front().backward, layer, source);
  } else {
    forward = least_per_sample(measurements, most, [&](std::int64_t batch) {
      return forward_time(layer, batch, profile.batch_scaling, source);
    });
    backward = least_per_sample(measurements, most, [&](std::int64_t batch) {
      return backward_time(layer, batch, profile.batch_scaling, source);
    });
  }
  const GroupShape& group = group_on(profile, source.measured);
  CoreOfSamples core{[&](std::int64_t samples) {
                       return core_times(layer, samples, profile.batch_scaling, source);
                     },
                     {}};
  for (const Measurement& point : measurements) core.turning_points.push_back(point.batch_size);
  forward += least_collectives_per_sample(layer.forward_collectives, most, group, core);
  backward += least_collectives_per_sample(layer.backward_collectives, most, group, core);
  // Sharded state is gathered for each micro-batch, however few samples it has.
  const double micro_batch = static_cast<double>(most);
  const ShardedLayer& sharded = sharded_on(layer, source.measured);
  forward = std::max(forward, static_cast<double>(sharded.gather.ns) / micro_batch);
  backward =
      std::max(backward, static_cast<double>((sharded.gather + sharded.scatter).ns) / micro_batch);
  return {.forward = forward * of_rank, .round_trip = (forward + backward) * of_rank};
}

/// Returns the least of both, layer by layer.
std::vector<WorkPerSample> least_of(std::vector<WorkPerSample> works,
                                    const std::vector<WorkPerSample>& others) {
  for (std::size_t l = 0; l < works.size(); ++l) {
    works[l].forward = std::min(works[l].forward, others[l].forward);
    works[l].round_trip = std::min(works[l].round_trip, others[l].round_trip);
  }
  return works;
}

/// Returns the work of every layer on devices of one kind, the least over the forms and, where only
/// the first layers of a stage recompute, over doing so and not.
std::vector<WorkPerSample> works_on(const CostModel& costs, std::int64_t micro_batch_size,
                                    TimeSource source) {
  std::vector<WorkPerSample> least;
  const auto add = [&](const ModelProfile& profile, std::int32_t devices) {
    std::vector<WorkPerSample> works;
    for (const Layer& layer : profile.layers) {
      const WorkPerSample of_replica = work_per_sample(profile, layer, micro_batch_size, source);
      // All devices of a replica are busy for so long.
      works.push_back(
          {.forward = devices * of_replica.forward, .round_trip = devices * of_replica.round_trip});
    }
    least = least.empty() ? std::move(works) : least_of(std::move(least), works);
  };
  std::set<std::pair<Parallelism, std::int32_t>> added;
  for (FormIndex form; form.value < costs.form_count(); form = form.next()) {
    const ModelProfile& in_form = costs.in(form).profile();
    const std::int32_t devices = costs.in(form).devices_per_replica();
    const Parallelism alike = representative_of_some_layers(in_form.parallelism);
    if (!added.emplace(alike, devices).second) continue;
    add(in_form, devices);
    for (const ModelProfile& recomputing : in_form.recomputing) add(recomputing, devices);
  }
  return least;
}

/// Whether in some form devices are in groups, which may have collectives.
bool has_groups(const CostModel& costs) {
  for (FormIndex form; form.value < costs.form_count(); form = form.next()) {
    if (costs.in(form).profile().group != GroupShape{}) return true;
  }
  return false;
}

/// Returns the largest quotient of the work of a layer by its own one, forward or in all, where its
/// own is the larger; so no layer takes less than `works` divided by it.
double largest_quotient(const std::vector<WorkPerSample>& works,
                        const std::vector<WorkPerSample>& own) {
  double largest = 0;
  for (std::size_t l = 0; l < works.size(); ++l) {
    if (works[l].forward > 0) largest = std::max(largest, works[l].forward / own[l].forward);
    if (works[l].round_trip > 0) {
      largest = std::max(largest, works[l].round_trip / own[l].round_trip);
    }
  }
  return largest > 0 ? largest : 1;
}

}  // namespace

PrefixBound::PrefixBound(const CostModel& costs, std::int64_t micro_batch_size,
                         std::int64_t global_batch_size)
    : micro_batch_(static_cast<double>(micro_batch_size)),
      global_batch_(static_cast<double>(global_batch_size)),
      forward_(1),
      round_trip_(1) {
  std::vector<WorkPerSample> works;
  const std::vector<TimeSource> sources = least_time_sources(costs.profile(), costs.topology());
  const std::map<std::int32_t, TimeSource> kinds = sources_of_kinds(costs);
  speeds_.assign(costs.topology().description().devices.size(), 1);
  const TimeSource& quickest = sources.front();
  const bool are_alike = std::all_of(kinds.begin(), kinds.end(),
                                     [&](const auto& kind) { return kind.second == quickest; });
  // On slower devices collectives take as long as on the quickest, so that no factor between the
  // kinds holds for them.
  if (are_alike || (sources.size() == 1 && !has_groups(costs))) {
    works = works_on(costs, micro_batch_size, quickest);
    for (const auto& [kind, source] : kinds) {
      speeds_[static_cast<std::size_t>(kind)] = static_cast<double>(quickest.scale.billionths) /
                                                static_cast<double>(source.scale.billionths);
    }
  } else {
    std::map<std::int32_t, std::vector<WorkPerSample>> of_kinds;
    for (const auto& [kind, source] : kinds) {
      of_kinds[kind] = works_on(costs, micro_batch_size, source);
      works = works.empty() ? of_kinds[kind] : least_of(works, of_kinds[kind]);
    }
    for (const auto& [kind, own] : of_kinds) {
      speeds_[static_cast<std::size_t>(kind)] = largest_quotient(works, own);
    }
  }
  for (std::int32_t d = 0; d < costs.topology().device_count(); ++d) {
    all_devices_ += speed(costs.topology().device({d}).kind);
  }
  for (const WorkPerSample& work : works) {
    forward_.push_back(forward_.back() + work.forward);
    round_trip_.push_back(round_trip_.back() + work.round_trip);
  }
}

PrefixBound::Rest PrefixBound::rest(CutIndex cut, double capacity) const {
  if (cut == CutIndex{}) return {};
  const double share = 1.0 / capacity;
  return {.forward = round_down(forward_[cut] * micro_batch_ * share),
          .round_trip = round_down(round_trip_[cut] * micro_batch_ * share),
          .busiest = round_down(round_trip_[cut] * global_batch_ * share)};
}

/// Computes (P1).
Duration PrefixBound::busiest(LayerRange layers, double capacity) const {
  const double work = round_trip_[CutIndex{layers.end}] - round_trip_[CutIndex{layers.begin}];
  return round_down(work * global_batch_ / capacity);
}

Duration PrefixBound::forward(LayerRange layers, std::int64_t samples) const {
  const double of_sample = forward_[CutIndex{layers.end}] - forward_[CutIndex{layers.begin}];
  return round_down(of_sample * static_cast<double>(samples));
}

Duration PrefixBound::round_trip(LayerRange layers, std::int64_t samples) const {
  const double of_sample = round_trip_[CutIndex{layers.end}] - round_trip_[CutIndex{layers.begin}];
  return round_down(of_sample * static_cast<double>(samples));
}

Duration PrefixBound::work_alone() const {
  return busiest(layers_between({}, round_trip_.end_index().previous()), all_devices_);
}

/// Solves (P1) for the first layer.
CutIndex PrefixBound::first_begin_within(CutIndex end, double capacity, Duration incumbent) const {
  const double most = static_cast<double>(incumbent.ns) * capacity / (global_batch_ * kSafety);
  const double least_prefix = round_trip_[end] - most;
  const auto first =
      std::lower_bound(round_trip_.begin(), round_trip_.begin() + end.value, least_prefix);
  return std::min(end.previous(), CutIndex{static_cast<std::int32_t>(first - round_trip_.begin())});
}

/// Solves (P1) of all other layers for the first layer of the stage (D5).
CutIndex PrefixBound::last_begin_within(CutIndex end, double capacity, Duration incumbent) const {
  if (capacity <= 0) return {};
  const double most = static_cast<double>(incumbent.ns) * capacity / (global_batch_ * kSafety);
  const double all = *(round_trip_.end() - 1);
  // Up to here the stage has all that the others have no time for, and a margin for rounding.
  const double most_prefix = round_trip_[end] - (all - most) + all * (1 - kSafety);
  const auto behind =
      std::upper_bound(round_trip_.begin(), round_trip_.begin() + end.value, most_prefix);
  const auto count = static_cast<std::int32_t>(behind - round_trip_.begin());
  return {std::max(0, count - 1)};
}

}  // namespace dapple::search
