// Relaxed and restricted decision diagrams over all plans of one micro-batch size, for problems
// that are too large for the exact search: a bound on all plans, and good plans.
//
// Source: Bergman, Cire, van Hoeve and Hooker, "Discrete optimization with decision diagrams"
// (INFORMS J. Comput. 28(1), 2016), for a diagram of limited width whose nodes are merged (relaxed)
// or dropped (restricted); Christofides, Mingozzi and Toth, "State-space relaxation procedures for
// the computation of bounds to routing problems" (Networks 11, 1981), for states that do not say
// which devices are in use, only how many. A layer of the diagram is a cut, a state the devices
// that the stages behind the cut use, and a node of a state a label of bound.h. The proofs are in
// docs/bounds.md, section 5.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "dapple/core/parallel.h"
#include "dapple/core/quantity.h"
#include "dapple/plan/bound_proof.h"
#include "dapple/search/allowance.h"
#include "dapple/search/decision_diagram/device_order.h"
#include "dapple/search/decision_diagram/diagram_check.h"
#include "dapple/search/placement/placement_space.h"
#include "dapple/search/placement/spread_reductions.h"
#include "dapple/search/search_problem.h"
#include "dapple/topology/topology.h"

namespace dapple::search {

/// The cuts at which stages may begin.
enum class Cuts : std::uint8_t {
  All,
  /// Some 200 cuts between parts of equal work. Bounds are then of such plans alone.
  Some,
};

/// The diagrams of one problem below one threshold.
class DecisionDiagram {
 public:
  /// The profile, the topology and the problem must outlive the diagram. Only plans whose bound is
  /// below `threshold` are of interest. The limits are of all that the diagram does and keeps; a
  /// step is counted for each stage that is put in front of a label or behind a completion
  /// function. `reductions` are of the topology, and spare diagrams that share them most of the
  /// time that it takes to make them; if null, the diagram makes its own.
  DecisionDiagram(const ModelProfile& profile, const Topology& topology,
                  const SearchProblem& problem, Duration threshold, const Allowance::Limits& limits,
                  Cuts cuts = Cuts::All,
                  std::shared_ptr<const SpreadReductions> reductions = nullptr);
  ~DecisionDiagram();

  /// Returns the number of states at a cut: the numbers of devices of each device class that may be
  /// in use, INT64_MAX if it is larger. O(device classes).
  static std::int64_t states_at_cut(const PlacementSpace& placements);

  /// Lower bound on every plan of a problem from the work alone (P1). O(layers + devices).
  static Duration bound_of_work(const ModelProfile& profile, const Topology& topology,
                                const SearchProblem& problem);

  /// Lower bound on every plan, from the work and the completion functions alone; at most the
  /// threshold.
  Duration root_bound() const;

  /// Requires: Cuts::All. Compiles a relaxed diagram with at most `width` nodes for each state, and
  /// returns a lower bound on every plan, whatever its placement: the least end of all labels that
  /// cover all layers, at most the threshold. If the allowance ends first, returns root_bound().
  /// O(cuts * states * stages in front of a state * width^2).
  /// Adds the nodes of the diagram to `nodes`, unless it is null.
  Duration relaxed_bound(std::size_t width, std::vector<ProofNode>* nodes = nullptr);

  /// Requires: Cuts::All. Checks whether the nodes prove that no plan is below the threshold (D8),
  /// in one pass over all stages in front of each of them. Where the root bound proves it, nodes
  /// prove nothing more, and none must be given. O(nodes * stages in front of a node * nodes of a
  /// state).
  DiagramCheck check(std::span<const ProofNode> nodes);

  /// Requires: Cuts::All. Goes through all paths of the relaxed diagram without merging, and
  /// returns a lower bound on every plan, at most the threshold; never below that of
  /// relaxed_bound(). If the allowance ends first, returns root_bound(). Exponential. Idle threads
  /// help, if there may be any; neither the bound nor the work depends on them.
  Duration bound_of_paths(IdleThreads* idle = nullptr);

  /// Compiles a restricted diagram of plans whose stages have consecutive devices of an order of
  /// all of them, with at most `width` nodes for each state, and returns the plan with the least
  /// bound of each number of stages that it holds, by rising bound. Devices that precede those in
  /// use may stay idle up to the beginning of a server or of a kind. If the allowance ends first,
  /// there are no plans.
  std::vector<Candidate> restricted_plans(std::size_t width, const DeviceOrder& order);

  /// Whether the allowance has ended.
  bool is_over() const;
  /// Steps so far.
  std::int64_t work() const;

 private:
  class Diagram;
  std::unique_ptr<Diagram> diagram_;
};

}  // namespace dapple::search
