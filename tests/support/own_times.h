// Profiles that were measured on other kinds of devices, which are quicker for some layers and
// slower for others.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "dapple/profile/model_profile.h"
#include "dice.h"

namespace dapple::small {

/// Returns 30 to 300 % of every time, with gradients that still add up to the backward.
inline DeviceTimes random_times(Dice& dice, Duration fixed_overhead,
                                std::vector<Measurement> measurements) {
  for (Measurement& measurement : measurements) {
    const auto scaled = [&](Duration time) {
      const Wide changed = Wide{time.ns} * dice.roll(30, 300) / 100;
      return Duration{static_cast<std::int64_t>(std::min<Wide>(changed, kMaxCount))};
    };
    measurement.forward = scaled(measurement.forward);
    measurement.backward = scaled(measurement.backward);
    if (measurement.input_gradient) {
      measurement.input_gradient = Duration{measurement.backward.ns / 3};
      measurement.weight_gradient = measurement.backward - *measurement.input_gradient;
    }
    measurement.output = measurement.stash = measurement.workspace = {};
  }
  const Measurement& only = measurements.front();
  if (measurements.size() > 1) fixed_overhead = {};
  fixed_overhead = std::min(fixed_overhead, only.forward);
  if (only.backward.ns > 0) fixed_overhead = std::min(fixed_overhead, only.backward);
  return {.fixed_overhead = fixed_overhead, .measurements = std::move(measurements)};
}

/// Adds times on the kind to every layer and every variant.
inline void measure_on(Dice& dice, const std::string& kind, ModelProfile& profile) {
  profile.other_devices.push_back(kind);
  for (Layer& layer : profile.layers) {
    layer.other_times.push_back(random_times(dice, layer.fixed_overhead, layer.measurements));
    for (LayerVariant& variant : layer.variants) {
      variant.other_times.push_back(
          random_times(dice, variant.fixed_overhead, variant.measurements));
    }
  }
}

}  // namespace dapple::small
