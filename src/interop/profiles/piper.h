// Piper's JSON: a graph of layers, each with figures for several tensor-parallel degrees, plain and
// recomputing. Source: msr-fiddle/piper inputs/ and Piper (NeurIPS'21); the number of micro-batches
// is "mbsInBatch" in its files and "maxBatchSize" in its README.
#pragma once

#include <string>
#include <string_view>

#include "dapple/interop/profiles/foreign_profile.h"

namespace dapple::interop {

/// Times are seconds of one sample, both directions together: the forward is what the recomputing
/// variant takes longer, or as --backward-ratio says. `memoryUsageA` is what a micro-batch in
/// flight keeps. The largest tensor that a node sends is its output. Throws as import_model().
/// O(length + (nodes + edges) log nodes).
ImportedProfile import_piper(std::string_view text, const std::string& source_name,
                             const ForeignProfileOptions& options);

}  // namespace dapple::interop
