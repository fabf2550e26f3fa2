#include "stage_parameters.h"

#include <algorithm>
#include <map>

namespace dapple {
namespace {

bool contains(LayerRange layers, std::int32_t layer) {
  return layers.begin <= layer && layer < layers.end;
}

}  // namespace

std::vector<TensorPlace> places_of(const TrainingJob& job, StageIndex stage) {
  constexpr std::size_t kCacheLine = 64 / sizeof(float);
  const auto round_up_to = [](std::size_t unit, std::size_t size) {
    return (size + unit - 1) / unit * unit;
  };
  const bool is_bucketed = !job.buckets[stage.position()].sizes.empty();
  const LayerRange layers = job.plan.stages[stage.position()].layers;
  std::vector<TensorPlace> places;
  std::size_t offset = 0;
  const auto add_layer = [&](std::int32_t layer, std::optional<std::int32_t> tie) {
    const nn::ModelLayer& of_model = job.layer(layer);
    for (const nn::ParameterSpec& parameter : of_model.own_parameters()) {
      const auto size = static_cast<std::size_t>(nn::count_of(parameter.shape));
      places.push_back({.name = of_model.name + "." + parameter.name,
                        .layer = layer,
                        .tie = tie,
                        .is_copy = !contains(layers, layer),
                        .shape = parameter.shape,
                        .offset = offset,
                        .size = size});
      const bool has_neighbours = tie || is_bucketed;
      offset += round_up_to(has_neighbours ? 1 : kCacheLine, size);
    }
  };
  const std::vector<std::int32_t> ties = ties_of(job.plan, {stage});
  const auto holder_of = [&](std::int32_t tie) {
    return job.plan.tied_gradients[static_cast<std::size_t>(tie)].holder.value;
  };
  for (std::int32_t layer = layers.end - 1; layer >= layers.begin; --layer) {
    const bool is_tied = std::any_of(ties.begin(), ties.end(),
                                     [&](std::int32_t tie) { return holder_of(tie) == layer; });
    if (!is_tied) add_layer(layer, std::nullopt);
  }
  for (const std::int32_t tie : ties) {
    offset = round_up_to(kCacheLine, offset);
    add_layer(holder_of(tie), tie);
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
  std::map<std::int32_t, LayerViews> held;  // by the layer that they belong to
  for (const TensorPlace& place : places_) {
    const std::span<float> values = all_parameters().subspan(place.offset, place.size);
    LayerViews& views = held[place.layer];
    const auto own = job.layer(place.layer).own_parameters();
    nn::initialize(own[views.parameters.size()], place.name, job.settings.seed, values);
    views.parameters.push_back(values);
    views.gradients.push_back(all_gradients().subspan(place.offset, place.size));
  }
  for (std::int32_t layer = layers_.begin; layer < layers_.end; ++layer) {
    LayerViews& views = views_.emplace_back();
    if (const auto holder = job.layer(layer).tied_to) views = held[*holder];
    const LayerViews& own = held[layer];
    views.parameters.insert(views.parameters.end(), own.parameters.begin(), own.parameters.end());
    views.gradients.insert(views.gradients.end(), own.gradients.begin(), own.gradients.end());
  }
}

/// Requires: what is chosen lies together.
template <class Chosen>
std::span<float> StageParameters::gradients_where(const Chosen& is_chosen) {
  std::size_t begin = gradients_.size();
  std::size_t end = 0;
  for (const TensorPlace& place : places_) {
    if (!is_chosen(place)) continue;
    begin = std::min(begin, place.offset);
    end = place.offset + place.size;
  }
  return all_gradients().subspan(std::min(begin, end), end - std::min(begin, end));
}

std::span<float> StageParameters::gradients_of(LayerRange layers) {
  return gradients_where(
      [&](const TensorPlace& place) { return !place.tie && contains(layers, place.layer); });
}

std::span<float> StageParameters::gradients_of_tie(std::int32_t tie) {
  return gradients_where([&](const TensorPlace& place) { return place.tie == tie; });
}

void StageParameters::clear_gradients() {
  std::fill(gradients_.begin(), gradients_.end(), 0.0F);
}

void StageParameters::scale_gradients(float factor) {
  for (float& gradient : gradients_) gradient *= factor;
}

double StageParameters::squared_norm(std::int32_t layer) const {
  double sum = 0;
  for (const TensorPlace& place : places_) {
    if (place.layer != layer || place.is_copy) continue;
    for (const float gradient : std::span(gradients_).subspan(place.offset, place.size)) {
      sum += double{gradient} * double{gradient};
    }
  }
  return sum;
}

void StageParameters::update(const TensorPlace& place, std::int64_t number) {
  const auto states = static_cast<std::size_t>(nn::state_count(optimizer_.kind));
  nn::update(optimizer_, number, all_parameters().subspan(place.offset, place.size),
             all_gradients().subspan(place.offset, place.size),
             all_state().subspan(place.offset * states, place.size * states));
}

void StageParameters::step(LayerRange layers, std::int64_t number) {
  for (const TensorPlace& place : places_) {
    if (!place.tie && contains(layers, place.layer)) update(place, number);
  }
}

void StageParameters::step_tied(std::int64_t number) {
  for (const TensorPlace& place : places_) {
    if (place.tie) update(place, number);
  }
}

}  // namespace dapple
