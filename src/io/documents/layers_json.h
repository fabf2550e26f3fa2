// The layers of a profile in JSON. An entry may stand for several layers, and the entries may be in
// any order: readers sort the layers topologically.
#pragma once

#include <string>
#include <vector>

#include "dapple/io/json/json_reader.h"
#include "dapple/profile/model_profile.h"
#include "io/json/json_writer.h"

namespace dapple::io {

/// The most measurements of all layers together after expansion.
inline constexpr std::int64_t kMaxMeasurements = 1'000'000;

enum class Measurements {
  Required,
  // Either no layer has measurements, as in a specification, or all have.
  NoneOrAll,
};

/// The figures that a measurement has in a file: on other kinds of device it has times alone.
enum class Figures { TimesAndSizes, Times };

struct ProfileLayers {
  std::vector<Layer> layers;
  std::vector<Tie> ties;
  /// The kinds of device of the layers' `other_times`, by rising name.
  std::vector<std::string> other_devices;
};

/// Reads, expands and orders layers. The result may be used only if no violation was recorded.
ProfileLayers read_layers(const Field& field, Measurements measurements);

/// Writes the layers. Consecutive layers that differ only in the number in their names, each with
/// the one before as its input, become one entry.
void write_layers(JsonWriter& writer, const ModelProfile& profile);

/// Reads the parts of layers that are recomputed, an optional text such as "core_attn+norm";
/// nothing is recomputed without it. The parts are sound if no violation was recorded.
RecomputedParts read_recomputed_parts(const Field& field);

/// Writes the key "recompute", unless nothing is recomputed.
void write_recomputed_parts(JsonWriter& writer, RecomputedParts parts);

/// Reads which layers of every stage recompute these parts: the optional integers
/// "recomputed_layers", for so many first ones, and "recompute_every", for every n-th, of which at
/// most one is given; all do without them.
LayerSelection read_recomputed_layers(ObjectReader& object, RecomputedParts parts);

/// Writes the key "recomputed_layers" or "recompute_every", unless all layers recompute.
void write_recomputed_layers(JsonWriter& writer, LayerSelection layers);

}  // namespace dapple::io
