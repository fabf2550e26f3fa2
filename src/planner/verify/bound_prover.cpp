#include "planner/verify/bound_prover.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "dapple/planner/request/search_limits.h"
#include "dapple/search/exact/nic_load_bound.h"
#include "planner/one_family/exact_planner.h"
#include "planner/verify/budgeted_progress.h"

namespace dapple::planner {
namespace {

using search::DecisionDiagram;
using search::DiagramFault;

/// Widths grow by this factor, as in the planner.
constexpr std::size_t kWidening = 4;
/// The last width with quick steps: most problems are closed by one node for each state.
constexpr std::size_t kLastQuickWidth = 4;

/// Returns what kept nodes from being a proof of `bound`, in words; `given` is the one at the
/// fault's position.
std::string words_of(const DiagramFault& fault, const ProofNode& given, Duration bound) {
  switch (fault.kind) {
    case DiagramFault::Kind::Impossible: {
      constexpr std::size_t kFirstTime = 6;
      return fmt::format("expected {}, got {}",
                         fault.figure < kFirstTime ? "what a node of this problem can have"
                                                   : fmt::format("a time below {}", bound.ns),
                         figures_of(given)[fault.figure]);
    }
    case DiagramFault::Kind::Disordered:
      return "expected nodes by falling layer, then by rising number of devices, got another order";
    case DiagramFault::Kind::Missing: {
      const ProofNode& node = fault.node;
      return fmt::format(
          "expected a node for stages from layer {} on, on devices {}, with a round "
          "trip of at most {}, a span of at most {} and an end of at most {}, got "
          "none",
          node.layer, node.used, node.round_trip.ns, node.span.ns, node.end.ns);
    }
    case DiagramFault::Kind::NotLeast:
      return "expected the least figures of the plans that it stands for, got smaller ones";
    case DiagramFault::Kind::Below:
      return fmt::format("expected nodes that prove {}, got ones that prove {}", bound.ns,
                         fault.end.ns);
  }
  throw Bug("nodes are faulty in no way");
}

}  // namespace

BoundProver::BoundProver(const PlanningContext& context, std::span<const SpaceProblem> problems,
                         Duration bound)
    : context_(context),
      is_stopped_(context.progress),
      bound_(bound),
      reductions_(std::make_shared<const search::SpreadReductions>(context.topology)) {
  for (const SpaceProblem& some : problems) {
    const Duration of_work =
        DecisionDiagram::bound_of_work(context_.profile, context_.topology, some.problem);
    if (of_work < bound) open_.push_back({.some = &some, .proof = some.named});
  }
}

/// Returns the limits of one of the problems that are at work at a time.
search::Allowance::Limits BoundProver::limits(std::int64_t steps) const {
  return {.work = steps,
          .kept = {context_.options.memory_limit.count / kSearchLimits.part_of_search /
                   kSearchLimits.diagrams_in_parallel},
          .should_stop = [this] { return is_stopped_(); }};
}

/// Whether decision diagrams are of all stages of a problem: none deals its micro-batches, and each
/// replica is one device.
bool BoundProver::have_diagrams(const search::SearchProblem& problem) const {
  return !problem.may_deal && !has_larger_groups(context_.profile);
}

/// Returns the diagrams of a problem below the bound.
DecisionDiagram BoundProver::diagram_of(const OpenProblem& open, std::int64_t steps) const {
  return {context_.profile, context_.topology, open.some->problem, bound_,
          limits(steps),    search::Cuts::All, reductions_};
}

/// Tries relaxed diagrams of rising width.
void BoundProver::prove_by_diagrams(OpenProblem& open, std::int64_t steps, std::size_t last_width,
                                    bool keeps_nodes) const {
  if (!have_diagrams(open.some->problem)) return;
  DecisionDiagram diagram = diagram_of(open, steps);
  for (std::size_t width = 1; width <= last_width && !diagram.is_over(); width *= kWidening) {
    std::vector<ProofNode> nodes;
    if (diagram.relaxed_bound(width, keeps_nodes ? &nodes : nullptr) < bound_) continue;
    open.is_proven = true;
    const bool are_many = nodes.size() > kMostProofNodes / open_.size();
    open.proof.method = are_many ? ProofMethod::Diagram : ProofMethod::Nodes;
    if (are_many) {
      open.proof.width = static_cast<std::int64_t>(width);
    } else {
      open.proof.nodes = std::move(nodes);
    }
    return;
  }
}

void BoundProver::prove_by_paths(OpenProblem& open, std::int64_t steps, IdleThreads& idle) const {
  if (!have_diagrams(open.some->problem)) return;
  DecisionDiagram diagram = diagram_of(open, steps);
  open.is_proven = diagram.bound_of_paths(&idle) >= bound_;
  open.proof.method = ProofMethod::Paths;
}

/// Tries what NICs send alone. It is a part of the exact search, and of its kind of proof.
void BoundProver::prove_by_nics(OpenProblem& open, std::int64_t steps) const {
  open.is_proven =
      search::nic_load_bound(context_.profile, context_.topology, open.some->problem, bound_,
                             limits(std::min(steps, kSearchLimits.last_nic_steps))) >= bound_;
  open.proof.method = ProofMethod::Search;
}

/// Repeats the exact search for a plan below the bound.
void BoundProver::search_again(OpenProblem& open, std::int64_t& budget) {
  const search::SearchProblem& problem = open.some->problem;
  PlannerOptions options = context_.options;
  options.micro_batch_size = problem.micro_batch_size;
  options.bucket_size = problem.gradients.bucket_size;
  options.pins = problem.pins;
  options.every_family = false;
  options.baselines = false;
  options.target_gap = {};
  BudgetedProgress progress(budget, 1 + problem.num_micro_batches() / 8, context_.progress);
  const PlanningContext context{context_.profile, context_.topology, options, &progress, bound_};
  const ExactPlans plans = plan_exactly(context, {});
  budget -= std::min(budget, progress.work());
  if (!plans.best.empty() && plans.best.front().iteration < bound_) {
    faster_ = plans.best.front().plan;
    iteration_ = plans.best.front().iteration;
    return;
  }
  open.is_proven = plans.lower_bound >= bound_;
  open.proof.method = ProofMethod::Search;
}

std::vector<BoundProver::OpenProblem*> BoundProver::still_open() {
  std::vector<OpenProblem*> some;
  for (OpenProblem& open : open_) {
    if (!open.is_proven) some.push_back(&open);
  }
  return some;
}

void BoundProver::prove(const ProofBudget& budget, bool keeps_nodes) {
  const auto each = [&](const auto& prove_one) {
    const std::vector<OpenProblem*> open = still_open();
    IdleThreads idle;
    const auto prove_unless_stopped = [&](std::size_t i) {
      if (!is_stopped_()) prove_one(*open[i], static_cast<std::int64_t>(open.size()), idle);
    };
    parallel_for(open.size(), context_.options.threads, prove_unless_stopped, &idle);
  };
  each([&](OpenProblem& open, std::int64_t, IdleThreads&) {
    prove_by_diagrams(open, budget.quick_steps, kLastQuickWidth, keeps_nodes);
  });
  each([&](OpenProblem& open, std::int64_t, IdleThreads&) { prove_by_nics(open, budget.steps); });
  each([&](OpenProblem& open, std::int64_t count, IdleThreads&) {
    prove_by_diagrams(open, budget.steps / count, kSearchLimits.last_width, keeps_nodes);
  });
  each([&](OpenProblem& open, std::int64_t count, IdleThreads& idle) {
    prove_by_paths(open, budget.steps / count, idle);
  });
  std::int64_t searched = budget.searched;
  for (OpenProblem* const open : still_open()) {
    if (is_stopped_() || searched <= 0 || faster_) return;
    search_again(*open, searched);
  }
}

/// Checks the proof of a problem that is number `position` of the file.
std::vector<Violation> BoundProver::check_one(OpenProblem& open, std::size_t position,
                                              IdleThreads& idle) const {
  const std::string place = fmt::format("/problems/{}", position);
  if (!have_diagrams(open.some->problem)) {
    return {{place + "/method",
             "expected \"search\", as diagrams do not have all stages, got another"}};
  }
  DecisionDiagram diagram = diagram_of(open, kSearchLimits.diagram_steps);
  if (open.proof.method == ProofMethod::Nodes) {
    const search::DiagramCheck check = diagram.check(open.proof.nodes);
    open.is_proven = check.is_proof();
    if (!check.fault) return {};
    const DiagramFault& fault = *check.fault;
    const bool is_of_node =
        fault.kind != DiagramFault::Kind::Missing && fault.kind != DiagramFault::Kind::Below;
    std::string of_nodes = place + "/nodes";
    if (is_of_node) of_nodes += fmt::format("/{}", fault.position);
    if (fault.kind == DiagramFault::Kind::Impossible) of_nodes += fmt::format("/{}", fault.figure);
    const std::vector<ProofNode>& nodes = open.proof.nodes;
    const ProofNode given = nodes.empty() ? ProofNode{} : nodes[fault.position];
    return {{std::move(of_nodes), words_of(fault, given, bound_)}};
  }
  const Duration proven = open.proof.method == ProofMethod::Paths
                              ? diagram.bound_of_paths(&idle)
                              : diagram.relaxed_bound(static_cast<std::size_t>(open.proof.width));
  open.is_proven = proven >= bound_;
  if (open.is_proven || diagram.is_over()) return {};
  return {{place, fmt::format("expected a proof of {}, got one of {}", bound_.ns, proven.ns)}};
}

std::size_t BoundProver::check(std::span<const ProblemProof> given, std::size_t first) {
  for (std::size_t i = 0; i < open_.size(); ++i) {
    OpenProblem& open = open_[i];
    if (i < given.size() && is_same_problem(given[i], open.proof)) {
      open.proof = given[i];
      continue;
    }
    const std::string got = i < given.size() ? "that of " + words_of(given[i]) : "none";
    faults_.push_back({fmt::format("/problems/{}", first + i),
                       fmt::format("expected the proof of {}, got {}", words_of(open.proof), got)});
    return i;
  }
  std::vector<std::vector<Violation>> faults(open_.size());
  IdleThreads idle;
  const auto check_unless_stopped = [&](std::size_t i) {
    if (is_stopped_()) return;
    if (open_[i].proof.method == ProofMethod::Search) {
      prove_by_nics(open_[i], kSearchLimits.last_nic_steps);
    } else {
      faults[i] = check_one(open_[i], first + i, idle);
    }
  };
  parallel_for(open_.size(), context_.options.threads, check_unless_stopped, &idle);
  std::int64_t budget = INT64_MAX;
  for (std::size_t i = 0; i < open_.size(); ++i) {
    std::move(faults[i].begin(), faults[i].end(), std::back_inserter(faults_));
    OpenProblem& open = open_[i];
    if (open.proof.method != ProofMethod::Search || open.is_proven) continue;
    if (is_stopped_() || faster_) continue;
    search_again(open, budget);
  }
  return open_.size();
}

bool BoundProver::is_proven() const {
  return std::all_of(open_.begin(), open_.end(),
                     [](const OpenProblem& open) { return open.is_proven; });
}

std::optional<ProblemProof> BoundProver::unproven() const {
  for (const OpenProblem& open : open_) {
    if (!open.is_proven) return open.some->named;
  }
  return std::nullopt;
}

std::vector<ProblemProof> BoundProver::take() {
  std::vector<ProblemProof> proofs;
  for (OpenProblem& open : open_) proofs.push_back(std::move(open.proof));
  return proofs;
}

std::optional<ProofMethod> BoundProver::furthest_method() const {
  std::optional<ProofMethod> furthest;
  for (const OpenProblem& open : open_) {
    if (open.is_proven) furthest = std::max(furthest, std::optional(open.proof.method));
  }
  return furthest;
}

}  // namespace dapple::planner
