// The layers of a profile: entries that may stand for several layers, in any order that their
// inputs allow.
#pragma once

#include <vector>

#include "dapple/io/json/json_reader.h"
#include "dapple/profile/model_profile.h"
#include "io/json/json_writer.h"

namespace dapple::io {

/// Layers of a profile after expansion.
inline constexpr std::int64_t kMaxLayers = 100'000;
/// Measurements of all layers after expansion.
inline constexpr std::int64_t kMaxMeasurements = 1'000'000;

enum class Measurements {
  Required,
  NoneOrAll,  // a specification may have none; where a layer has some, all have
};

struct LayersAndTies {
  std::vector<Layer> layers;
  std::vector<Tie> ties;
};

/// Reads, expands and orders layers. The result is to be used only if there was no fault.
LayersAndTies read_layers(const Field& field, Measurements measurements);

/// Layers that differ in nothing but their number, each fed by the one before, become one entry.
void write_layers(JsonWriter& writer, const ModelProfile& profile);

}  // namespace dapple::io
