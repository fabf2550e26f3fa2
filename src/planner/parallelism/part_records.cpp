#include "planner/parallelism/part_records.h"

#include <algorithm>
#include <cstddef>
#include <variant>

namespace dapple::planner {

std::vector<ParallelismRecord> records_of_forms(const std::vector<AskedParallelism>& asked,
                                                const std::vector<SpacePart>& parts,
                                                const IsBestPart& is_best, Duration of_plan) {
  std::vector<ParallelismRecord> records;
  for (const AskedParallelism& form : asked) {
    ParallelismRecord& record = records.emplace_back();
    record.parallelism = form.parallelism;
    record.stage_forms = form.stage_forms;
    const auto part = std::find_if(parts.begin(), parts.end(), [&](const SpacePart& some) {
      return some.parallelism == form.parallelism && some.stage_forms == form.stage_forms;
    });
    if (part == parts.end()) {
      record.reason = std::get<NoGroups>(form.inputs).reason;
      continue;
    }
    record.iteration = part->iteration;
    record.lower_bound = part->lower_bound;
    record.shape = part->shape;
    record.missing = std::min(part->missing, Bytes{kMaxCount});
    const bool is_plan = is_best(*part);
    record.reason =
        text_of(ParallelismReason{.kind = is_plan ? ParallelismOutcomeKind::IsPlan : part->outcome,
                                  .plan = of_plan,
                                  .found = part->iteration,
                                  .lower_bound = part->lower_bound});
  }
  return records;
}

void merge_schedules(PlanDocument& document, const std::vector<SpacePart>& parts,
                     const IsBestPart& is_best) {
  const Duration of_plan = document.prediction.iteration;
  for (std::size_t i = 0; i < document.schedules.size(); ++i) {
    ScheduleRecord& record = document.schedules[i];
    const ScheduleRecord own = record;
    // Whether nothing is known of some part.
    bool is_open = false;
    for (const SpacePart& part : parts) {
      if (is_best(part)) continue;
      const bool has_record = i < part.schedules.size();
      const std::optional<Duration>& bound =
          has_record ? part.schedules[i].lower_bound : part.lower_bound;
      is_open = is_open || (!has_record && !part.lower_bound &&
                            part.outcome != ParallelismOutcomeKind::NoneFits);
      if (bound && (!record.lower_bound || *bound < *record.lower_bound)) {
        // A family without a bound of its own has plans of this part.
        record.lower_bound = bound;
      }
      if (!has_record || !part.schedules[i].iteration) continue;
      if (record.iteration && *record.iteration <= *part.schedules[i].iteration) continue;
      record.iteration = part.schedules[i].iteration;
      record.shape = part.schedules[i].shape;
      record.missing = {};
    }
    if (is_open) record.lower_bound.reset();
    const bool is_alone = document.schedules.size() == 1;
    if (is_alone) record.lower_bound = document.prediction.lower_bound;
    if (record == own) continue;
    FamilyReason reason{.kind = FamilyOutcomeKind::NotSearched,
                        .plan = of_plan,
                        .lower_bound = record.lower_bound,
                        .bubble = document.prediction.bubble_fraction};
    if (record.iteration) {
      reason.kind = FamilyOutcomeKind::Found;
      reason.found = *record.iteration;
    }
    if (record.family == recorded_family(document.plan.family)) {
      reason.kind = FamilyOutcomeKind::IsPlan;
    }
    record.reason = text_of(reason);
  }
}

}  // namespace dapple::planner
