// The parameters of a stage's layers on one device, their gradients and the optimizer's state.
//
// Parameters and gradients lie in one piece each, layer by layer from the last to the first, as a
// backward finishes them: the gradients of a bucket are neighbours, without gaps. Where a stage has
// no buckets, each tensor begins a cache line: vectorised sums depend on how their operands are
// aligned, and so must not depend on which other layers the stage has. The state lies in the same
// order, all arrays of a tensor together. Behind all of that lie, tie by tie, the tensors to whose
// gradients other stages add too, whichever stage's layer they belong to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dapple/exec/training_job.h"

namespace dapple {

/// Where a tensor of a stage lies, in floats.
struct TensorPlace {
  std::string name;                 // "LAYER.PARAMETER"
  std::int32_t layer = 0;           // that it belongs to
  std::optional<std::int32_t> tie;  // in the plan's tied gradients, if its gradient is among them
  bool is_copy = false;             // of a layer's on another stage
  nn::Shape shape;
  std::size_t offset = 0;
  std::size_t size = 0;
};

/// In memory's order. O(tensors).
std::vector<TensorPlace> places_of(const TrainingJob& job, StageIndex stage);

class StageParameters {
 public:
  /// Before training.
  StageParameters(const TrainingJob& job, StageIndex stage);
  StageParameters(StageParameters&&) = default;  // what the views show does not move
  StageParameters& operator=(StageParameters&&) = default;
  StageParameters(const StageParameters&) = delete;
  StageParameters& operator=(const StageParameters&) = delete;
  ~StageParameters() = default;

  /// That one layer uses, in the order of its module's parameters().
  nn::Parameters parameters(std::int32_t layer) const { return of(layer).parameters; }
  nn::Gradients gradients(std::int32_t layer) const { return of(layer).gradients; }

  /// Those of layers that no other stage adds to, and those of a tie.
  std::span<float> gradients_of(LayerRange layers);
  std::span<float> gradients_of_tie(std::int32_t tie);
  void clear_gradients();
  void scale_gradients(float factor);
  /// Sum of the squares of the gradients of a layer's own parameters, in their order.
  double squared_norm(std::int32_t layer) const;

  /// The `number`th step, from one, of the optimizer on what no other stage adds to of those
  /// layers, and on the rest.
  void step(LayerRange layers, std::int64_t number);
  void step_tied(std::int64_t number);

  const std::vector<TensorPlace>& places() const { return places_; }
  std::span<float> all_parameters() { return parameters_; }
  std::span<float> all_gradients() { return gradients_; }
  std::span<float> all_state() { return state_; }

 private:
  struct LayerViews {
    std::vector<std::span<const float>> parameters;
    std::vector<std::span<float>> gradients;
  };
  const LayerViews& of(std::int32_t layer) const {
    return views_[static_cast<std::size_t>(layer - layers_.begin)];
  }

  template <class Chosen>
  std::span<float> gradients_where(const Chosen& is_chosen);
  void update(const TensorPlace& place, std::int64_t number);

  LayerRange layers_;
  nn::OptimizerSettings optimizer_;
  std::vector<TensorPlace> places_;
  std::vector<float> parameters_;
  std::vector<float> gradients_;
  std::vector<float> state_;  // state_count() floats for each parameter
  std::vector<LayerViews> views_;
};

}  // namespace dapple
