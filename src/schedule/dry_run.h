// Executes a schedule without times, to find whether it ends.
#pragma once

#include <string>
#include <vector>

#include "dapple/plan/plan.h"
#include "dapple/schedule/schedule.h"

namespace dapple {

/// Where every lane that cannot go on waits, and for which action, or empty if all lanes end:
/// "deadlock: stage 0 waits at 0B0 for 1SEND_B0; stage 1 waits at 1F1 for 0SEND_F1".
/// Computation on a lane is in order, and so are a stage's sends in each direction; a send starts
/// when what it sends is there and blocks nothing; gradients are reduced when every lane of the
/// stage has made its last ones.
/// O(actions).
///
/// Requires: the lanes are those of the plan, and each is sound on its own.
std::string find_deadlock(const Schedule& schedule, const Plan& plan);

/// "stage 2", or "stages 2 and 6".
std::string name_of(const std::vector<StageIndex>& stages);

/// The same, or "stage 2 replica 1" where micro-batches are dealt.
std::string name_of(const Lane& lane, const Plan& plan);

/// One of the lane's stages, likewise.
std::string name_of(const Lane& lane, StageIndex stage, const Plan& plan);

}  // namespace dapple
