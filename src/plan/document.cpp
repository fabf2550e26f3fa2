#include "dapple/plan/document.h"

#include <algorithm>

namespace dapple {

bool is_of(const ParallelismRecord& record, const Plan& plan) {
  const bool is_uniform = plan.stage_forms.empty() && plan.parallelism.group_replicas == 1;
  if (record.stage_forms.empty() != is_uniform) return false;
  if (is_uniform) return record.parallelism == plan.parallelism;
  const auto is_among = [&](const Parallelism& form) {
    return form == record.parallelism ||
           std::find(record.stage_forms.begin(), record.stage_forms.end(), form) !=
               record.stage_forms.end();
  };
  return is_among(plan.parallelism) &&
         std::all_of(plan.stage_forms.begin(), plan.stage_forms.end(), is_among);
}

}  // namespace dapple
