// How far a plan may be from the fastest one: lower bounds and gaps, and whether they are as small
// as was asked for.
#pragma once

#include <optional>

#include "dapple/core/quantity.h"
#include "dapple/plan/document.h"
#include "dapple/plan/prediction.h"
#include "dapple/plan/request.h"

namespace dapple {

/// Returns (iteration - lower_bound) / iteration. Requires: 0 <= lower_bound <= iteration.
double optimality_gap(Duration iteration, Duration lower_bound);

/// Returns iteration - floor(iteration * gap). A search may ignore plans that take this long or
/// longer, as a plan with the given iteration is within the gap of them (theta in docs/bounds.md).
/// An infinite iteration, that of no plan, has an infinite threshold. Requires: gap below 1.
Duration gap_threshold(Duration iteration, Factor gap);

/// Whether a bound proves that no plan is faster than this iteration by more than the gap.
bool is_within_gap(Duration iteration, Duration lower_bound, Factor gap);

/// Sets the prediction's lower bound to the smaller of `bound` and its own iteration, and sets the
/// optimality gap; clears both where nothing was proven.
void set_proven_bound(Prediction& prediction, std::optional<Duration> bound);

/// Whether the bound is the iteration itself, so that no plan is faster.
bool is_gap_closed(const Prediction& prediction);

/// Returns the iteration of the fastest plan that was found: that of the document's plan, unless
/// another one was chosen because it varies less. The search and its records are about this plan.
Duration fastest_found(const PlanDocument& document);

/// Whether the bound is fastest_found(), so that no plan is faster.
bool is_gap_closed(const PlanDocument& document);

/// Returns the longest iteration of a plan that may be chosen in place of the fastest one because
/// it varies less: longer by the deviation of the speeds.
Duration slowest_choice(Duration fastest, const JitterRequest& jitter);

/// Whether the exact planner proved that no plan is faster than fastest_found() by more than the
/// requested gap. Requires: the document has a request.
bool has_reached_gap(const PlanDocument& document);

/// Whether nothing that was requested is left to be proven, so that a later stop changed nothing:
/// the gap is closed, or, for 1F1B or GPipe alone without a target runtime, the requested gap is
/// reached. Where plans are compared with devices that are not equally fast, a stop may always have
/// kept some of them from being compared. Requires: the document has a request.
bool is_search_done(const PlanDocument& document);

}  // namespace dapple
