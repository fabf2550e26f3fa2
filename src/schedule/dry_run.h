// Executes a schedule without times to find out whether it deadlocks.
#pragma once

#include <string>
#include <vector>

#include "dapple/plan/plan.h"
#include "dapple/schedule/schedule.h"

namespace dapple {

/// Returns where every lane that cannot continue waits, and for which action, or an empty string if
/// all lanes complete:
/// "deadlock: stage 0 waits at 0B0 for 1SEND_B0; stage 1 waits at 1F1 for 0SEND_F1".
/// Computations on a lane run in order, and so do a stage's sends in each direction; a send starts
/// when its tensor is there and blocks nothing; gradients are reduced when every lane of the stage
/// has computed its last ones. O(actions).
///
/// Requires: the lanes are those of the plan, and each is valid on its own.
std::string find_deadlock(const Schedule& schedule, const Plan& plan);

/// Returns "stage 2" or "stages 2 and 6".
std::string name_of(const std::vector<StageIndex>& stages);

/// Returns the same for the lane's stages, or "stage 2 replica 1" if micro-batches are dealt.
std::string name_of(const Lane& lane, const Plan& plan);

/// Returns the name of one of the lane's stages in the same form.
std::string name_of(const Lane& lane, StageIndex stage, const Plan& plan);

}  // namespace dapple
