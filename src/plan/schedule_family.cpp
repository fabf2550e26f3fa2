#include "dapple/plan/schedule_family.h"

#include "dapple/core/error.h"

namespace dapple {

std::string_view to_string(ScheduleFamily family) {
  switch (family) {
    case ScheduleFamily::GPipe:
      return "gpipe";
    case ScheduleFamily::OneFOneB:
      return "1f1b";
    case ScheduleFamily::Interleaved:
      return "interleaved";
    case ScheduleFamily::BreadthFirst:
      return "breadth-first";
    case ScheduleFamily::ListScheduled:
      return "list-scheduled";
    case ScheduleFamily::ZeroBubbleH1:
      return "zb-h1";
    case ScheduleFamily::ZeroBubbleH2:
      return "zb-h2";
    case ScheduleFamily::ZeroBubbleV:
      return "zb-v";
    case ScheduleFamily::Given:
      return "given";
  }
  throw Bug("a schedule family without a name");
}

bool carries_order(ScheduleFamily family) {
  switch (family) {
    case ScheduleFamily::GPipe:
    case ScheduleFamily::OneFOneB:
    case ScheduleFamily::Interleaved:
    case ScheduleFamily::BreadthFirst:
      return false;
    case ScheduleFamily::ListScheduled:
    case ScheduleFamily::ZeroBubbleH1:
    case ScheduleFamily::ZeroBubbleH2:
    case ScheduleFamily::ZeroBubbleV:
    case ScheduleFamily::Given:
      return true;
  }
  throw Bug("a schedule family without an order");
}

bool may_split_backward(ScheduleFamily family) {
  return carries_order(family) && family != ScheduleFamily::ListScheduled;
}

bool has_loops(ScheduleFamily family) {
  return family == ScheduleFamily::Interleaved || family == ScheduleFamily::BreadthFirst ||
         family == ScheduleFamily::ZeroBubbleV;
}

bool is_planned_as_1f1b(ScheduleFamily family) {
  return family == ScheduleFamily::OneFOneB || family == ScheduleFamily::GPipe;
}

}  // namespace dapple
