// The texts of a plan's record about the space that was searched: its dimensions, and what was left
// out. The planners write them, and verification derives them anew from the request, except for the
// figures in lines that count work.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "dapple/plan/document.h"
#include "dapple/plan/pins.h"
#include "dapple/planner/request/plan_restriction.h"
#include "dapple/planner/request/planner_options.h"
#include "dapple/profile/model_profile.h"

namespace dapple::planner {

/// The names of the planners in records.
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
/// The end of the warning that a search ended with a gap.
inline constexpr std::string_view kGapStays = ": more time would not close the gap";
/// That warning in files of older versions, whatever the cause.
inline constexpr std::string_view kSpentBudget =
    "the search has spent its budget of work: more time would not close the gap";
/// Returns the warning why a search that was not stopped ended with a gap, as far as its record
/// says: its budget of work was spent, or placements, families or whole searches were left out.
/// Requires: the document has a request and a bound, and the requested gap was not reached.
std::string cause_of_gap(const PlanDocument& document);

/// Returns one line for each pin, which begins with kCutPinned.
inline constexpr std::string_view kCutPinned = "pinned: ";
std::vector<std::string> cuts_of_pins(const Pins& pins, const ModelProfile& profile);

/// The dimensions that each planner searches.
std::vector<std::string> exact_dimensions(const PlannerOptions& options, bool all_placements);
std::vector<std::string> dapple_dimensions(const PlannerOptions& options);
std::vector<std::string> families_dimensions();
inline constexpr std::string_view kFamilies = "schedule families and their orders";

/// With more devices than this, the DAPPLE planner does not try every number of replicas.
inline constexpr std::int32_t kFewDevices = 16;

/// Says by how much a plan of a family may be faster than one that takes `iteration`; rounded up,
/// so that the claim stays valid.
std::string limit_of_family(Duration iteration, Duration lower_bound);
/// The beginning of the reason in the record of the plan's own family.
inline constexpr std::string_view kReasonOfPlan = "this plan";

/// Whether `line` is `pattern` with a number in the place of each {}.
bool is_line_of(std::string_view pattern, std::string_view line);

}  // namespace dapple::planner
