// The forms of parallelism that a request covers: what the planner chooses among.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "dapple/cost/device_groups.h"
#include "dapple/planner/request/plan_restriction.h"
#include "dapple/planner/request/planner_options.h"
#include "dapple/profile/model_profile.h"
#include "dapple/profile/parallelism.h"

namespace dapple::planner {

/// A form of parallelism that the request covers, with what a plan of that form is made from, or
/// why there is none on the topology.
struct AskedParallelism {
  Parallelism parallelism;
  /// The other forms that single stages may have; empty where all stages have one form.
  std::vector<Parallelism> stage_forms = {};
  std::variant<PlanInputs, NoGroups> inputs;
};

/// Whether every plan in which all stages have the form `one` is a plan of a set of forms too, the
/// first of which is `mixed`: `one` is among them, and all groups of the set have its size. A set
/// without other forms has none but its own plans.
bool are_plans_of_set(const Parallelism& one, const Parallelism& mixed,
                      const std::vector<Parallelism>& stage_forms);

/// Whether forms are searched in which only some layers of every stage recompute: this is asked
/// for, some layers recompute in some form, and nothing else forbids it. O(layers * variants^2).
bool searches_some_layers(const PlanningContext& context,
                          const std::optional<PlanRestriction>& restriction);

/// Returns the forms of parallelism that the options ask for, ascending: those of all layers'
/// variants up to the largest degree that is allowed, or with the pinned degree alone, with sharded
/// state, without, or both, as far as the target runtime has them. Where stages may differ, sets of
/// these forms follow that can be mixed: for each size of groups that some form has, those that
/// have it and, with more data-parallel ranks in a group, those with smaller ones. Where groups may
/// have different sizes too, sets follow of forms with any sizes: each form, by rising size, is in
/// the first one that mixing_fault() allows, whose first form has the smallest groups; all devices
/// are of one kind, each pool of interchangeable ones consists of the larger groups, and all
/// placements are tried. Forms that are
/// not `among` some are left out, unless that is null. O(variants * (layers + devices)).
std::vector<AskedParallelism> asked_parallelisms(const PlanningContext& context,
                                                 const std::optional<PlanRestriction>& restriction,
                                                 const std::set<Parallelism>* among = nullptr);

/// Returns why dapple-exec does not train every plan of a form of parallelism of a profile, or of
/// the profile of a plan in that form; empty if it does.
std::string lack_of_executor(const Parallelism& form, const ModelProfile& profile);

/// Whether dapple-exec trains plans with stages of both forms, whichever stages have them: where
/// layers share parameters, stages of both divide these alike. O(1).
bool executor_mixes(const ModelProfile& profile, const Parallelism& one, const Parallelism& other);

}  // namespace dapple::planner
