// The fastest plans of other layouts than the chosen one: other degrees of parallelism, other
// sharding, other numbers of stages. Each is found by a search of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/commands/plan/planning.h"
#include "app/commands/progress_line.h"
#include "app/request/plan_request.h"
#include "dapple/command_line/console.h"
#include "dapple/command_line/files.h"
#include "dapple/io/documents/result_document.h"
#include "dapple/plan/document.h"
#include "dapple/planner/request/plan_restriction.h"
#include "dapple/planner/request/planner_options.h"
#include "dapple/report/show.h"
#include "dapple/topology/topology.h"

namespace dapple::app {

/// A plan of another layout.
struct Alternative {
  PlanDocument document;
  /// What --pin takes to fix the layout, such as "stages=8" and "tensor=4".
  std::vector<std::string> pins;
  /// What --shard takes, if the request leaves it open.
  std::string sharding;

  /// Returns the options, such as "--pin stages=8 --pin tensor=4 --shard optimizer".
  std::string options() const;
};

struct AlternativesEnd {
  /// By rising iteration.
  std::vector<Alternative> found;
  /// Whether a signal ended the searches early.
  bool was_interrupted = false;
};

/// What alternatives are sought for.
struct ChosenPlan {
  const PlanDocument& document;
  const SearchInputs& inputs;
  const Topology& topology;
  /// The options that the plan was searched with.
  const planner::PlannerOptions& planner;
  const std::optional<planner::PlanRestriction>& restriction;
};

/// Returns the fastest plans that were found of at most `count` other layouts. A layout is the
/// degrees of tensor, context and expert parallelism, the sharding of state, the parts that are
/// recomputed, and a number of stages that divides that of the devices; it is within what was asked
/// for. The DAPPLE planner makes a plan of each layout; those whose plans are the fastest are then
/// searched as asked for, to a gap of 0.1 % where they reach it. Forms of parallelism that provably
/// have no plan as fast as what was found are passed over.
AlternativesEnd find_alternatives(const ChosenPlan& chosen, std::size_t count,
                                  std::optional<Duration> time_limit, ProgressLine& progress);

/// Adds the files that write_alternatives() may write, as add_folder_outputs() does.
void add_alternative_outputs(const std::string& directory, std::int64_t count,
                             std::vector<command_line::NamedPath>& outputs);

/// Adds each alternative as a plan file of its own, alternative-1.plan.json, the fastest first. The
/// directory is made if necessary.
void write_alternatives(const std::string& directory, const AlternativesEnd& alternatives,
                        command_line::Results& results);

/// Returns the alternatives for programs, with their files in the directory if they are written,
/// and those that are a tie with the plan.
std::vector<io::AlternativeResult> alternative_results(const AlternativesEnd& alternatives,
                                                       const PlanDocument& plan,
                                                       const std::optional<std::string>& directory);

/// Returns a table of the alternatives beside the plan: how much slower each is, by how much it
/// provably is, what differs, and which are within the error of predictions: where the profile
/// states that of its calibration, these are a tie, and what to measure decides.
std::string alternatives_text(const AlternativesEnd& alternatives, const PlanDocument& plan,
                              const report::TextStyle& style);

}  // namespace dapple::app
