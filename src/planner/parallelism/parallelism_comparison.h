// The search through the parts of the space, in which plans have other forms of parallelism.
#pragma once

#include <optional>
#include <set>
#include <variant>
#include <vector>

#include "dapple/planner/parallelism/asked_parallelisms.h"
#include "dapple/planner/request/plan_restriction.h"
#include "dapple/planner/request/planner_options.h"
#include "dapple/planner/result/infeasible.h"
#include "dapple/planner/result/made_plan.h"
#include "dapple/profile/parallelism.h"
#include "planner/parallelism/part_progress.h"
#include "planner/parallelism/space_part.h"
#include "planner/request/asked_families.h"
#include "planner/request/stop_question.h"

namespace dapple::planner {

/// Makes a plan of the parallelism that the devices of `context` have, for a target runtime if
/// there is a restriction.
std::variant<MadePlan, Infeasible> plan_as_restricted(
    const PlanningContext& context, const std::optional<PlanRestriction>& restriction);

/// Compares the forms of parallelism that are asked for: bounds each by its work, makes a first
/// plan of those that may have the fastest one, and searches them from the fastest first plan on,
/// each for plans faster than those before. Sets of forms that stages may have come first where
/// they have the plans of several forms, and otherwise last.
class ParallelismComparison {
 public:
  /// Compares the forms `among` some, or all where that is null.
  ParallelismComparison(const PlanningContext& context,
                        const std::optional<PlanRestriction>& restriction,
                        const std::set<Parallelism>* among)
      : context_(context),
        restriction_(restriction),
        among_(among),
        is_stopped_(context.progress),
        progress_(context.progress) {}

  std::variant<MadePlan, Infeasible> run();

 private:
  void take_parts();
  void take_plan_of_one_kind();
  PlannerOptions options_to_look_ahead() const;
  void sort_by_first_plans();
  Duration fastest_first_plan() const;
  void look_ahead();
  void make_first_plans(DappleSteps steps);
  void begin(const SpacePart& part);
  void take_plan_of_other_layers(SpacePart& part) const;
  PlanningContext context_to_look_ahead(SpacePart& part, const PlannerOptions& options,
                                        Duration fastest);
  /// Whether nothing but the fastest plan and what is proven of the others is asked for.
  bool only_fastest_counts() const {
    return !restriction_ && context_.pool == nullptr && !asks_for_families(context_.options);
  }
  bool is_of_mixed(const SpacePart& part) const;
  bool has_first_plan_in_mixed(const SpacePart& part) const;
  bool is_left_to_diagrams(const SpacePart& part, Duration fastest) const;
  bool is_worth_searching_in_front(const SpacePart& mixed) const;
  void search_mixed_in_front();
  void search(SpacePart& part);
  void settle_mixed_plan();
  void take(SpacePart& part, MadePlan made);
  void take(SpacePart& part, Infeasible infeasible);
  void start_from_best_uniform();
  void renew_baselines();
  void keep_plans();
  MadePlan finish();
  Infeasible explain();
  SpacePart* part_of(const Parallelism& form, const std::vector<Parallelism>& stage_forms);
  PlanningContext context_of(const SpacePart& part, const PlannerOptions& options);
  void leave_out_unused_forms();
  bool is_best(const SpacePart& part) const {
    return part.parallelism == best_parallelism_ && part.stage_forms == best_stage_forms_;
  }

  const PlanningContext context_;
  const std::optional<PlanRestriction>& restriction_;
  const std::set<Parallelism>* among_;
  StopQuestion is_stopped_;
  PartProgress progress_;
  std::vector<AskedParallelism> asked_;
  std::vector<SpacePart> parts_;
  std::optional<MadePlan> best_;
  // Those of the part of the best plan.
  Parallelism best_parallelism_;
  std::vector<Parallelism> best_stage_forms_;
  // The part whose search made the baselines.
  std::optional<Parallelism> first_searched_;
  std::optional<BaselinePlan> best_uniform_;
  std::optional<Infeasible> closest_;
};

}  // namespace dapple::planner
