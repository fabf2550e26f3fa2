// A runtime as a part of a document.
#pragma once

#include "dapple/io/json/json_reader.h"
#include "dapple/plan/runtime.h"
#include "io/json/json_writer.h"

namespace dapple::io {

Runtime read_runtime(const Field& field);
void write_runtime(JsonWriter& writer, const Runtime& runtime);

/// Read "overlapped", "blocking" or "serial"; "whole", also where it is absent, or
/// "scatter-gather"; and "buckets" or "none".
Transfers read_transfers(const Field& field);
Boundaries read_boundaries(const Field& field);
bool read_gradient_overlap(const Field& field);

}  // namespace dapple::io
