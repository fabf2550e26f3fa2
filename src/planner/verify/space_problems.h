// The search problems into which the space of plans under 1F1B and GPipe's order is divided.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "dapple/plan/bound_proof.h"
#include "dapple/planner/request/plan_restriction.h"
#include "dapple/planner/request/planner_options.h"
#include "dapple/search/search_problem.h"

namespace dapple::planner {

/// A search problem, and what distinguishes it from the others of the space.
struct SpaceProblem {
  // Its names in a proof, which has no method yet.
  ProblemProof named;
  search::SearchProblem problem;
};

/// Returns the problems of one form of parallelism, in the order of a proof: all that a plan can
/// have if it is restricted, or not, as the options ask. The form is missing where forms are not
/// told apart.
std::vector<SpaceProblem> space_problems(const PlanningContext& context,
                                         const std::optional<PlanRestriction>& restriction,
                                         const std::optional<Parallelism>& parallelism);

/// Whether two proofs are of the same problem.
bool is_same_problem(const ProblemProof& a, const ProblemProof& b);

/// Returns what distinguishes a problem, such as "micro-batches of 4, buckets of 26214400, tensor
/// 2, 8 replicas, without recomputation".
std::string words_of(const ProblemProof& problem);

}  // namespace dapple::planner
