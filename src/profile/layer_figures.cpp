#include <algorithm>
#include <limits>

#include "dapple/core/error.h"
#include "dapple/profile/model_profile.h"

namespace dapple {
namespace {

/// An exact duration of numerator / denominator nanoseconds.
struct ExactTime {
  Wide numerator = 0;
  Wide denominator = 1;
};

/// Returns `time` times `scale`, rounded up once. The product of three figures may exceed 127 bits,
/// so the whole nanoseconds are split off before the scale is applied.
Duration round_up_scaled(ExactTime time, Factor scale) {
  const Wide whole = time.numerator / time.denominator;
  const Wide rest = time.numerator % time.denominator;
  check(whole <= std::numeric_limits<std::int64_t>::max(), "a layer's time leaves 63 bits");
  const Wide scaled = whole * scale.billionths;
  const Wide below_one = (scaled % kOne.billionths) * time.denominator + rest * scale.billionths;
  const Wide total =
      scaled / kOne.billionths + divide_up(below_one, time.denominator * kOne.billionths);
  check(total <= std::numeric_limits<std::int64_t>::max(), "a layer's scaled time leaves 63 bits");
  return {static_cast<std::int64_t>(total)};
}

/// The batch size for which a time is wanted, and how measured times become those of a device.
struct BatchPoint {
  std::int64_t samples = 1;
  std::optional<BatchScaling> scaling;
  Factor time_scale = kOne;
};

/// Returns h + (t0 - h) * b / b0, where b is at least b0 under BatchScaling::Floor. The overhead h
/// is limited to the measured time, so that a layer without a backward has no overhead there
/// either.
ExactTime scale_one_point(Duration measured, std::int64_t measured_batch, Duration fixed_overhead,
                          BatchPoint point) {
  const std::int64_t batch = point.scaling == BatchScaling::Floor
                                 ? std::max(point.samples, measured_batch)
                                 : point.samples;
  const Duration overhead = std::min(fixed_overhead, measured);
  return {Wide{overhead.ns} * measured_batch + Wide{(measured - overhead).ns} * batch,
          measured_batch};
}

/// Returns the time at b >= b1 on the line through (b1, t1) and (b2, t2). Beyond b2 a falling line
/// is replaced by the constant t2.
ExactTime on_line(const Measurement& first, const Measurement& second,
                  Duration Measurement::*figure, std::int64_t samples) {
  const Wide rise = Wide{(second.*figure).ns} - (first.*figure).ns;
  if (samples > second.batch_size && rise < 0) return {(second.*figure).ns, 1};
  const Wide run = second.batch_size - first.batch_size;
  return {(first.*figure).ns * run + rise * (samples - first.batch_size), run};
}

ExactTime between_points(const std::vector<Measurement>& points, Duration Measurement::*figure,
                         std::int64_t samples) {
  if (samples <= points.front().batch_size) return {(points.front().*figure).ns, 1};
  std::size_t second = 1;
  while (second + 1 < points.size() && points[second].batch_size < samples) ++second;
  return on_line(points[second - 1], points[second], figure, samples);
}

Duration measured_time(const std::vector<Measurement>& measurements, Duration fixed_overhead,
                       Duration Measurement::*figure, BatchPoint point) {
  check(point.samples >= 1, "a layer's time was asked for no samples");
  check(!measurements.empty(), "a layer without measurements was costed");
  if (measurements.size() > 1) {
    return round_up_scaled(between_points(measurements, figure, point.samples), point.time_scale);
  }
  check(point.scaling.has_value(), "a single measurement needs a batch scaling");
  const Measurement& only = measurements.front();
  return round_up_scaled(scale_one_point(only.*figure, only.batch_size, fixed_overhead, point),
                         point.time_scale);
}

Duration layer_time(const Layer& layer, Duration Measurement::*figure, BatchPoint point,
                    std::size_t measured) {
  return measured_time(measurements_on(layer, measured), fixed_overhead_on(layer, measured), figure,
                       point);
}

Bytes proportional(const Layer& layer, Bytes Measurement::*figure, std::int64_t samples) {
  check(!layer.measurements.empty(), "a layer without measurements was costed");
  const Measurement& largest = layer.measurements.back();
  return {divide_up(Wide{(largest.*figure).count} * samples, largest.batch_size)};
}

}  // namespace

const std::vector<Measurement>& measurements_on(const Layer& layer, std::size_t measured) {
  return measured == 0 ? layer.measurements : layer.other_times[measured - 1].measurements;
}

Duration fixed_overhead_on(const Layer& layer, std::size_t measured) {
  return measured == 0 ? layer.fixed_overhead : layer.other_times[measured - 1].fixed_overhead;
}

const GroupShape& group_on(const ModelProfile& profile, std::size_t measured) {
  const bool is_other = measured > 0 && !profile.other_groups.empty();
  return is_other ? profile.other_groups[measured - 1] : profile.group;
}

const ShardedLayer& sharded_on(const Layer& layer, std::size_t measured) {
  const bool is_other = measured > 0 && !layer.other_sharded.empty();
  return is_other ? layer.other_sharded[measured - 1] : layer.sharded;
}

Duration forward_time(const Layer& layer, std::int64_t samples, std::optional<BatchScaling> scaling,
                      TimeSource source) {
  return layer_time(layer, &Measurement::forward, {samples, scaling, source.scale},
                    source.measured);
}

Duration backward_time(const Layer& layer, std::int64_t samples,
                       std::optional<BatchScaling> scaling, TimeSource source) {
  return layer_time(layer, &Measurement::backward, {samples, scaling, source.scale},
                    source.measured);
}

CoreTimes core_times(const Layer& layer, std::int64_t samples, std::optional<BatchScaling> scaling,
                     TimeSource source) {
  const std::vector<Measurement>& measurements = measurements_on(layer, source.measured);
  const auto time = [&](Duration CoreTimes::*pass) {
    std::vector<Measurement> core = measurements;
    for (Measurement& point : core) point.forward = point.core.*pass;
    return measured_time(core, {}, &Measurement::forward, {samples, scaling, source.scale});
  };
  const bool has_core =
      std::any_of(measurements.begin(), measurements.end(),
                  [](const Measurement& point) { return point.core != CoreTimes{}; });
  return has_core ? CoreTimes{time(&CoreTimes::forward), time(&CoreTimes::backward)} : CoreTimes{};
}

Duration input_gradient_time(const ModelProfile& profile, LayerIndex index, std::int64_t samples,
                             TimeSource source) {
  const Layer& layer = profile.layers[index.position()];
  const std::optional<BatchScaling> scaling = profile.batch_scaling;
  const Duration whole = backward_time(layer, samples, scaling, source);
  if (layer.parameters.count == 0 && !tied_to(profile, index)) return whole;
  std::vector<Measurement> parts = measurements_on(layer, source.measured);
  for (Measurement& part : parts) {
    if (!part.input_gradient) return {divide_up(whole.ns, 2)};
    part.backward = *part.input_gradient;
  }
  return std::min(whole, measured_time(parts, fixed_overhead_on(layer, source.measured),
                                       &Measurement::backward, {samples, scaling, source.scale}));
}

namespace {

bool rise_with_samples(const std::vector<Measurement>& measurements) {
  for (std::size_t i = 1; i < measurements.size(); ++i) {
    const Measurement& fewer = measurements[i - 1];
    const Measurement& more = measurements[i];
    if (more.forward < fewer.forward || more.backward < fewer.backward) return false;
    if (more.input_gradient.value_or(Duration::infinite()) <
        fewer.input_gradient.value_or(Duration{})) {
      return false;
    }
  }
  return true;
}

/// Whether no measured collective of a group takes less time than one of fewer bytes.
bool rise_with_bytes(const GroupShape& group) {
  return std::all_of(group.rings.begin(), group.rings.end(), [](const GroupRing& ring) {
    return std::is_sorted(
        ring.measured.begin(), ring.measured.end(),
        [](const MeasuredReduction& a, const MeasuredReduction& b) { return a.time < b.time; });
  });
}

/// Whether computation hides collectives of the layer, more of them the more samples there are.
bool hides_collectives(const Layer& layer) {
  const auto is_hidden = [](const Collective& some) { return some.beside != Beside::Nothing; };
  return std::ranges::any_of(layer.forward_collectives, is_hidden) ||
         std::ranges::any_of(layer.backward_collectives, is_hidden);
}

}  // namespace

bool do_times_rise(const ModelProfile& profile) {
  const bool rise =
      std::all_of(profile.layers.begin(), profile.layers.end(), [](const Layer& layer) {
        return rise_with_samples(layer.measurements) && !hides_collectives(layer) &&
               std::all_of(layer.other_times.begin(), layer.other_times.end(),
                           [](const DeviceTimes& others) {
                             return rise_with_samples(others.measurements);
                           });
      });
  return rise && rise_with_bytes(profile.group) &&
         std::all_of(profile.other_groups.begin(), profile.other_groups.end(), rise_with_bytes) &&
         std::all_of(profile.recomputing.begin(), profile.recomputing.end(), do_times_rise);
}

Bytes output_size(const Layer& layer, std::int64_t samples) {
  return proportional(layer, &Measurement::output, samples);
}

Bytes stash_size(const Layer& layer, std::int64_t samples) {
  return proportional(layer, &Measurement::stash, samples);
}

Bytes workspace_size(const Layer& layer, std::int64_t samples) {
  return proportional(layer, &Measurement::workspace, samples);
}

}  // namespace dapple
