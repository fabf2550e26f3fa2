// Imports Piper's JSON: a graph of layers, each with figures for several tensor-parallel degrees,
// with and without recomputation. Source: msr-fiddle/piper inputs/ and Piper (NeurIPS'21). The
// number of micro-batches is called "mbsInBatch" in its files and "maxBatchSize" in its README.
#pragma once

#include <string>
#include <string_view>

#include "dapple/interop/profiles/foreign_profile.h"
#include "dapple/io/json/json_value.h"

namespace dapple::interop {

/// Imports a graph as a profile. The files state the sum of forward and backward time of one
/// sample, in seconds unless --time-unit says otherwise. The forward time is the difference between
/// the variants with and without recomputation, or follows from --backward-ratio. `memoryUsageA`,
/// what a micro-batch in flight keeps, is the stash. The output of a node is the largest tensor
/// that it sends. Throws as import_model() does. O(length + (nodes + edges) log nodes).
ImportedProfile import_piper(std::string_view text, const std::string& source_name,
                             const ForeignProfileOptions& options);

/// Whether an object looks like such a file. O(members).
bool is_piper_graph(const io::JsonValue& object);

}  // namespace dapple::interop
