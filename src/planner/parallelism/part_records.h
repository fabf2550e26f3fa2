// What a plan's document records of the parts of the space.
#pragma once

#include <functional>
#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/plan/document.h"
#include "dapple/planner/parallelism/asked_parallelisms.h"
#include "planner/parallelism/space_part.h"

namespace dapple::planner {

/// Whether a part is that of the plan.
using IsBestPart = std::function<bool(const SpacePart&)>;

/// Returns a record of each form of parallelism that is asked for, in their order. `of_plan` is the
/// plan's iteration.
std::vector<ParallelismRecord> records_of_forms(const std::vector<AskedParallelism>& asked,
                                                const std::vector<SpacePart>& parts,
                                                const IsBestPart& is_best, Duration of_plan);

/// Makes the records of schedule families those of all parts: the best plan of a family that was
/// found in any of them, and the least of the bounds.
void merge_schedules(PlanDocument& document, const std::vector<SpacePart>& parts,
                     const IsBestPart& is_best);

}  // namespace dapple::planner
