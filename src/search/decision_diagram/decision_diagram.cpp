#include "dapple/search/decision_diagram/decision_diagram.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "search/decision_diagram/class_stages.h"
#include "search/decision_diagram/prefix_completions.h"
#include "search/decision_diagram/relaxed_diagram.h"
#include "search/decision_diagram/relaxed_tree.h"
#include "search/decision_diagram/restricted_diagram.h"

namespace dapple::search {

class DecisionDiagram::Diagram {
 public:
  Diagram(const ModelProfile& profile, const Topology& topology, const SearchProblem& problem,
          Duration threshold, const Allowance::Limits& limits, Cuts cuts,
          std::shared_ptr<const SpreadReductions> reductions)
      : costs_(profile, topology),
        problem_(problem),
        threshold_(threshold),
        allowance_(limits),
        placements_(topology, problem.pins.in_order, other_shares(costs_, problem)) {
    root_bound_ = std::min(threshold, bound_of_work(profile, topology, problem));
    if (root_bound_ == threshold || !has_room(limits)) return;
    stages_.emplace(costs_, placements_, problem, threshold, allowance_, cuts,
                    std::move(reductions));
    completions_.emplace(costs_, *stages_, problem, threshold, allowance_);
    if (!allowance_.is_over()) root_bound_ = std::max(root_bound_, completions_->least());
  }

  Duration root_bound() const { return root_bound_; }

  Duration relaxed_bound(std::size_t width, std::vector<ProofNode>* nodes) {
    if (!can_compile()) return root_bound_;
    const Duration bound =
        RelaxedDiagram(costs_, *stages_, *completions_, problem_, threshold_, allowance_)
            .compile(width, nodes);
    return allowance_.is_over() ? root_bound_ : std::max(root_bound_, bound);
  }

  DiagramCheck check(std::span<const ProofNode> nodes) {
    if (!can_compile()) {
      if (root_bound_ < threshold_) return {};
      if (nodes.empty()) return {.is_finished = true};
      return {.is_finished = true, .fault = DiagramFault{.kind = DiagramFault::Kind::NotLeast}};
    }
    std::optional<DiagramFault> fault =
        RelaxedDiagram(costs_, *stages_, *completions_, problem_, threshold_, allowance_)
            .check(nodes);
    return {.is_finished = fault.has_value() || !allowance_.is_over(), .fault = fault};
  }

  Duration bound_of_paths(IdleThreads& idle) {
    if (!can_compile() || problem_.any_order) return root_bound_;
    const Duration bound =
        RelaxedTree(costs_, *stages_, *completions_, problem_, threshold_, allowance_).search(idle);
    return allowance_.is_over() ? root_bound_ : std::max(root_bound_, bound);
  }

  std::vector<Candidate> restricted_plans(std::size_t width, const DeviceOrder& order) {
    if (!can_compile()) return {};
    return RestrictedDiagram(costs_, *stages_, *completions_, problem_, threshold_, allowance_,
                             order)
        .compile(width);
  }

  const Allowance& allowance() const { return allowance_; }

 private:
  bool has_room(const Allowance::Limits& limits) const {
    return AllocationClasses::least_kept(costs_, placements_, problem_.micro_batch_size) <=
           limits.kept;
  }
  bool can_compile() const {
    return completions_.has_value() && root_bound_ < threshold_ && !allowance_.is_over();
  }

  const CostModel costs_;
  const SearchProblem& problem_;
  Duration threshold_;
  Allowance allowance_;
  PlacementSpace placements_;
  // Missing if the work alone closes the problem, or where there is no room.
  std::optional<ClassStages> stages_;
  std::optional<PrefixCompletions> completions_;
  Duration root_bound_;
};

DecisionDiagram::DecisionDiagram(const ModelProfile& profile, const Topology& topology,
                                 const SearchProblem& problem, Duration threshold,
                                 const Allowance::Limits& limits, Cuts cuts,
                                 std::shared_ptr<const SpreadReductions> reductions)
    : diagram_(std::make_unique<Diagram>(profile, topology, problem, threshold, limits, cuts,
                                         std::move(reductions))) {}
DecisionDiagram::~DecisionDiagram() = default;

std::int64_t DecisionDiagram::states_at_cut(const PlacementSpace& placements) {
  return AllocationClasses::count(placements);
}

Duration DecisionDiagram::bound_of_work(const ModelProfile& profile, const Topology& topology,
                                        const SearchProblem& problem) {
  const CostModel costs(profile, topology);
  return PrefixBound(costs, problem.micro_batch_size, problem.global_batch_size).work_alone();
}

Duration DecisionDiagram::root_bound() const {
  return diagram_->root_bound();
}
Duration DecisionDiagram::relaxed_bound(std::size_t width, std::vector<ProofNode>* nodes) {
  return diagram_->relaxed_bound(width, nodes);
}
DiagramCheck DecisionDiagram::check(std::span<const ProofNode> nodes) {
  return diagram_->check(nodes);
}
Duration DecisionDiagram::bound_of_paths(IdleThreads* idle) {
  IdleThreads none;
  return diagram_->bound_of_paths(idle == nullptr ? none : *idle);
}
std::vector<Candidate> DecisionDiagram::restricted_plans(std::size_t width,
                                                         const DeviceOrder& order) {
  return diagram_->restricted_plans(width, order);
}
bool DecisionDiagram::is_over() const {
  return diagram_->allowance().is_over();
}
std::int64_t DecisionDiagram::work() const {
  return diagram_->allowance().work();
}

}  // namespace dapple::search
