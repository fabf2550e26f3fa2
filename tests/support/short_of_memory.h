// Small plans whose devices have hardly more memory than the least of orders needs.
#pragma once

#include "dice.h"
#include "pipeline.h"

namespace dapple::small {

struct ShortOfMemory {
  CostedPlan made;                                        // 1F1B, in depths that fit
  ScheduleFamily family = ScheduleFamily::ListScheduled;  // to be rescheduled to
};

/// 2 or 3 stages, 2 to 4 micro-batches; memory between the least that fits and 1.3 of it. With
/// `is_crowded`, stages have replicas that reduce gradients, and devices share NICs; else every
/// stage has one device. The family is list-scheduled, H1 or H2.
ShortOfMemory random_short_of_memory(Dice& dice, bool is_crowded);

}  // namespace dapple::small
