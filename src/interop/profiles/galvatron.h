// Imports Galvatron's profiles, which consist of two JSON files: the forward time of a sample by
// kind of layer and batch size, and the memory by kind of layer and tensor-parallel degree. Source:
// PKU-DAIR/Hetu-Galvatron models/*/configs/ and core/profiler.py (the measurements),
// core/cost_model.py (their interpretation): half of the time of the rest of the model belongs to
// the embedding and half to the head; model states are four times the parameters; MB are 2^20
// bytes.
#pragma once

#include <vector>

#include "dapple/interop/profiles/foreign_profile.h"
#include "dapple/io/json/json_value.h"

namespace dapple::interop {

/// Imports the figures of tensor-parallel degree 1, the degree of the measured times. The layers
/// are an embedding, --layers of each kind, and a head, each with a measurement for every batch
/// size. Throws as import_model() does. O(length + layers).
ImportedProfile import_galvatron(const std::vector<ForeignModelFile>& files,
                                 const ForeignProfileOptions& options);

/// Whether an object looks like the file of computation or that of memory. O(members).
bool is_galvatron_computation(const io::JsonValue& object);
bool is_galvatron_memory(const io::JsonValue& object);

}  // namespace dapple::interop
