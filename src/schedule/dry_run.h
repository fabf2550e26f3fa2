// Executes a schedule without times, to find whether it ends.
#pragma once

#include <string>

#include "dapple/plan/plan.h"
#include "dapple/schedule/schedule.h"

namespace dapple {

/// Where every lane that cannot go on waits, and for which action, or empty if all lanes end:
/// "deadlock: stage 0 waits at 0B0 for 1SEND_B0; stage 1 waits at 1F1 for 0SEND_F1".
/// Each stream of a lane is first in, first out; a send starts when what it sends is there and
/// blocks nothing; gradients are reduced when every lane of the stage has done its last backward.
/// O(actions).
///
/// Requires: the lanes are those of the plan, and each is sound on its own.
std::string find_deadlock(const Schedule& schedule, const Plan& plan);

/// "stage 2", or "stage 2 replica 1" where micro-batches are dealt.
std::string name_of(const Lane& lane, const Plan& plan);

}  // namespace dapple
