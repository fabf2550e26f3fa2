// Parts of a plan that several kinds of documents contain.
#pragma once

#include <string>
#include <vector>

#include "dapple/io/json/json_reader.h"
#include "dapple/plan/plan.h"
#include "dapple/plan/prediction.h"
#include "dapple/plan/simulation_mode.h"
#include "dapple/topology/topology.h"
#include "io/json/json_writer.h"

namespace dapple::io {

/// Writes the object {"bucket_bytes", "optimizer_step"}.
void write_gradients(JsonWriter& writer, const GradientSynchronization& gradients);

/// Writes and reads the object {"tensor", "sequence"?, "context"?, "data"?, "experts"?,
/// "sharding"?, "recompute"?}.
void write_parallelism(JsonWriter& writer, const Parallelism& parallelism);
Parallelism read_parallelism(const Field& field);

/// Writes the key "stage_forms" with these forms, unless there are none, and reads its value.
void write_stage_forms(JsonWriter& writer, const std::vector<Parallelism>& forms);
std::vector<Parallelism> read_stage_forms(const Field& field);

/// Writes the key "samples" with the shares of a stage's replicas, unless they are as even as whole
/// samples allow, and reads its value.
void write_samples(JsonWriter& writer, const StagePlan& stage);
std::vector<std::int64_t> read_samples(const Field& field);

/// Writes the keys "contention" and, unless collectives of layers share no links, "collectives".
void write_contention(JsonWriter& writer, Contention contention);
/// Reads their values. Where the first is missing and not required, links are shared.
Contention read_contention(ObjectReader& object, bool is_required);

/// Writes an object of nanoseconds with the keys of kTimeParts.
void write_time_parts(JsonWriter& writer, const TimeParts& parts);

/// Writes the object "predicted" of a plan.
void write_prediction(JsonWriter& writer, const Prediction& prediction, const Topology& topology);

/// Reads the key `plan_sha256` of a document about a plan. Records a violation and returns false if
/// the document is of another plan; the rest of it is then not read.
bool is_of_plan(const Field& field, const std::string& plan_sha256);

}  // namespace dapple::io
