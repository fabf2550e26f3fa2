// dapple-runtime/1: what a runtime does with a plan (profiles/runtimes).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "dapple/plan/runtime.h"

namespace dapple::io {

/// Reads a document. Errors refer to it as `source_name`. Throws Error(BadInput). O(length).
Runtime read_runtime(std::string_view text, const std::string& source_name);

/// Returns the document of a runtime.
std::string write_runtime(const Runtime& runtime);

/// Returns the runtimes that the program knows, by name.
std::vector<Runtime> shipped_runtimes();

}  // namespace dapple::io
