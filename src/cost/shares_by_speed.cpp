#include <algorithm>
#include <map>
#include <vector>

#include "dapple/cost/cost_model.h"

namespace dapple {
namespace {

/// The devices of one kind among those of a stage.
struct DevicesOfKind {
  std::int64_t count = 0;
  // The time of a sample, in units that are the same for all kinds.
  Wide of_sample = 0;
  // The samples that each device has at least, and how many devices have one more.
  std::int64_t share = 1;
  std::int64_t larger = 0;
};

using ByKind = std::map<std::int32_t, DevicesOfKind>;

/// Returns the most samples, at least one, that a device processes within `limit`.
std::int64_t samples_within(Wide limit, Wide of_sample) {
  return std::max<std::int64_t>(1, divide_down(limit, of_sample));
}

/// Returns the longest time within which the devices process no more than `samples` samples.
/// Requires: each of them has one.
Wide longest_within(const ByKind& kinds, std::int64_t samples) {
  const auto processed = [&](Wide limit) {
    Wide sum = 0;
    for (const auto& [kind, devices] : kinds) {
      sum += Wide{devices.count} * samples_within(limit, devices.of_sample);
    }
    return sum;
  };
  Wide within = 0;
  Wide beyond = 0;
  // Within this time the devices of any kind alone process more.
  for (const auto& [kind, devices] : kinds) {
    beyond = std::max(beyond, devices.of_sample * (samples + 1));
  }
  while (beyond - within > 1) {
    const Wide middle = within + (beyond - within) / 2;
    (processed(middle) <= samples ? within : beyond) = middle;
  }
  return within;
}

}  // namespace

std::vector<std::int64_t> CostModel::shares_by_speed(
    std::int64_t micro_batch_size, const std::vector<DeviceIndex>& devices) const {
  ByKind kinds;
  for (const DeviceIndex device : devices) ++kinds[topology_.device(device).kind].count;
  if (kinds.size() == 1 || !do_times_rise_) return {};
  const auto replicas = static_cast<std::int64_t>(devices.size());
  const LayerRange all{0, layer_count()};
  for (auto& [kind, some] : kinds) {
    const LayerTable& layers = table(divide_up(micro_batch_size, replicas), kind);
    some.of_sample = std::max<Wide>(1, (layers.least_forward(all) + layers.least_backward(all)).ns);
  }
  const Wide limit = longest_within(kinds, micro_batch_size);
  std::int64_t left = micro_batch_size;
  for (auto& [kind, some] : kinds) {
    some.share = samples_within(limit, some.of_sample);
    left -= some.share * some.count;
  }
  // The remaining samples go to the devices that would finish one more just after the limit.
  for (auto& [kind, some] : kinds) {
    if (some.of_sample * (some.share + 1) != limit + 1) continue;
    some.larger = std::min(left, some.count);
    left -= some.larger;
  }
  std::vector<std::int64_t> samples;
  for (const DeviceIndex device : devices) {
    DevicesOfKind& some = kinds[topology_.device(device).kind];
    samples.push_back(some.share + (some.larger-- > 0 ? 1 : 0));
  }
  if (are_equal_shares(micro_batch_size, samples)) samples.clear();
  return samples;
}

}  // namespace dapple
