// What is measured of a model's layers, and what the passes over them took.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/exec/measure/measure.h"
#include "dapple/nn/model.h"
#include "dapple/nn/optimizer.h"

namespace dapple::exec {

/// Passes that do not count, before those that do.
inline constexpr std::int64_t kWarmUps = 2;
/// Of inputs and parameters.
inline constexpr std::uint64_t kMeasuredSeed = 1;

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

/// What passes over one batch size took, of a layer or of several.
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
  /// Range of the middle half of the whole passes over their median.
  double spread() const;
};

/// Layers share the median of whole passes by their own medians, which together are less: what is
/// rare in each of them, as being interrupted, is usual in all of them. `all_medians` is the sum of
/// all layers' medians.
Measurement measurement_of(const Passes& layer, const PassTimes& all_medians,
                           const PassTimes& whole);

/// The distinct layers of a model, and which of them each layer is like.
struct Kinds {
  std::vector<std::size_t> first;     // layer of each kind
  std::vector<std::size_t> of_layer;  // its kind
  std::vector<std::size_t> timed;     // layers, ascending: the first few of each kind
};

/// What is measured: the distinct layers of a model, and the optimizer's step on all parameters.
struct MeasurementSubject {
  const io::Specification& specification;
  const std::vector<nn::ModelLayer>& model;
  Kinds kinds;
  nn::OptimizerKind optimizer;

  std::int64_t parameter_count() const {
    std::int64_t count = 0;
    for (const nn::ModelLayer& layer : model) count += nn::parameter_count(layer.own_parameters());
    return count;
  }
};

/// Passes on one core or GPU, each for all batch sizes, and the steps between them.
struct CorePasses {
  std::vector<std::vector<Passes>> by_kind;  // the distinct layers'
  std::vector<Passes> whole;                 // all timed layers'
  std::vector<Duration> steps;
  std::int64_t counted = 0;   // passes, of each batch size
  std::int64_t warm_ups = 0;  // passes before them
  std::int64_t stepped = 0;   // bytes of parameters in a step
  bool is_pinned = false;     // to a core
  std::string gpu;            // its name, where it was one
};

/// On a GPU of this machine, by its own clock. Throws Error(Environment) where there is none.
CorePasses passes_on_gpu(const MeasurementSubject& subject, const MeasureOptions& options);

}  // namespace dapple::exec
