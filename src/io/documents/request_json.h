// What was asked of the planner, in a plan file.
#pragma once

#include "dapple/io/json/json_reader.h"
#include "dapple/plan/request.h"
#include "io/json/json_writer.h"

namespace dapple::io {

void write_request(JsonWriter& writer, const PlanRequest& request);

/// Whether layers and counts are those of the model and topology is not looked at here.
PlanRequest read_request(const Field& field);

}  // namespace dapple::io
