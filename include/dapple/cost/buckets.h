// Gradient buckets: which gradients of a stage are reduced together, and when each bucket is ready.
//
// Source: PyTorch DDP (VLDB'20) section 4 (gradient buckets overlapped with the backward).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/plan/plan.h"
#include "dapple/profile/model_profile.h"

namespace dapple {

/// Returns the part of a layer's parameters whose gradients a device reduces with other groups: of
/// the parameters that several devices of its group hold, an equal part, rounded up. O(1).
Bytes reduced_parameters(const ModelProfile& profile, LayerIndex layer);

/// Returns the size of the gradient of `layer` that a stage with `layers` puts into buckets: the
/// gradient of its reduced_parameters(), or nothing if layers of other stages contribute to it.
/// O(ties * users).
Bytes bucketed_gradient(const ModelProfile& profile, std::int32_t layer, LayerRange layers);

/// The buckets of a stage's own gradients, to which no other stage contributes, in the order in
/// which a backward fills them: by layer from the last to the first, where a bucket is closed as
/// soon as it holds the bucket size or more (PyTorch DDP). A layer's gradient is never divided.
struct GradientBuckets {
  std::vector<Bytes> sizes;
  /// Bucket k is ready when the backward of layer first_layer[k] is done.
  std::vector<std::int32_t> first_layer;
};
/// Returns the buckets of a stage, skipping layers without gradients. O(layers in the range).
/// Requires: bucket_size > 0.
GradientBuckets gradient_buckets(const ModelProfile& profile, LayerRange layers,
                                 Bytes bucket_size = kDefaultBucketSize);

/// Returns the buckets that a plan lists for a stage, with the layers that they come from;
/// `profile` is in_form() of the stage. Returns nothing if they do not consist of whole layers'
/// gradients, last to first and including all of them. An empty list is valid only if the stage has
/// nothing to reduce. O(layers in the range).
std::optional<GradientBuckets> match_buckets(const ModelProfile& profile, const StagePlan& stage);

/// Sets the plan's tied gradients to those of tied_gradients(), and the buckets of every stage with
/// several replicas and no buckets to those of gradient_buckets() with the plan's bucket size.
void fill_gradient_buckets(Plan& plan, const ModelProfile& profile);

}  // namespace dapple
