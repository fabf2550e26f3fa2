// Gradient buckets: which gradients of a stage are reduced together, and from when on.
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

/// What a stage of those layers puts of one of them into buckets: its gradient, or nothing where
/// layers of other stages add to that. O(ties * users).
Bytes bucketed_gradient(const ModelProfile& profile, std::int32_t layer, LayerRange layers);

/// Buckets of a stage's own gradients, those that no other stage adds to, in the order in which a
/// backward fills them: layers from the last to the first, a bucket closed as soon as it holds
/// `bucket_size` or more (PyTorch DDP). A layer's gradient is never cut. `first_layer[k]`: bucket k
/// is ready when this layer's backward is.
struct GradientBuckets {
  std::vector<Bytes> sizes;
  std::vector<std::int32_t> first_layer;
};
/// O(layers in the range). Layers without gradients are passed over. Requires: bucket_size > 0.
GradientBuckets gradient_buckets(const ModelProfile& profile, LayerRange layers,
                                 Bytes bucket_size = kDefaultBucketSize);

/// The buckets that a plan names for a stage, with the layers that they come from. Nothing if their
/// sizes are not those of whole layers' gradients, last to first, all of them; no buckets are right
/// only where there is nothing to reduce. O(layers in the range).
std::optional<GradientBuckets> match_buckets(const ModelProfile& profile, const StagePlan& stage);

/// Sets the plan's tied gradients to those of tied_gradients(), and gives every stage of several
/// replicas that names no buckets those of gradient_buckets() with the plan's bucket size.
void fill_gradient_buckets(Plan& plan, const ModelProfile& profile);

}  // namespace dapple
