// What a plan's record says of the space that was searched: its dimensions, and what was left out.
// The planners write it, and verification writes it anew from what was asked; of a line that counts
// work it knows all but the counts.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "dapple/planner/request/planner.h"
#include "dapple/planner/request/restricted.h"
#include "dapple/profile/model_profile.h"

namespace dapple::planner {

/// Which planner a record is of, as the record says it.
inline constexpr std::string_view kExactPlanner = "exact";
inline constexpr std::string_view kDapplePlanner = "dapple";
inline constexpr std::string_view kFamiliesPlanner = "families";

// Lines of `cut`; each {} is a figure of the search.
inline constexpr const char* kCutTooLong =
    "{} of {} searches, one for each micro-batch size and way to reduce gradients, would have "
    "taken "
    "too long: nothing was searched there beyond the first plans, and the bound is that of the "
    "work "
    "alone";
inline constexpr const char* kCutPlacements =
    "placements that are not fresh, append or scatter first, and, on one kind of device, replica "
    "counts that do not make the largest share of a micro-batch smaller; the bound holds for them "
    "too, without them it is {:.2f} % higher";
inline constexpr const char* kCutNarrowed =
    "{} partial plans that looked less promising: no bound was proven";
inline constexpr const char* kCutNotSimulated =
    "{} candidates whose bound is below the best were not simulated";
inline constexpr const char* kCutShapes =
    "{}: all but {} shapes and what is near the best of them; the bound holds for the rest too";
inline constexpr const char* kCutFamily = "{}: not searched; the bound holds for it too";

// Lines without figures.
inline constexpr std::string_view kCutOrders = "orders other than gpipe, as asked";
inline constexpr std::string_view kCutPolicies =
    "placements that are not fresh, append or scatter first";
inline constexpr std::string_view kCutReplicaCounts =
    "replica counts: only those that make the largest share of a micro-batch smaller";
std::string cut_of_many_devices();
std::string cut_of_runtime(const PlanRestriction& restriction, bool only_least_depths);

inline constexpr std::string_view kBucketSizes = "sizes of gradient buckets";
/// How a warning of a search ends that ended with a gap.
inline constexpr std::string_view kGapStays = ": more time would not close the gap";
/// That warning in files of older versions, whatever the cause.
inline constexpr std::string_view kSpentBudget =
    "the search has spent its budget of work: more time would not close the gap";
/// What a search that was not stopped ended with a gap for, as far as its record says: work that
/// was spent, placements, families or whole searches that were left out. Requires: the document has
/// a request and a bound, and the gap that was asked for was not reached.
std::string cause_of_gap(const PlanDocument& document);

/// What is pinned, a line each that begins so.
inline constexpr std::string_view kCutPinned = "pinned: ";
std::vector<std::string> cuts_of_pins(const Pins& pins, const ModelProfile& profile);

/// The dimensions that each planner looks at.
std::vector<std::string> exact_dimensions(const PlannerOptions& options, bool all_placements);
std::vector<std::string> dapple_dimensions(const PlannerOptions& options);
std::vector<std::string> families_dimensions();
inline constexpr std::string_view kFamilies = "schedule families and their orders";

/// Above this many devices the DAPPLE planner does not try every number of replicas.
inline constexpr std::int32_t kFewDevices = 16;

/// By how much a plan of a family may be faster than one that takes `iteration`, in words; rounded
/// up, lest it claims too much.
std::string limit_of_family(Duration iteration, Duration lower_bound);
/// What a record says first of the family that the plan is of.
inline constexpr std::string_view kReasonOfPlan = "this plan";

/// Whether a family has a planner of its own (planner/families/), as 1F1B and GPipe have one
/// together.
bool is_beyond_1f1b(ScheduleFamily family);

/// Whether `line` is `pattern` with a number in the place of each {}.
bool is_line_of(std::string_view pattern, std::string_view line);

}  // namespace dapple::planner
