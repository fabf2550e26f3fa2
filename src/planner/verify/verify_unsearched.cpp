#include "planner/verify/verify_unsearched.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "dapple/plan/optimality.h"
#include "dapple/plan/record_text.h"
#include "dapple/plan/warning_text.h"
#include "dapple/planner/baselines/baselines.h"
#include "dapple/planner/families/reschedule.h"
#include "dapple/planner/request/warnings.h"
#include "planner/verify/expected_lines.h"

namespace dapple::planner {
namespace {

/// Checks the statement about what is outside the space; files of older versions have none.
void check_outside(Claims& claims, const PlanDocument& document) {
  const std::string& outside = document.search.outside;
  if (outside.empty()) return;
  claims.expect_text(
      "/search_space/outside",
      outside_space(document.original_profile(), sharding_of(document.plan.parallelism),
                    !document.plan.stage_forms.empty()),
      outside);
}

void check_unasked_names(Claims& claims, const PlanDocument& document) {
  for (std::size_t i = 0; i < document.baselines.size(); ++i) {
    const std::string& name = document.baselines[i].name;
    if (std::find(std::begin(kBaselineNames), std::end(kBaselineNames), name) !=
            std::end(kBaselineNames) ||
        name == kBestUniformName) {
      continue;
    }
    claims.refuse(
        fmt::format("/baselines/{}/name", i),
        fmt::format("expected one of {}, got \"{}\"", fmt::join(kBaselineNames, ", "), name));
  }
}

}  // namespace

void check_unasked(Claims& claims, const ClaimedPlan& claimed) {
  const PlanDocument& document = claimed.document;
  const SearchRecord& search = document.search;
  const Prediction& prediction = document.prediction;
  check_unasked_names(claims, document);
  check_outside(claims, document);
  if (search.planner == kDapplePlanner && prediction.lower_bound) {
    claims.refuse("/search_space/planner",
                  "expected one that proves a bound, as there is one, got \"dapple\"");
  }
  const bool is_closed = is_gap_closed(prediction);
  if (is_closed && document.schedules.empty()) {
    claims.expect("/search_space/open", std::int64_t{0}, search.open);
  }
  if (!search.complete) {
    // The warning about a gap requires that there is one.
    const auto says_stays =
        std::find_if(document.warnings.begin(), document.warnings.end(), is_gap_warning);
    if (is_closed && says_stays != document.warnings.end()) {
      claims.refuse("/warnings", fmt::format("expected none of \"{}\", as there is no gap, got it",
                                             *says_stays));
    }
  }
  if (search.complete) {
    std::vector<ExpectedLine> whole = fixed_lines(exact_dimensions(true, {}));
    whole.push_back({.text = std::string{kBucketSizes}, .may_be_missing = true});
    if (!document.schedules.empty()) whole.push_back({.text = std::string{kFamilies}});
    if (search.planner == kExactPlanner) {
      check_lines(claims, "/search_space/searched", whole, search.searched);
    }
    for (const ScheduleRecord& record : document.schedules) {
      if (!record.lower_bound || *record.lower_bound >= prediction.iteration) continue;
      if (is_planned_as_1f1b(record.family)) continue;
      claims.refuse("/search_space/complete",
                    fmt::format("expected false, as {} was not searched through, got true",
                                to_string(record.family)));
      break;
    }
  }
}

namespace {

enum class Unsearched : std::uint8_t { Imported, Rescheduled, Baseline };

/// Returns the line of the record that says what was left out, for a plan of this kind.
std::string_view cut_of(Unsearched kind) {
  switch (kind) {
    case Unsearched::Imported:
      return kCutOfImport;
    case Unsearched::Rescheduled:
      return kCutOfReschedule;
    case Unsearched::Baseline:
      return kCutOfBaseline;
  }
  throw Bug("a plan that nobody searched is of no kind");
}

/// Returns how a plan without a search was made; nothing for a plan of a planner. The DAPPLE
/// planner has the name of a baseline, so a baseline is recognized by what its record leaves out.
std::optional<Unsearched> unsearched_kind(const SearchRecord& search) {
  if (search.planner == kImportPlanner) return Unsearched::Imported;
  if (search.planner == kReschedulePlanner) return Unsearched::Rescheduled;
  const bool is_baseline = std::find(std::begin(kBaselineNames), std::end(kBaselineNames),
                                     search.planner) != std::end(kBaselineNames) &&
                           search.cut == std::vector{std::string{cut_of(Unsearched::Baseline)}};
  if (is_baseline) return Unsearched::Baseline;
  return std::nullopt;
}

/// Checks the warnings that follow from the plan. An import puts the warnings about the imported
/// file before them, which cannot be checked without that file.
void check_unsearched_warnings(Claims& claims, const ClaimedPlan& claimed, Unsearched kind,
                               std::vector<Unchecked>& unchecked) {
  const PlanDocument& document = claimed.document;
  if (document.search.outside.empty()) {
    unchecked.push_back({UncheckedKind::WarningsOfOlderVersion});
    return;
  }
  std::vector<ExpectedLine> expected =
      expected_warnings(warnings_about(document, claimed.topology));
  const std::vector<DeviceFigures>& devices = document.prediction.devices;
  if (kind == Unsearched::Baseline && std::any_of(devices.begin(), devices.end(), lacks_memory)) {
    expected.push_back({.text = std::string{kMissingPattern}, .has_figures = true});
  }
  const ScheduleFamily family = document.plan.family;
  const bool is_searched = family == ScheduleFamily::OneFOneB || searches_order(family);
  if (kind == Unsearched::Rescheduled && is_searched &&
      document.prediction.lower_bound != document.prediction.iteration) {
    const StopReason by =
        document.warnings.empty() ||
                document.warnings.back() != warning_of_reschedule_stop(StopReason::Signal)
            ? StopReason::TimeLimit
            : StopReason::Signal;
    expected.push_back({.text = warning_of_reschedule_stop(by), .may_be_missing = true});
  }
  std::size_t of_import = 0;
  if (kind == Unsearched::Imported && document.warnings.size() > expected.size()) {
    of_import = document.warnings.size() - expected.size();
    unchecked.push_back({UncheckedKind::WarningsOfImport, of_import});
  }
  std::vector<ExpectedLine> lines;
  for (std::size_t i = 0; i < of_import; ++i) lines.push_back({.text = document.warnings[i]});
  lines.insert(lines.end(), expected.begin(), expected.end());
  check_lines(claims, "/warnings", lines, document.warnings);
}

}  // namespace

bool check_unsearched(Claims& claims, const ClaimedPlan& claimed,
                      std::vector<Unchecked>& unchecked) {
  const PlanDocument& document = claimed.document;
  const SearchRecord& search = document.search;
  const std::optional<Unsearched> kind = unsearched_kind(search);
  if (!kind) return false;
  check_outside(claims, document);
  check_lines(claims, "/search_space/cut", {{.text = std::string{cut_of(*kind)}}}, search.cut);
  std::vector<std::string> searched;
  const bool has_bound = document.prediction.lower_bound.has_value();
  if (kind == Unsearched::Rescheduled && has_bound) {
    searched.push_back(orders_of(document.plan.family));
  } else if (has_bound) {
    claims.refuse("/predicted/lower_bound_ns", "expected null, as nothing was searched, got one");
  }
  check_lines(claims, "/search_space/searched", fixed_lines(std::move(searched)), search.searched);
  claims.expect("/search_space/complete", false, search.complete);
  // The orders that were not tried count as one open plan; older files do not count them.
  const bool may_be_open = kind == Unsearched::Rescheduled && has_bound &&
                           document.prediction.lower_bound != document.prediction.iteration;
  if (search.open != 1 || !may_be_open) {
    claims.expect("/search_space/open", std::int64_t{0}, search.open);
  }
  if (!document.baselines.empty()) {
    claims.refuse("/baselines", fmt::format("expected none, as nothing was compared, got {}",
                                            document.baselines.size()));
  }
  if (!document.schedules.empty()) {
    claims.refuse("/schedules", fmt::format("expected none, as none was looked at, got {}",
                                            document.schedules.size()));
  }
  check_unsearched_warnings(claims, claimed, *kind, unchecked);
  return true;
}

}  // namespace dapple::planner
