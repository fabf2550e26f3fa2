// Plans that an estimate cannot tell apart, and what has to be measured to do so.
#pragma once

#include <string>

#include "dapple/core/quantity.h"
#include "dapple/plan/plan.h"

namespace dapple {

/// Whether neither time exceeds the other by more than the error, a fraction of the smaller one.
bool are_within_error(Duration a, Duration b, Factor error);

/// Returns what has to be measured to tell which of two plans is faster, in words. Where both have
/// as many stages and one schedule, and their forms differ in one respect only (the degree of
/// tensor, context or expert parallelism, sharding or recomputation), that is what this changes of
/// a layer, such as "layers and their collectives with tensor 2 and 4", and at which batches if the
/// samples that a device has of a micro-batch differ too; the numbers of replicas and micro-batches
/// follow from these. Otherwise it is "an iteration of each plan". O(devices).
std::string deciding_measurement(const Plan& plan, const Plan& other);

}  // namespace dapple
