#include "dapple/plan/warning_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "dapple/core/error.h"

namespace dapple {
namespace {

/// The end of the warning that a search ended with a gap.
constexpr std::string_view kGapStays = ": more time would not close the gap";

double gibibytes(Bytes size) {
  return static_cast<double>(size.count) / (std::int64_t{1} << 30);
}

std::string range(std::int64_t from, std::int64_t to) {
  return from == to ? fmt::format("{}", from) : fmt::format("{} to {}", from, to);
}

std::string limit_text(double seconds) {
  return fmt::format("stopped by --time-limit {}", seconds);
}

std::string limit_text(Duration time_limit) {
  return limit_text(static_cast<double>(time_limit.ns) / kNanosecondsPerSecond);
}

std::string stop_text(StopReason reason, std::optional<Duration> time_limit) {
  return reason == StopReason::Signal ? "interrupted" : limit_text(time_limit.value_or(Duration{}));
}

std::string_view idle_text(WhyIdle why) {
  switch (why) {
    case WhyIdle::NotSearched:
      return "the plan does not use them";
    case WhyIdle::NoGainAsPinned:
      return "no plan that was found with what is pinned gains from them";
    case WhyIdle::NoGain:
      return "no plan that was found gains from them";
  }
  throw Bug("devices are idle for no reason");
}

}  // namespace

std::string warning_of(const ScaledBatches& batches) {
  return fmt::format(
      "{} of {} stages work on {} samples at a time, but the profile was measured at {}: their "
      "times are scaled, and real kernels do not scale that far",
      batches.stages, batches.all_stages, range(batches.fewest, batches.most),
      range(batches.fewest_measured, batches.most_measured));
}

std::string warning_of_idle_devices(std::int64_t idle, std::int64_t all, WhyIdle why) {
  return fmt::format("{} of {} devices stay idle: {}", idle, all, idle_text(why));
}

std::string warning_of_halves(std::size_t halved, std::size_t trained) {
  if (halved == trained) {
    return "the profile does not measure the parts of its layers' backwards: each counts as half";
  }
  return fmt::format(
      "the profile does not measure the parts of the backward of {} of {} layers with parameters: "
      "each counts as half",
      halved, trained);
}

std::string warning_of_speedup(double speedup, std::size_t devices) {
  return fmt::format(
      "the plan is {:.4g} times as fast as one device, and has {}: the profile has samples of "
      "small batches cost less than those of large ones",
      speedup, devices);
}

std::string warning_of(const FullestGpu& gpu) {
  const Bytes slack = gpu.limit - gpu.peak;
  const std::int64_t needed = std::max<std::int64_t>(1, gpu.peak.count);
  return fmt::format(
      "nothing of the memory of {} is reserved for driver, framework and what they leave unused: "
      "{} has {:.3g} GiB to spare, {:.1f} % of what it needs, where measured peaks were 23 to 34 % "
      "above such predictions",
      gpu.kind, gpu.name, gibibytes(slack),
      100 * static_cast<double>(slack.count) / static_cast<double>(needed));
}

std::string warning_of_missing(Bytes missing) {
  return fmt::format(kMissingPattern, missing.count);
}

std::string warning_of_stop(StopReason reason, std::optional<Duration> time_limit,
                            PlannerKind planner) {
  return fmt::format("the search was {} before {}", stop_text(reason, time_limit),
                     planner == PlannerKind::Exact ? "the gap was closed" : "it was through");
}

std::string warning_of_stopped_comparison(StopReason reason, std::optional<Duration> time_limit) {
  return fmt::format(
      "the comparison of plans on devices of varying speed was {} before it was through",
      stop_text(reason, time_limit));
}

std::string with_rounded_limit(std::string warning, Duration time_limit) {
  const std::string exact = limit_text(time_limit);
  const std::size_t place = warning.find(exact);
  if (place == std::string::npos) return warning;
  const double rounded = static_cast<double>(time_limit.ns) * 1e-9;
  return warning.replace(place, exact.size(), limit_text(rounded));
}

std::string warning_of_reschedule_stop(StopReason reason) {
  return fmt::format("the search for the best order or depths was {} before it was through",
                     reason == StopReason::Signal ? "interrupted" : "stopped by --time-limit");
}

std::string warning_of(const GapCauses& causes) {
  std::vector<std::string> texts;
  if (causes.most_devices) {
    texts.push_back(
        fmt::format("on more than {} devices nothing was searched beyond the first plans",
                    *causes.most_devices));
  }
  if (causes.were_searches_too_long) {
    texts.emplace_back("some of the searches would have taken too long");
  }
  if (causes.is_budget_spent) texts.emplace_back("the search has spent its budget of work");
  if (causes.is_bound_relaxed) {
    texts.emplace_back(
        "the bound counts the least for where stages are placed and for part of what their depths "
        "cost");
  }
  std::vector<std::string> untried;
  if (causes.untried_placements) untried.emplace_back("placements");
  if (!causes.untried_families.empty()) {
    std::vector<std::string_view> names;
    for (const ScheduleFamily family : causes.untried_families) names.push_back(to_string(family));
    untried.push_back(fmt::format("plans of {}", fmt::join(names, ", ")));
  }
  if (!untried.empty()) {
    texts.push_back(fmt::format("the bound holds also for {} that were not tried",
                                fmt::join(untried, " and ")));
  }
  return fmt::format("{}{}", fmt::join(texts, ", and "), kGapStays);
}

bool is_gap_warning(std::string_view warning) {
  return warning.ends_with(kGapStays);
}

std::string warning_of_missing_variant(const Parallelism& parallelism, const std::string& layer) {
  return fmt::format("{} is not planned: layer {} has no variant for it", to_text(parallelism),
                     layer);
}

}  // namespace dapple
