// The parameters of a stage's layers on one device, their gradients and the optimizer's state, over
// the arrays of any mathematics (model_backend.h): which of them a layer, a bucket or a tie means.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "dapple/core/error.h"
#include "dapple/exec/train/named_tensors.h"
#include "exec/train/named_tensors.h"
#include "exec/train/stage_layout.h"

namespace dapple::exec {

template <class Math>
class StageParameters {
 public:
  using Numbers = typename Math::Numbers;

  /// Before training.
  StageParameters(Math& math, const TrainingJob& job, StageIndex stage)
      : layers_(job.plan.stages[stage.position()].layers),
        states_(static_cast<std::size_t>(nn::state_count(job.settings.optimizer.kind))),
        layout_(job, stage),
        arrays_(math, layout_, job.settings.optimizer) {
    initialize(job);
    show(job);
  }

  /// That one layer uses, in the order of its module's parameters().
  typename Math::Parameters parameters(std::int32_t layer) const { return of(layer).parameters; }
  typename Math::Gradients gradients(std::int32_t layer) const { return of(layer).gradients; }

  /// Those of layers that no other stage adds to, and those of a tie.
  Numbers gradients_of(LayerRange layers) { return arrays_.gradients(layout_.of(layers)); }
  Numbers gradients_of_tie(std::int32_t tie) { return arrays_.gradients(layout_.of_tie(tie)); }
  void clear_gradients() { arrays_.clear_gradients(); }
  void scale_gradients(float factor) { arrays_.scale_gradients(factor); }

  /// Sums of the squares of the gradients of a layer's own parameters, by layer.
  std::vector<double> squares() {
    std::vector<ElementRange> ranges;
    for (std::int32_t layer = layers_.begin; layer < layers_.end; ++layer) {
      ranges.push_back(layout_.own(layer));
    }
    return arrays_.squares(ranges);
  }

  /// The `number`th step, from one, of the optimizer on what no other stage adds to of those
  /// layers, and on what is tied.
  void step(LayerRange layers, std::int64_t number) { arrays_.update(layout_.of(layers), number); }
  void step_tied(const std::vector<std::int32_t>& ties, std::int64_t number) {
    for (const std::int32_t tie : ties) arrays_.update(layout_.of_tie(tie), number);
  }

  /// As ModelBackend::warm_up().
  void warm_up() { arrays_.warm_up(); }

  /// All of a kind, on the host.
  std::span<const float> values(TensorKind kind) { return arrays_.values(kind); }

  void restore(const NamedTensors& tensors) {
    for (const TensorPlace& place : layout_.places) {
      arrays_.assign(place, TensorKind::Parameters, 0, tensor_of(tensors, place.name, place.shape));
      for (std::size_t k = 0; k < states_; ++k) {
        arrays_.assign(place, TensorKind::State, k,
                       tensor_of(tensors, moment_name(place.name, k), place.shape));
      }
    }
  }

 private:
  struct LayerViews {
    std::vector<typename Math::ParameterView> parameters;
    std::vector<Numbers> gradients;
  };
  const LayerViews& of(std::int32_t layer) const {
    return views_[static_cast<std::size_t>(layer - layers_.begin)];
  }

  void initialize(const TrainingJob& job) {
    std::map<std::int32_t, std::size_t> done;  // parameters of each layer
    std::vector<float> values;
    for (const TensorPlace& place : layout_.places) {
      const nn::ParameterSpec& spec = job.layer(place.layer).own_parameters()[done[place.layer]++];
      values.resize(place.numbers.size());
      nn::initialize(spec, place.name, job.settings.seed, values);
      arrays_.assign(place, TensorKind::Parameters, 0, values);
    }
  }

  /// A layer uses those of the layer that it is tied to, and its own behind them.
  void show(const TrainingJob& job) {
    std::map<std::int32_t, LayerViews> held;  // by the layer that they belong to
    for (const TensorPlace& place : layout_.places) {
      held[place.layer].parameters.push_back(arrays_.parameters(place.numbers));
      held[place.layer].gradients.push_back(arrays_.gradients(place.numbers));
    }
    for (std::int32_t layer = layers_.begin; layer < layers_.end; ++layer) {
      LayerViews& views = views_.emplace_back();
      if (const auto owner = job.layer(layer).tied_to) views = held[*owner];
      const LayerViews& own = held[layer];
      views.parameters.insert(views.parameters.end(), own.parameters.begin(), own.parameters.end());
      views.gradients.insert(views.gradients.end(), own.gradients.begin(), own.gradients.end());
    }
  }

  LayerRange layers_;
  std::size_t states_;  // numbers of the optimizer's for each parameter
  StageLayout layout_;
  typename Math::Arrays arrays_;
  std::vector<LayerViews> views_;
};

}  // namespace dapple::exec
