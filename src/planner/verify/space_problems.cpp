#include "planner/verify/space_problems.h"

#include <fmt/format.h>

#include "planner/request/search_problems.h"
#include "planner/restricted/restricted_parts.h"

namespace dapple::planner {

std::vector<SpaceProblem> space_problems(const PlanningContext& context,
                                         const std::optional<PlanRestriction>& restriction,
                                         const std::optional<Parallelism>& parallelism) {
  std::vector<Pins> parts{context.options.pins};
  if (restriction) parts = restricted_parts(context, *restriction);
  std::vector<SpaceProblem> problems;
  for (const Pins& part : parts) {
    PlannerOptions options = context.options;
    options.pins = part;
    for (const search::SearchProblem& problem : search_problems(context.with(options))) {
      ProblemProof named{.parallelism = parallelism,
                         .stage_forms = stage_forms_of(context.profile),
                         .micro_batch_size = problem.micro_batch_size,
                         .bucket_size = problem.gradients.bucket_size};
      if (restriction) {
        named.replicas = part.replicas;
        if (restriction->own_boundaries != nullptr) named.stages = part.stages;
        named.recompute = part.recompute;
      }
      problems.push_back({std::move(named), problem});
    }
  }
  return problems;
}

bool is_same_problem(const ProblemProof& a, const ProblemProof& b) {
  return a.parallelism == b.parallelism && a.stage_forms == b.stage_forms &&
         a.replicas == b.replicas && a.stages == b.stages && a.recompute == b.recompute &&
         a.micro_batch_size == b.micro_batch_size && a.bucket_size == b.bucket_size;
}

std::string words_of(const ProblemProof& problem) {
  std::string words = fmt::format("micro-batches of {}, buckets of {}", problem.micro_batch_size,
                                  problem.bucket_size.count);
  if (problem.parallelism) words += ", " + to_text(*problem.parallelism);
  for (const Parallelism& form : problem.stage_forms) words += " or " + to_text(form);
  if (problem.replicas) {
    words += fmt::format(", {} replica{}", *problem.replicas, *problem.replicas == 1 ? "" : "s");
  }
  if (problem.stages) {
    words += fmt::format(", {} stage{}", *problem.stages, *problem.stages == 1 ? "" : "s");
  }
  if (problem.recompute) {
    words += *problem.recompute ? ", with recomputation" : ", without recomputation";
  }
  return words;
}

}  // namespace dapple::planner
