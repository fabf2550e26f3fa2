// What the commands that search for plans have in common: their inputs, the search as the options
// ask for it, and the document of the plan that was found.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "app/request/plan_request.h"
#include "dapple/plan/bound_proof.h"
#include "dapple/plan/document.h"
#include "dapple/plan/pins.h"
#include "dapple/plan/request.h"
#include "dapple/plan/runtime.h"
#include "dapple/planner/request/plan_restriction.h"
#include "dapple/planner/request/planner_options.h"
#include "dapple/planner/result/infeasible.h"
#include "dapple/planner/result/made_plan.h"
#include "dapple/profile/model_profile.h"
#include "dapple/topology/topology.h"

namespace dapple::app {

/// The model and the topology of a search.
struct SearchInputs {
  ModelProfile profile;
  /// The same with half the launch floors, for --explain, if the profile is an estimate.
  std::optional<ModelProfile> launched_sooner;
  TopologyDescription topology;
  /// The runtime, whose memory the profile and the topology have.
  std::optional<Runtime> runtime;
  std::vector<std::string> warnings;
  /// Which forms the target cannot run and what keeps them, which is among the warnings; may be
  /// empty.
  std::string left_out = {};
};

/// Reads the inputs that a request names. Throws Error(BadInput), Error(Environment) and, for
/// options that the files do not suit, Error(Usage).
SearchInputs load_inputs(const PlanCommandRequest& request);

/// Throws Error(Usage) if neither the request nor the profile says the global batch size.
std::int64_t global_batch_of(const PlanCommandRequest& request, const ModelProfile& profile);

/// Throws Error(BadInput) if the profile and the topology of a request do not suit each other. The
/// error names the profile's file, or the topology's for kinds of devices without times.
void check_suited(const PlanCommandRequest& request, const ModelProfile& profile,
                  const Topology& topology, std::int64_t global_batch_size);

/// Returns the pins, which are about layers of the profile and devices of the topology. Throws
/// Error(Usage).
Pins pins_of(const PlanCommandRequest& request, const ModelProfile& profile,
             const Topology& topology);

/// Lets collectives of layers share links only where some plan that is asked for has any between
/// servers, so that requests of all others remain as they were.
void suit_contention(const ModelProfile& profile, const Topology& topology,
                     planner::PlannerOptions& planner);

/// Makes a plan. Throws Error(BadInput) with the option that a fault of the request comes from, and
/// behind it the forms that were left out if they are what is pinned.
std::variant<planner::MadePlan, planner::Infeasible> make_plan(
    const planner::PlanningContext& context,
    const std::optional<planner::PlanRestriction>& restriction, const std::string& left_out = {});

/// Makes a plan with the pins and for the runtime that a request states, of other inputs than its
/// own. Throws as check_suited(), pins_of() and make_plan() do.
std::variant<planner::MadePlan, planner::Infeasible> plan_as_requested(
    const PlanCommandRequest& request, const ModelProfile& profile, const Topology& topology,
    planner::PlannerOptions planner, planner::Progress& progress);

/// The proof of the bound of a plan, and why there is none otherwise.
struct ProofEnd {
  std::optional<ProofDocument> proof;
  std::string why_not;
};

/// Proves the bound of a complete_document() again, problem by problem.
ProofEnd prove(const PlanDocument& document, const Topology& topology,
               const std::optional<planner::PlanRestriction>& restriction,
               planner::Progress& progress);

/// Adds to a new plan's document what the planner does not know: the tool, the warnings about the
/// inputs, and why the search was stopped. Doubts about an imported profile are left out of the
/// request, as every plan file states them as warnings.
void complete_document(planner::MadePlan& made, const SearchInputs& inputs, StopReason reason,
                       std::optional<Duration> time_limit);

}  // namespace dapple::app
