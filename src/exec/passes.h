// What passes over layers took, and what is usual among them.
#pragma once

#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/profile/model_profile.h"

namespace dapple {

/// Of two in question the lower. Requires: there is one.
Duration median(std::vector<Duration> times);

/// Parts of a pass.
struct PassTimes {
  Duration forward;
  Duration input_gradient;
  Duration weight_gradient;

  PassTimes& operator+=(const PassTimes& other) {
    forward += other.forward;
    input_gradient += other.input_gradient;
    weight_gradient += other.weight_gradient;
    return *this;
  }
};

/// Over one batch size, of a layer or of several.
struct Passes {
  Measurement sizes;
  std::vector<Duration> forwards;
  std::vector<Duration> input_gradients;
  std::vector<Duration> weight_gradients;

  /// Behind its own.
  void append(const Passes& others);
  /// To its own, pass by pass. Requires: as many passes, or none so far.
  void add(const Passes& others);

  PassTimes medians() const;
  /// Half of the passes lie within a range this wide, as a share of the median.
  double spread() const;
};

/// Layers share the median of whole passes by their own medians, which together are less: what is
/// rare in each of them, as being interrupted, is usual in all of them. `all_medians` is the sum of
/// all layers' medians.
Measurement measurement_of(const Passes& layer, const PassTimes& all_medians,
                           const PassTimes& whole);

}  // namespace dapple
