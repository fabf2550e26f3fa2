#include "dapple/plan/document.h"

#include <algorithm>

namespace dapple {

bool is_of(const ParallelismRecord& record, const Plan& plan) {
  const bool is_uniform = plan.stage_forms.empty();
  if (record.stage_forms.empty()) return is_uniform && record.parallelism == plan.parallelism;
  // Other forms have a record of their own.
  if (is_uniform && plan.parallelism.group_replicas == 1) return false;
  const auto is_among = [&](const Parallelism& form) {
    return form == record.parallelism ||
           std::find(record.stage_forms.begin(), record.stage_forms.end(), form) !=
               record.stage_forms.end();
  };
  return is_among(plan.parallelism) &&
         std::all_of(plan.stage_forms.begin(), plan.stage_forms.end(), is_among);
}

}  // namespace dapple
