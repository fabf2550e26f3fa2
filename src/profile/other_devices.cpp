#include "dapple/profile/other_devices.h"

#include <algorithm>

#include "dapple/core/error.h"

namespace dapple {
namespace {

/// Inserts the times of a layer or a variant at `place` among those of other kinds.
template <class Measured>
void add_times(Measured& measured, const Measured& other, std::ptrdiff_t place) {
  DeviceTimes times{.fixed_overhead = other.fixed_overhead, .measurements = other.measurements};
  for (Measurement& measurement : times.measurements) {
    measurement.output = measurement.stash = measurement.workspace = {};
  }
  measured.other_times.insert(measured.other_times.begin() + place, std::move(times));
}

}  // namespace

void add_other_device(ModelProfile& profile, const ModelProfile& other) {
  std::vector<std::string>& devices = profile.other_devices;
  const auto at = std::lower_bound(devices.begin(), devices.end(), other.device);
  const bool is_known =
      other.device == profile.device || (at != devices.end() && *at == other.device);
  check(!is_known, "a kind of device was added to a profile that has it");
  check(profile.layers.size() == other.layers.size(), "profiles of other models were joined");
  const std::ptrdiff_t place = at - devices.begin();
  devices.insert(at, other.device);
  for (std::size_t l = 0; l < profile.layers.size(); ++l) {
    Layer& layer = profile.layers[l];
    const Layer& same = other.layers[l];
    check(layer.variants.size() == same.variants.size(),
          "profiles with other variants were joined");
    add_times(layer, same, place);
    for (std::size_t v = 0; v < layer.variants.size(); ++v) {
      check(layer.variants[v].parallelism == same.variants[v].parallelism,
            "variants of other parallelism were joined");
      add_times(layer.variants[v], same.variants[v], place);
    }
  }
}

}  // namespace dapple
