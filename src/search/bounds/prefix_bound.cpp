#include "search/bounds/prefix_bound.h"

#include <algorithm>
#include <set>

#include "dapple/cost/compatible.h"
#include "dapple/profile/collective.h"

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
double least_per_sample(const Layer& layer, std::int64_t micro_batch_size, TimeOf time_of) {
  std::set<std::int64_t> batches{1, micro_batch_size};
  for (const Measurement& point : layer.measurements) {
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
double proportional_per_sample(Duration time, const Layer& layer, Factor scale) {
  return static_cast<double>(time.ns - std::min(time, layer.fixed_overhead).ns) /
         static_cast<double>(layer.measurements.front().batch_size) *
         (static_cast<double>(scale.billionths) / 1e9);
}

/// Whether all devices take the same time for every layer.
bool has_one_scale(const ModelProfile& profile, const Topology& topology) {
  const auto scale = [&](std::int32_t device) {
    return time_scale(profile, topology.kind_of(DeviceIndex{device}));
  };
  for (std::int32_t i = 1; i < topology.device_count(); ++i) {
    if (scale(i) != scale(0)) return false;
  }
  return true;
}

Factor quickest_scale(const ModelProfile& profile, const Topology& topology) {
  Factor quickest = time_scale(profile, topology.kind_of(DeviceIndex{0})).value_or(kOne);
  for (std::int32_t i = 1; i < topology.device_count(); ++i) {
    quickest =
        std::min(quickest, time_scale(profile, topology.kind_of(DeviceIndex{i})).value_or(kOne));
  }
  return quickest;
}

/// Lower bounds on the time that a layer takes of one device per sample, in nanoseconds.
struct WorkPerSample {
  double forward = 0;
  double round_trip = 0;
};

WorkPerSample work_per_sample(const ModelProfile& profile, const Layer& layer,
                              std::int64_t micro_batch_size, Factor scale,
                              bool counts_collectives) {
  // A data-parallel rank of a group processes at least its part of the samples.
  const std::int64_t most = profile.group.samples_of_replica(micro_batch_size);
  const double of_rank = 1.0 / static_cast<double>(profile.group.replicas);
  double forward = 0;
  double backward = 0;
  if (layer.measurements.size() == 1 && profile.batch_scaling == BatchScaling::Proportional) {
    forward = proportional_per_sample(layer.measurements.front().forward, layer, scale);
    backward = proportional_per_sample(layer.measurements.front().backward, layer, scale);
  } else {
    forward = least_per_sample(layer, most, [&](std::int64_t batch) {
      return forward_time(layer, batch, profile.batch_scaling, scale);
    });
    backward = least_per_sample(layer, most, [&](std::int64_t batch) {
      return backward_time(layer, batch, profile.batch_scaling, scale);
    });
  }
  if (counts_collectives) {
    forward += least_collectives_per_sample(layer.forward_collectives, most, profile.group);
    backward += least_collectives_per_sample(layer.backward_collectives, most, profile.group);
    // Sharded state is gathered for each micro-batch, however few samples it has.
    const double micro_batch = static_cast<double>(most);
    forward = std::max(forward, static_cast<double>(layer.sharded.gather.ns) / micro_batch);
    backward =
        std::max(backward, static_cast<double>((layer.sharded.gather + layer.sharded.scatter).ns) /
                               micro_batch);
  }
  return {.forward = forward * of_rank, .round_trip = (forward + backward) * of_rank};
}

}  // namespace

PrefixBound::PrefixBound(const CostModel& costs, std::int64_t micro_batch_size,
                         std::int64_t global_batch_size)
    : micro_batch_(static_cast<double>(micro_batch_size)),
      global_batch_(static_cast<double>(global_batch_size)),
      forward_(1),
      round_trip_(1) {
  const ModelProfile& profile = costs.profile();
  const Factor scale = quickest_scale(profile, costs.topology());
  for (const DeviceKind& kind : costs.topology().description().devices) {
    speeds_.push_back(static_cast<double>(scale.billionths) /
                      static_cast<double>(time_scale(profile, kind).value_or(kOne).billionths));
  }
  for (std::int32_t d = 0; d < costs.topology().device_count(); ++d) {
    all_devices_ += speed(costs.topology().device({d}).kind);
  }
  // On slower devices collectives take as long as on the quickest, so that no factor between the
  // kinds holds for them; there only the computation counts.
  const bool counts_collectives = has_one_scale(profile, costs.topology());
  std::vector<WorkPerSample> works(profile.layers.size());
  for (FormIndex form; form.value < costs.form_count(); form = form.next()) {
    const ModelProfile& in_form = costs.in(form).profile();
    for (std::size_t l = 0; l < works.size(); ++l) {
      const WorkPerSample work =
          work_per_sample(in_form, in_form.layers[l], micro_batch_size, scale, counts_collectives);
      if (form == FormIndex{}) works[l] = work;
      works[l].forward = std::min(works[l].forward, work.forward);
      works[l].round_trip = std::min(works[l].round_trip, work.round_trip);
    }
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
