// Relaxed decision diagrams: a lower bound on every plan, wherever its stages are placed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "dapple/core/indexed_vector.h"
#include "dapple/plan/bound_proof.h"
#include "dapple/search/allowance.h"
#include "dapple/search/bounds/bound.h"
#include "dapple/search/decision_diagram/diagram_check.h"
#include "dapple/search/search_problem.h"
#include "search/decision_diagram/class_stages.h"
#include "search/decision_diagram/depth_ranges.h"
#include "search/decision_diagram/prefix_completions.h"

namespace dapple::search {

class RelaxedDiagram {
 public:
  /// All arguments must outlive the diagram.
  RelaxedDiagram(const CostModel& costs, ClassStages& stages, const PrefixCompletions& completions,
                 const SearchProblem& problem, Duration threshold, Allowance& allowance);

  /// Compiles the diagram with at most `width` nodes for each state. Returns the least end of all
  /// labels that cover all layers, at most the threshold; not a bound if the allowance ends first.
  /// Adds all nodes to `nodes`, unless it is null, by falling cut, then by rising class of the
  /// devices in use.
  Duration compile(std::size_t width, std::vector<ProofNode>* nodes = nullptr);

  /// Returns what keeps the nodes from proving that no plan is below the threshold (D8), nullopt if
  /// they prove it; not an answer if the allowance ends first. O(nodes * stages in front of a node
  /// * nodes of a state).
  std::optional<DiagramFault> check(std::span<const ProofNode> nodes);

 private:
  /// A node: lower bounds on the labels of some partial plans that begin at the same cut and use
  /// the same number of devices of each device class.
  struct Node {
    BoundLabel label;
    FirstStage first;
    // The class of the first stage's devices.
    StageClassIndex devices;
    // The boundary in front of it (D6).
    BoundaryKind front = BoundaryKind::Any;
    // The stages that share servers, this one the first of them.
    ClassStages::SharedServers shared = 0;
  };
  /// The nodes of one state.
  using Nodes = std::vector<Node>;
  /// The stages that end at one cut on devices of a class, in front of nodes of one state.
  struct Extension {
    CutIndex cut;
    StageClassIndex devices;
    AllocationClassIndex used_after;
    const StageOptions& stages;
    BoundaryKind front = BoundaryKind::Any;
  };
  /// Nodes behind a stage, with the boundaries to them.
  struct Reached {
    Nodes nodes;
    std::vector<const BoundaryBound*> boundaries;
  };

  /// A given node, and which of its figures a partial plan has that it stands for.
  struct GivenNode {
    Node node;
    std::size_t position = 0;
    std::uint32_t attained = 0;
  };
  /// The nodes of a diagram that is checked, not compiled.
  struct Given {
    // By cut, then devices in use.
    IndexedVector<CutIndex, IndexedVector<AllocationClassIndex, std::vector<GivenNode>>> states;
    std::optional<DiagramFault> fault;
  };

  void go_through(std::vector<ProofNode>* nodes);
  std::optional<std::size_t> impossible_figure(const ProofNode& proven) const;
  Node node_of(const ProofNode& proven) const;
  // Far above the devices of any server, in the units of SharedServers.
  static constexpr ClassStages::SharedServers kMostShared = std::int64_t{1} << 50;
  static constexpr std::size_t kFigures = 9;
  static constexpr std::uint32_t kAllFigures = (std::uint32_t{1} << kFigures) - 1;
  static std::uint32_t equal_figures(const Node& a, const Node& b);
  ProofNode proof_node(CutIndex cut, AllocationClassIndex used, const Node& node) const;
  bool take(std::span<const ProofNode> nodes);
  void find_given(CutIndex cut, AllocationClassIndex used, const Node& node);
  void expand(CutIndex cut, AllocationClassIndex used, const Nodes& nodes,
              ClassStages::Boundaries& boundaries);
  bool has_stage(CutIndex cut, StageClassIndex devices, AllocationClassIndex used_after);
  void extend(const Reached& reached, const Extension& extension);
  void extend_by(const StageOption& stage, CutIndex begin, const Reached& reached,
                 const Extension& extension);
  void extend_one(const Node* behind, const BoundaryBound* boundary,
                  const PrefixCompletions::PrefixCompletion* front, const StageBound& stage,
                  CutIndex begin, const Extension& extension);
  void insert(CutIndex cut, AllocationClassIndex used, const Node& node);
  bool may_stand_for(const Node& a, const Node& b) const;
  bool dominates(const Node& a, const Node& b) const;
  bool is_no_slower_behind(const Node& a, const Node& b) const;
  Node merged(const Node& a, const Node& b) const;

  ClassStages& stages_;
  const PrefixCompletions& completions_;
  const SearchProblem& problem_;
  std::int64_t micro_batches_;
  CutIndex end_of_model_;
  Duration threshold_;
  Allowance& allowance_;
  Duration least_;
  std::size_t width_ = 1;
  // By cut, then devices in use.
  IndexedVector<CutIndex, IndexedVector<AllocationClassIndex, Nodes>> states_;
  // Where nodes are checked; otherwise missing.
  std::optional<Given> given_;
};

}  // namespace dapple::search
