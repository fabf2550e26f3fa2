// Our documents as parts of other documents: a plan holds a profile and a topology.
#pragma once

#include "dapple/io/json/json_reader.h"
#include "dapple/profile/model_profile.h"
#include "dapple/topology/description.h"
#include "io/documents/layers_json.h"
#include "io/json/json_writer.h"

namespace dapple::io {

// Faults go to the field's violations; the result is to be used only if there are none.
ModelProfile read_profile(const Field& field, Measurements measurements = Measurements::Required);
TopologyDescription read_topology(const Field& field);

void write_profile(JsonWriter& writer, const ModelProfile& profile);
void write_topology(JsonWriter& writer, const TopologyDescription& topology);

}  // namespace dapple::io
