// The request to the planner, as recorded in a plan file.
#pragma once

#include "dapple/io/json/json_reader.h"
#include "dapple/plan/request.h"
#include "io/json/json_writer.h"

namespace dapple::io {

void write_request(JsonWriter& writer, const PlanRequest& request);

/// Reads a request. It is not checked whether layers and counts fit the model and topology.
PlanRequest read_request(const Field& field);

}  // namespace dapple::io
