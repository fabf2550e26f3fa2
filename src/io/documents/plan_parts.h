// Objects that several documents have of a plan.
#pragma once

#include "dapple/plan/plan.h"
#include "dapple/plan/prediction.h"
#include "io/json/json_writer.h"

namespace dapple::io {

/// {"bucket_bytes", "optimizer_step"}.
void write_gradients(JsonWriter& writer, const GradientSynchronization& gradients);

/// An object of nanoseconds with the keys of kTimeParts.
void write_time_parts(JsonWriter& writer, const TimeParts& parts);

}  // namespace dapple::io
