// Makes the proof of the lower bound that a plan states, for its file of its own.
#pragma once

#include <optional>
#include <string>

#include "dapple/plan/bound_proof.h"
#include "dapple/plan/document.h"
#include "dapple/planner/request/plan_restriction.h"
#include "dapple/planner/request/planner_options.h"
#include "dapple/topology/topology.h"

namespace dapple::planner {

struct MadeProof {
  /// Without the hash of the plan.
  ProofDocument document;
  /// The problem, in words, whose bound could not be derived again; empty if all could. Then there
  /// is no proof.
  std::string unproven = {};
  /// Whether `progress` said stop first.
  bool is_stopped = false;
};

/// Proves the bound of a plan that was searched for under 1F1B or GPipe's order, for each problem
/// of the space that was asked for: by relaxed decision diagrams of rising width, by all their
/// paths or, where these do not suffice, by the exact search for plans below the bound. Other
/// schedules have the bound of their work, or that of any order (F9), which need no data. Takes
/// about as long as the search, or until `progress` says stop. Requires: the document states a
/// bound.
MadeProof make_proof(const PlanDocument& document, const Topology& topology,
                     const std::optional<PlanRestriction>& restriction,
                     Progress* progress = nullptr);

}  // namespace dapple::planner
