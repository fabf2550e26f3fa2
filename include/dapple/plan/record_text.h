// The sentences that a plan's file holds about its search: the space, what was left out of it, and
// why each schedule family was not chosen. Planners write them and verification expects them, so
// all of them are worded here. Files are compared byte by byte: a changed sentence is a changed
// format.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/plan/pins.h"
#include "dapple/plan/request.h"
#include "dapple/plan/schedule_family.h"
#include "dapple/profile/model_profile.h"
#include "dapple/profile/parallelism.h"

namespace dapple {

/// The names of the planners in records, beside kReschedulePlanner and the names of the baselines.
inline constexpr std::string_view kExactPlanner = "exact";
inline constexpr std::string_view kDiagramPlanner = "diagrams";
inline constexpr std::string_view kDapplePlanner = "dapple";
inline constexpr std::string_view kFamiliesPlanner = "families";
inline constexpr std::string_view kImportPlanner = "import";

/// The dimensions that are searched only on request, or on some devices.
struct FurtherDimensions {
  bool bucket_sizes = false;
  bool shares_by_speed = false;
  bool dealt_micro_batches = false;
};

/// The dimensions that each planner searches.
std::vector<std::string> exact_dimensions(bool all_placements, FurtherDimensions further);
std::vector<std::string> diagram_dimensions(FurtherDimensions further);
std::vector<std::string> dapple_dimensions(FurtherDimensions further);
std::vector<std::string> families_dimensions();
inline constexpr std::string_view kBucketSizes = "sizes of gradient buckets";
inline constexpr std::string_view kShares = "shares of replicas: equal, or by the speed of devices";
inline constexpr std::string_view kReplications =
    "micro-batches: shared by replicas, or dealt to them in turn";
inline constexpr std::string_view kFamilies = "schedule families and their orders";
/// Returns the dimension of a rescheduled plan whose order was searched.
std::string orders_of(ScheduleFamily family);

// Patterns of lines about what was left out, with a {} for each figure, and the lines themselves.
inline constexpr std::string_view kTooLongPattern =
    "{} of {} searches, one for each micro-batch size and way to reduce gradients, would have "
    "taken too long: nothing was searched there beyond the first plans, and the bound is that of "
    "the work alone";
inline constexpr std::string_view kPlacementsPattern =
    "placements that are not fresh, append or scatter first, and, on one kind of device, replica "
    "counts that do not make the largest share of a micro-batch smaller; the bound holds for them "
    "too, without them it is {:.2f} % higher";
inline constexpr std::string_view kNarrowedPattern =
    "{} partial plans that looked less promising: no bound was proven";
inline constexpr std::string_view kNotSimulatedPattern =
    "{} candidates whose bound is below the best were not simulated";
std::string shapes_pattern(ScheduleFamily family);
std::string cut_too_long(std::int64_t count, std::int64_t all);
/// Says that the bound is so many percent higher without the placements that were not tried.
std::string cut_placements(double percent);
std::string cut_narrowed(std::int64_t count);
std::string cut_not_simulated(std::int64_t count);
std::string cut_shapes(ScheduleFamily family, std::int64_t tried);

/// Returns the figures of a line, in order, if it is `pattern` with a number in the place of each
/// {}. A number ends at a space, a colon or a semicolon, or with the line.
std::optional<std::vector<double>> figures_in(std::string_view pattern, std::string_view line);

// Lines about what was left out, without figures of the search.
inline constexpr std::string_view kCutOrders = "orders other than gpipe, as asked";
inline constexpr std::string_view kCutPolicies =
    "placements that are not fresh, append or scatter first";
inline constexpr std::string_view kCutOfDiagrams =
    "plans whose stages do not have devices in the order of their numbers, and partial plans that "
    "looked less promising; the bound holds for them too";
inline constexpr std::string_view kCutDealt =
    "micro-batches dealt to replicas in turn, as not all placements are tried: the bound is that "
    "of "
    "the work alone";
inline constexpr std::string_view kCutReplicaCounts =
    "replica counts: only those that make the largest share of a micro-batch smaller";
inline constexpr std::string_view kCutOfImport = "everything but the imported plan";
inline constexpr std::string_view kCutOfReschedule =
    "stages, devices and micro-batches other than the given plan's";
inline constexpr std::string_view kCutOfBaseline =
    "everything but the best of this kind that was found";
std::string cut_of_many_devices(std::int32_t most);
std::string cut_of_family(ScheduleFamily family);
std::string cut_of_micro_batch_size(std::int64_t only);
std::string cut_of_small_micro_batches(std::int64_t smallest, std::int64_t most_micro_batches);

/// What a target runtime cannot express, beyond stages that differ in replicas or recomputation.
struct InexpressibleParts {
  std::string_view runtime = {};
  bool other_orders_of_devices = false;
  bool other_depths = false;
  bool some_boundaries = false;
};
std::string cut_of_runtime(const InexpressibleParts& parts);
/// Returns a text of a plan for the target, as named by --for, as files of older versions have it:
/// they name PyTorch's runtime instead of torchtitan.
std::string with_older_runtime(std::string text, std::string_view target);

/// Returns the reason why a form has no groups as files of older versions have it: "there are 1
/// node".
std::string with_older_count(std::string text);

/// Returns one line for each pin; is_cut_of_pin() recognizes them.
std::vector<std::string> cuts_of_pins(const Pins& pins, const ModelProfile& profile);
bool is_cut_of_pin(std::string_view line);

/// What came of a schedule family.
enum class FamilyOutcomeKind : std::uint8_t {
  /// The plan is of this family.
  IsPlan,
  /// Its best plan is as fast as the plan, or slower.
  Found,
  /// GPipe is 1F1B with all micro-batches in flight, and was searched there.
  SearchedAs1F1B,
  /// The bound shows that a search would not pay.
  NotSearched,
  Stopped,
  /// It is proven that no plan fits memory.
  NoneFits,
  NoneFound,
  NoneFoundThatFits,
  NoneFoundThatRuns,
};
struct FamilyReason {
  FamilyOutcomeKind kind{};
  /// The iterations of the plan and of the best plan of the family, where one was found.
  Duration plan = {};
  Duration found = {};
  /// The bound of the family, where the reason names it.
  std::optional<Duration> lower_bound = {};
  /// The bubble of the plan, where the family was not searched.
  double bubble = 0;
  /// How many times as many messages the best plan sends, because devices hold several stages.
  std::int64_t messages = 1;
};
/// Returns in a few words why the plan is of this family or not. By how much a plan of the family
/// may be faster is rounded up, so that the claim stays valid.
std::string text_of(const FamilyReason& reason);

/// What came of a form of parallelism.
enum class ParallelismOutcomeKind : std::uint8_t {
  /// The plan is of this form.
  IsPlan,
  /// Its best plan is as fast as the plan, or slower.
  Found,
  /// The bound of the work shows that a search would not pay.
  NotSearched,
  Stopped,
  /// It is proven that no plan fits memory.
  NoneFits,
  NoneFound,
};
struct ParallelismReason {
  ParallelismOutcomeKind kind{};
  /// The iterations of the plan and of the best plan of this form, where one was found.
  Duration plan = {};
  std::optional<Duration> found = {};
  std::optional<Duration> lower_bound = {};
};
/// Returns in a few words why the plan is of this form of parallelism or not.
std::string text_of(const ParallelismReason& reason);
/// Returns the same as files of older versions have it, which state whole percents.
std::string older_text_of(const ParallelismReason& reason);

/// Returns the forms of parallelism that no plan has that is made from this profile, with state
/// sharded in this way and, where `mixes_forms`, stages in different forms or, where
/// `mixes_group_sizes`, on groups of different sizes: no lower bound holds for plans that use them.
std::string outside_space(const ModelProfile& profile, Sharding sharding, bool mixes_forms,
                          bool mixes_group_sizes = false);

/// Returns what to add to that on devices of several kinds.
std::string shares_outside_space(Shares shares);

/// Returns what the space does not contain of layers that recompute parts.
std::string recomputation_outside_space(SelectableLayers searched);

/// Says that plans of this form of parallelism or, where `is_mixed`, with any of several forms in
/// each stage, of which this is one, were not searched completely.
std::string cut_of_parallelism(const Parallelism& parallelism,
                               const std::vector<Parallelism>& stage_forms);

}  // namespace dapple
