#include "dapple/plan/request.h"

namespace dapple {

std::string_view to_string(PlannerKind planner) {
  return planner == PlannerKind::Exact ? "exact" : "dapple";
}

}  // namespace dapple
