// The sentences of the warnings in a plan's file, like those of the record (plan/record_text.h): a
// changed sentence is a changed format.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/plan/request.h"
#include "dapple/plan/schedule_family.h"

namespace dapple {

inline constexpr std::string_view kOneDeviceWarning =
    "the speedup is over one device that had room for the model: none here has";
inline constexpr std::string_view kNoStepWarning =
    "the profile has no step_ns_per_parameter_byte: the optimizer step counts as no time";
inline constexpr std::string_view kUnlimitedMemoryWarning =
    "searched with --unlimited-memory: the plan may not fit";
inline constexpr std::string_view kNoContentionWarning =
    "simulated with --contention off: transfers do not slow each other, so real iterations may "
    "take longer";

/// Stages that work on far more or fewer samples than were measured.
struct ScaledBatches {
  std::size_t stages = 0;
  std::size_t all_stages = 0;
  /// The samples that they work on, from the fewest to the most, and those measured.
  std::int64_t fewest = 0;
  std::int64_t most = 0;
  std::int64_t fewest_measured = 0;
  std::int64_t most_measured = 0;
};
std::string warning_of(const ScaledBatches& batches);

/// Why devices stay idle.
enum class WhyIdle : std::uint8_t {
  /// No search chose the plan, so nothing is known about other plans.
  NotSearched,
  NoGainAsPinned,
  NoGain,
};
std::string warning_of_idle_devices(std::int64_t idle, std::int64_t all, WhyIdle why);

/// Says that the parts of a backward count as half of it in `halved` of the layers with parameters.
std::string warning_of_halves(std::size_t halved, std::size_t trained);

std::string warning_of_speedup(double speedup, std::size_t devices);

/// The fullest GPU of a plan, where none of its memory is reserved.
struct FullestGpu {
  std::string_view kind;
  std::string_view name;
  Bytes peak;
  Bytes limit;
};
std::string warning_of(const FullestGpu& gpu);

inline constexpr std::string_view kMissingPattern = "does not fit: {} bytes missing";
std::string warning_of_missing(Bytes missing);

/// Says what ended a search before it was through. `time_limit` is the limit that ended it.
std::string warning_of_stop(StopReason reason, std::optional<Duration> time_limit,
                            PlannerKind planner);
/// Says what ended the comparison of plans with devices that are not equally fast.
std::string warning_of_stopped_comparison(StopReason reason, std::optional<Duration> time_limit);
/// Returns one of these warnings as older files have it, in which the limit was rounded twice: a
/// minute was "60.00000000000001" seconds.
std::string with_rounded_limit(std::string warning, Duration time_limit);
/// Says what ended the search for the orders or depths of a rescheduled plan.
std::string warning_of_reschedule_stop(StopReason reason);

/// Why a search that was not stopped left a gap.
struct GapCauses {
  /// The number of devices above which nothing was searched, if that is the reason.
  std::optional<std::int32_t> most_devices = {};
  bool were_searches_too_long = false;
  bool is_budget_spent = false;
  /// Whether the bound is that of relaxed decision diagrams.
  bool is_bound_relaxed = false;
  /// What the bound also holds for, although it was not tried.
  bool untried_placements = false;
  std::vector<ScheduleFamily> untried_families = {};
};
std::string warning_of(const GapCauses& causes);
/// Whether a warning is one of these, by this or an older version.
bool is_gap_warning(std::string_view warning);
/// That warning in files of older versions, whatever the cause.
inline constexpr std::string_view kSpentBudget =
    "the search has spent its budget of work: more time would not close the gap";

/// Says that no plan has this form of parallelism, as a layer has no variant for it.
std::string warning_of_missing_variant(const Parallelism& parallelism, const std::string& layer);

}  // namespace dapple
