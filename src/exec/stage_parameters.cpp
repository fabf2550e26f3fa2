#include "stage_parameters.h"

#include <algorithm>

namespace dapple {
namespace {

bool contains(LayerRange layers, std::int32_t layer) {
  return layers.begin <= layer && layer < layers.end;
}

}  // namespace

std::vector<TensorPlace> places_of(const TrainingJob& job, StageIndex stage) {
  constexpr std::size_t kCacheLine = 64 / sizeof(float);
  const std::size_t unit = job.buckets[stage.position()].sizes.empty() ? kCacheLine : 1;
  const LayerRange layers = job.plan.stages[stage.position()].layers;
  std::vector<TensorPlace> places;
  std::size_t offset = 0;
  for (std::int32_t layer = layers.end - 1; layer >= layers.begin; --layer) {
    const nn::ModelLayer& of_model = job.layer(layer);
    for (const nn::ParameterSpec& parameter : of_model.module->parameters()) {
      const auto size = static_cast<std::size_t>(nn::count_of(parameter.shape));
      places.push_back({.name = of_model.name + "." + parameter.name,
                        .layer = layer,
                        .shape = parameter.shape,
                        .offset = offset,
                        .size = size});
      offset += (size + unit - 1) / unit * unit;
    }
  }
  return places;
}

StageParameters::StageParameters(const TrainingJob& job, StageIndex stage)
    : layers_(job.plan.stages[stage.position()].layers),
      optimizer_(job.settings.optimizer),
      places_(places_of(job, stage)) {
  const std::size_t size = places_.empty() ? 0 : places_.back().offset + places_.back().size;
  const auto states = static_cast<std::size_t>(nn::state_count(optimizer_.kind));
  parameters_.resize(size);
  gradients_.resize(size);
  state_.resize(size * states);
  views_.resize(static_cast<std::size_t>(layers_.size()));
  std::vector<std::size_t> next(views_.size(), 0);  // parameter, per layer
  for (const TensorPlace& place : places_) {
    const auto position = static_cast<std::size_t>(place.layer - layers_.begin);
    const std::span<float> values = all_parameters().subspan(place.offset, place.size);
    const nn::Module& module = *job.layer(place.layer).module;
    nn::initialize(module.parameters()[next[position]++], place.name, job.settings.seed, values);
    views_[position].parameters.push_back(values);
    views_[position].gradients.push_back(all_gradients().subspan(place.offset, place.size));
  }
}

std::span<float> StageParameters::gradients_of(LayerRange layers) {
  std::size_t begin = gradients_.size();
  std::size_t end = 0;
  for (const TensorPlace& place : places_) {
    if (!contains(layers, place.layer)) continue;
    begin = std::min(begin, place.offset);
    end = place.offset + place.size;
  }
  return all_gradients().subspan(std::min(begin, end), end - std::min(begin, end));
}

void StageParameters::clear_gradients() {
  std::fill(gradients_.begin(), gradients_.end(), 0.0F);
}

void StageParameters::scale_gradients(float factor) {
  for (float& gradient : gradients_) gradient *= factor;
}

double StageParameters::squared_norm(std::int32_t layer) const {
  double sum = 0;
  for (const std::span<float> tensor : of(layer).gradients) {
    for (const float gradient : tensor) sum += double{gradient} * double{gradient};
  }
  return sum;
}

void StageParameters::step(LayerRange layers, std::int64_t number) {
  const auto states = static_cast<std::size_t>(nn::state_count(optimizer_.kind));
  for (const TensorPlace& place : places_) {
    if (!contains(layers, place.layer)) continue;
    nn::update(optimizer_, number, all_parameters().subspan(place.offset, place.size),
               all_gradients().subspan(place.offset, place.size),
               all_state().subspan(place.offset * states, place.size * states));
  }
}

}  // namespace dapple
