#include "planner/request/gradient_synchronizations.h"

#include <algorithm>

#include "dapple/cost/buckets.h"
#include "dapple/planner/request/planner_options.h"

namespace dapple::planner {

std::vector<GradientSynchronization> gradient_synchronizations(const PlannerOptions& options,
                                                               const ModelProfile& profile) {
  if (options.bucket_size) return {usual_gradients(options)};
  const LayerRange all{0, static_cast<std::int32_t>(profile.layers.size())};
  // At a bucket size of one byte every layer with gradients is a bucket of its own.
  const std::vector<Bytes> layers = gradient_buckets(profile, all, Bytes{1}).sizes;
  Bytes sum{1};
  Bytes least = Bytes::infinite();
  for (const Bytes layer : layers) {
    sum += layer;
    least = std::min(least, layer);
  }
  std::vector<GradientSynchronization> synchronizations;
  constexpr std::int64_t kMiB = 1024 * 1024;
  for (const std::int64_t size : {1 * kMiB, 5 * kMiB, 25 * kMiB, 100 * kMiB, 400 * kMiB}) {
    if (size >= sum.count) break;
    // Up to the smallest gradient of a layer, every layer is a bucket of its own at any size.
    if (size <= least.count) synchronizations.clear();
    synchronizations.push_back({.bucket_size = Bytes{size},
                                .optimizer = options.optimizer,
                                .overlaps = options.overlaps_gradients});
  }
  synchronizations.push_back(
      {.bucket_size = sum, .optimizer = options.optimizer, .overlaps = options.overlaps_gradients});
  return synchronizations;
}

GradientSynchronization usual_gradients(const PlannerOptions& options) {
  return {.bucket_size = options.bucket_size.value_or(kDefaultBucketSize),
          .optimizer = options.optimizer,
          .overlaps = options.overlaps_gradients};
}

}  // namespace dapple::planner
