// The schedule families that make their own orders.
#pragma once

#include "dapple/plan/schedule_family.h"

namespace dapple::small {

inline constexpr ScheduleFamily kOwnFamilies[] = {
    ScheduleFamily::GPipe,        ScheduleFamily::OneFOneB,      ScheduleFamily::Interleaved,
    ScheduleFamily::BreadthFirst, ScheduleFamily::ListScheduled, ScheduleFamily::ZeroBubbleH1,
    ScheduleFamily::ZeroBubbleH2, ScheduleFamily::ZeroBubbleV};

/// Whether its devices hold several stages each.
constexpr bool has_loops(ScheduleFamily family) {
  return family == ScheduleFamily::Interleaved || family == ScheduleFamily::BreadthFirst ||
         family == ScheduleFamily::ZeroBubbleV;
}

}  // namespace dapple::small
