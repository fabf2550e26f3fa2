// Galvatron's profiles: the forward of a sample by kind of layer and batch size, and memory by kind
// of layer and tensor-parallel degree, in two JSON files. Source: PKU-DAIR/Hetu-Galvatron
// models/*/configs/ and core/profiler.py (what is measured), core/cost_model.py (what it stands
// for): the time of the rest of the model is half the embedding's, half the head's; model states
// are four times the parameters; MB are 2^20 bytes.
#pragma once

#include <vector>

#include "dapple/interop/profiles/foreign_profile.h"
#include "dapple/io/json/json_value.h"

namespace dapple::interop {

/// Degree 1, which is what the times are of. An embedding, --layers of each kind, a head; a
/// measurement for each batch size. Throws as import_model(). O(length + layers).
ImportedProfile import_galvatron(const std::vector<ForeignModelFile>& files,
                                 const ForeignProfileOptions& options);

/// Whether an object looks like the one of the two files, or the other. O(members).
bool is_galvatron_computation(const io::JsonValue& object);
bool is_galvatron_memory(const io::JsonValue& object);

}  // namespace dapple::interop
