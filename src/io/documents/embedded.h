// Documents embedded in other documents: a plan contains a profile and a topology.
#pragma once

#include "dapple/io/json/json_reader.h"
#include "dapple/profile/model_profile.h"
#include "dapple/topology/description.h"
#include "io/documents/layers_json.h"
#include "io/json/json_writer.h"

namespace dapple::io {

// The readers record violations in the field's; their results may be used only if there are none.
ModelProfile read_profile(const Field& field, Measurements measurements = Measurements::Required);
TopologyDescription read_topology(const Field& field);

void write_profile(JsonWriter& writer, const ModelProfile& profile);
void write_topology(JsonWriter& writer, const TopologyDescription& topology);

}  // namespace dapple::io
