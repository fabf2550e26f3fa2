// dapple-gpus/1: what GPUs can do at most, and what programs reach of it (topologies/gpus.json).
#pragma once

#include <string>
#include <string_view>

#include "dapple/estimate/gpu.h"

namespace dapple::io {

/// Reads a document, and adds the GPUs, calibrations and frameworks that the program knows and the
/// document does not have. Errors refer to it as `source_name`. Throws Error(BadInput). O(length).
estimate::GpuTable read_gpus(std::string_view text, const std::string& source_name);

/// Returns the table as a document. O(size).
std::string write_gpus(const estimate::GpuTable& table);

/// Returns the GPUs that the program knows.
estimate::GpuTable shipped_gpus();

}  // namespace dapple::io
