// Proves that no plan of some search problems is below a time, by relaxed decision diagrams and,
// where these do not suffice, by the exact search; and checks such proofs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dapple/core/error.h"
#include "dapple/core/parallel.h"
#include "dapple/plan/bound_proof.h"
#include "dapple/plan/plan.h"
#include "dapple/planner/request/planner_options.h"
#include "dapple/search/allowance.h"
#include "dapple/search/decision_diagram/decision_diagram.h"
#include "dapple/search/placement/spread_reductions.h"
#include "planner/request/stop_question.h"
#include "planner/verify/space_problems.h"

namespace dapple::planner {

/// What a proof may take, in steps of diagrams, and states and simulations of searches.
struct ProofBudget {
  // The first diagrams of each problem may take these steps; most problems need few.
  std::int64_t quick_steps = 0;
  // All problems that are still open after that share these steps.
  std::int64_t steps = 0;
  // All repeated searches share these states and simulations.
  std::int64_t searched = 0;
};

class BoundProver {
 public:
  /// The context's inputs and the problems must outlive the prover. No plan below `bound` is known.
  BoundProver(const PlanningContext& context, std::span<const SpaceProblem> problems,
              Duration bound);

  /// Tries to prove the bound. `keeps_nodes` says whether the proofs are to hold nodes.
  void prove(const ProofBudget& budget, bool keeps_nodes);

  /// Checks the proofs of these problems, of which the first one is number `first` of a file.
  /// Returns the number of proofs that belong to these problems.
  std::size_t check(std::span<const ProblemProof> given, std::size_t first);

  /// Whether all problems are proven to have no plan below the bound.
  bool is_proven() const;
  /// Whether the progress has said stop.
  bool is_stopped() const { return is_stopped_(); }
  /// The first problem that is not proven; nullopt if all are.
  std::optional<ProblemProof> unproven() const;
  /// The proofs, of the problems that the work alone does not close.
  std::vector<ProblemProof> take();
  /// The faults that check() found in the proofs, with the places in their file.
  std::vector<Violation> take_faults() { return std::move(faults_); }
  /// A plan below the bound, if the search found one, and its iteration.
  const std::optional<Plan>& faster() const { return faster_; }
  Duration iteration() const { return iteration_; }
  /// The method that is furthest from checking nodes, of those that were needed; nullopt if the
  /// work suffices.
  std::optional<ProofMethod> furthest_method() const;

 private:
  /// A problem that the work alone does not close.
  struct OpenProblem {
    const SpaceProblem* some = nullptr;
    ProblemProof proof;
    bool is_proven = false;
  };

  bool have_diagrams(const search::SearchProblem& problem) const;
  search::Allowance::Limits limits(std::int64_t steps) const;
  search::DecisionDiagram diagram_of(const OpenProblem& open, std::int64_t steps) const;
  void prove_by_diagrams(OpenProblem& open, std::int64_t steps, std::size_t last_width,
                         bool keeps_nodes) const;
  void prove_by_nics(OpenProblem& open, std::int64_t steps) const;
  void prove_by_paths(OpenProblem& open, std::int64_t steps, IdleThreads& idle) const;
  void search_again(OpenProblem& open, std::int64_t& budget);
  std::vector<Violation> check_one(OpenProblem& open, std::size_t position,
                                   IdleThreads& idle) const;
  std::vector<OpenProblem*> still_open();

  const PlanningContext context_;
  StopQuestion is_stopped_;
  Duration bound_;
  std::shared_ptr<const search::SpreadReductions> reductions_;
  std::vector<OpenProblem> open_;
  std::vector<Violation> faults_;
  std::optional<Plan> faster_;
  Duration iteration_;
};

}  // namespace dapple::planner
