#include "dapple/plan/schedule_family.h"

#include <cstddef>
#include <iterator>

#include "dapple/core/error.h"

namespace dapple {
namespace {

static_assert(std::size(kScheduleFamilies) == static_cast<std::size_t>(ScheduleFamily::Given) + 1,
              "every family is listed");

struct FamilyTraits {
  std::string_view name;
  bool carries_order = false;
  bool may_split_backward = false;
  bool has_loops = false;
};

FamilyTraits traits_of(ScheduleFamily family) {
  switch (family) {
    case ScheduleFamily::GPipe:
      return {.name = "gpipe"};
    case ScheduleFamily::OneFOneB:
      return {.name = "1f1b"};
    case ScheduleFamily::Interleaved:
      return {.name = "interleaved", .has_loops = true};
    case ScheduleFamily::BreadthFirst:
      return {.name = "breadth-first", .has_loops = true};
    case ScheduleFamily::ListScheduled:
      return {.name = "list-scheduled", .carries_order = true};
    case ScheduleFamily::ZeroBubbleH1:
      return {.name = "zb-h1", .carries_order = true, .may_split_backward = true};
    case ScheduleFamily::ZeroBubbleH2:
      return {.name = "zb-h2", .carries_order = true, .may_split_backward = true};
    case ScheduleFamily::ZeroBubbleV:
      return {.name = "zb-v", .carries_order = true, .may_split_backward = true, .has_loops = true};
    case ScheduleFamily::Given:
      return {.name = "given", .carries_order = true, .may_split_backward = true};
  }
  throw Bug("a schedule family without traits");
}

}  // namespace

std::string_view to_string(ScheduleFamily family) {
  return traits_of(family).name;
}

bool carries_order(ScheduleFamily family) {
  return traits_of(family).carries_order;
}

bool may_split_backward(ScheduleFamily family) {
  return traits_of(family).may_split_backward;
}

bool has_loops(ScheduleFamily family) {
  return traits_of(family).has_loops;
}

bool is_planned_as_1f1b(ScheduleFamily family) {
  return family == ScheduleFamily::OneFOneB || family == ScheduleFamily::GPipe;
}

ScheduleFamily recorded_family(ScheduleFamily family) {
  return family == ScheduleFamily::GPipe ? ScheduleFamily::OneFOneB : family;
}

}  // namespace dapple
