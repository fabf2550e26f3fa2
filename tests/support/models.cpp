#include "models.h"

#include <cstddef>
#include <string>
#include <utility>

namespace dapple::small {

ModelProfile model_of(const std::vector<LayerFigures>& layers) {
  ModelProfile profile;
  profile.name = "small";
  profile.device = "gpu";
  profile.batch_scaling = BatchScaling::Proportional;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const LayerFigures& figures = layers[i];
    Layer layer;
    layer.name = "layer" + std::to_string(i);
    layer.parameters = {figures.parameters};
    if (i > 0) layer.inputs = {index_at<LayerIndex>(i - 1)};
    Measurement measurement;
    measurement.forward = {figures.forward};
    measurement.backward = {figures.backward};
    measurement.output = {figures.output};
    measurement.stash = {figures.stash};
    measurement.workspace = {figures.workspace};
    layer.measurements = {measurement};
    profile.layers.push_back(std::move(layer));
  }
  return profile;
}

ModelProfile with_every_nth(ModelProfile profile, std::int64_t n,
                            const std::vector<std::int64_t>& again) {
  ModelProfile recomputing = profile;
  for (std::size_t i = 0; i < again.size(); ++i) {
    Layer& layer = recomputing.layers[i];
    layer.recomputes = true;
    layer.measurements.front().backward += Duration{again[i]};
  }
  profile.parallelism = {.recomputes = kWholeLayer, .recomputed_layers = LayerSelection::every(n)};
  profile.recomputing.push_back(std::move(recomputing));
  return profile;
}

}  // namespace dapple::small
