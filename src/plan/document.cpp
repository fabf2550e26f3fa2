#include "dapple/plan/document.h"

#include <algorithm>

namespace dapple {

namespace {

/// Whether the groups of some of the forms have another size than those of `first`.
bool have_other_sizes(const Parallelism& first, const std::vector<Parallelism>& forms) {
  return std::any_of(forms.begin(), forms.end(), [&](const Parallelism& form) {
    return form.group_size() != first.group_size();
  });
}

}  // namespace

bool is_of(const ParallelismRecord& record, const Plan& plan) {
  const bool is_uniform = plan.stage_forms.empty();
  // Plans on groups of one size have records of their own.
  if (have_other_sizes(record.parallelism, record.stage_forms) !=
      have_other_sizes(plan.parallelism, plan.stage_forms)) {
    return false;
  }
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
