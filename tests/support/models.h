// Small models for tests that work their numbers by hand.
#pragma once

#include <cstdint>
#include <vector>

#include "dapple/profile/model_profile.h"

namespace dapple::small {

/// One layer, per sample: nanoseconds and bytes.
struct LayerFigures {
  std::int64_t forward = 0;
  std::int64_t backward = 0;
  std::int64_t output = 0;
  std::int64_t parameters = 0;
  std::int64_t stash = 0;
  std::int64_t workspace = 0;
};

/// A chain of such layers, all proportional to samples, a byte of gradient per byte of parameters.
ModelProfile model_of(const std::vector<LayerFigures>& layers);

/// The model with every n-th layer of each stage recomputing, whose backward takes so much longer
/// then: a number of nanoseconds per sample for each layer.
ModelProfile with_every_nth(ModelProfile profile, std::int64_t n,
                            const std::vector<std::int64_t>& again);

}  // namespace dapple::small
