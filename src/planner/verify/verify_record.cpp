#include "planner/verify/verify_record.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dapple/plan/optimality.h"
#include "dapple/plan/record_text.h"
#include "dapple/plan/warning_text.h"
#include "dapple/planner/families/reschedule.h"
#include "dapple/planner/request/plan_restriction.h"
#include "dapple/planner/request/planner_options.h"
#include "dapple/planner/request/warnings.h"
#include "dapple/search/exact/exact_search.h"
#include "dapple/search/placement/placement_space.h"
#include "planner/candidates/as_pinned.h"
#include "planner/families/family_planner.h"
#include "planner/families/plan_families.h"
#include "planner/one_family/dapple_planner.h"
#include "planner/one_family/plan_one_family.h"
#include "planner/request/asked_families.h"
#include "planner/request/gradient_synchronizations.h"
#include "planner/request/micro_batches.h"
#include "planner/request/stop_question.h"

namespace dapple::planner {
namespace {

/// A line that a list of texts must hold.
struct ExpectedLine {
  std::string text;
  // Whether any number matches each {}.
  bool counts = false;
  bool may_be_missing = false;
  // The line that files of older versions have in its place.
  std::string_view older = {};

  bool matches(const std::string& line) const {
    if (!older.empty() && line == older) return true;
    return counts ? figures_in(text, line).has_value() : text == line;
  }
};

std::vector<ExpectedLine> fixed_lines(std::vector<std::string> texts) {
  std::vector<ExpectedLine> lines;
  for (std::string& text : texts) lines.push_back({.text = std::move(text)});
  return lines;
}

void check_lines(Claims& claims, const std::string& place,
                 const std::vector<ExpectedLine>& expected,
                 const std::vector<std::string>& claimed) {
  std::size_t next = 0;
  for (std::size_t i = 0; i < claimed.size(); ++i) {
    while (next < expected.size() && expected[next].may_be_missing &&
           !expected[next].matches(claimed[i])) {
      ++next;
    }
    const std::string here = fmt::format("{}/{}", place, i);
    if (next == expected.size()) {
      claims.refuse(here, fmt::format("expected no more lines, got \"{}\"", claimed[i]));
      return;
    }
    if (!expected[next].matches(claimed[i])) {
      claims.expect_text(here, expected[next].text, claimed[i]);
      return;
    }
    ++next;
  }
  for (; next < expected.size(); ++next) {
    if (expected[next].may_be_missing) continue;
    claims.refuse(place, fmt::format("expected also \"{}\", got {} line{}", expected[next].text,
                                     claimed.size(), claimed.size() == 1 ? "" : "s"));
    return;
  }
}

void check_pinned_layers(Claims& claims, const ClaimedPlan& claimed) {
  const Pins& pins = claimed.document.request->pins;
  const auto layers = static_cast<std::int32_t>(claimed.document.profile.layers.size());
  const std::pair<const char*, const std::vector<std::int32_t>&> lists[] = {
      {"cuts", pins.cuts}, {"joints", pins.joints}};
  for (const auto& [name, list] : lists) {
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (list[i] < layers) continue;
      claims.refuse(
          fmt::format("/request/pins/{}/{}", name, i),
          fmt::format("expected the number of a layer, 1 to {}, got {}", layers - 1, list[i]));
    }
  }
}

void check_pinned(Claims& claims, const ClaimedPlan& claimed) {
  const Plan& plan = claimed.document.plan;
  const Pins& pins = claimed.document.request->pins;
  check_pinned_layers(claims, claimed);
  if (pins.least_depths && claimed.document.request->family != ScheduleFamily::OneFOneB) {
    claims.refuse("/request/pins/least_depths",
                  "expected false, as the schedule is not 1f1b, got "
                  "true");
  }
  if (!claims.empty()) return;
  // The pins of a plan with several chunks applied to its groups of devices.
  if (plan.chunks_per_device > 1 || is_as_pinned(plan, pins)) return;
  claims.refuse("/request/pins",
                fmt::format("expected pins that the plan keeps, got {}",
                            fmt::join(to_texts(pins, claimed.document.profile), ", ")));
}

/// Checks that the target runtime can run the plan.
void check_target(Claims& claims, const ClaimedPlan& claimed) {
  const PlanRequest& request = *claimed.document.request;
  if (request.target.empty()) return;
  const Plan& plan = claimed.document.plan;
  const PlanRestriction& restriction = *claimed.restriction;
  Pins pins;
  pins.replicas = static_cast<std::int32_t>(plan.stages.front().devices.size());
  pins.recompute = plan.stages.front().recompute;
  pins.equal_shares = true;
  pins.in_order = restriction.in_order;
  pins.least_depths = restriction.least_depths && plan.family == ScheduleFamily::OneFOneB;
  if (plan.chunks_per_device == 1) pins.joints = restriction.joints;
  if (is_as_pinned(plan, pins) && (restriction.recomputes || !*pins.recompute)) return;
  claims.refuse("/request/for", fmt::format("expected a runtime that can run the plan, got \"{}\"",
                                            request.target));
}

void check_gradients(Claims& claims, const ClaimedPlan& claimed) {
  const PlanDocument& document = claimed.document;
  const GradientSynchronization& gradients = document.plan.gradients;
  const PlanRequest& request = *document.request;
  claims.expect_text("/request/optimizer_step", to_string(gradients.optimizer),
                     to_string(request.optimizer));
  if (request.bucket_size) {
    claims.expect("/request/bucket_bytes", gradients.bucket_size, *request.bucket_size);
    return;
  }
  const auto synchronizations = gradient_synchronizations(
      options_of(request, document.plan.global_batch_size), document.profile);
  const bool is_tried =
      gradients == usual_gradients(options_of(request, document.plan.global_batch_size)) ||
      std::any_of(synchronizations.begin(), synchronizations.end(),
                  [&](const GradientSynchronization& handling) {
                    return handling.bucket_size == gradients.bucket_size;
                  });
  if (is_tried) return;
  claims.refuse("/request/bucket_bytes",
                fmt::format("expected {}, as no search of several sizes tries that, got null",
                            gradients.bucket_size.count));
}

void check_schedule(Claims& claims, const ClaimedPlan& claimed) {
  const PlanDocument& document = claimed.document;
  const PlanRequest& request = *document.request;
  if (request.family) {
    const bool is_asked_for =
        document.plan.family == *request.family || (*request.family == ScheduleFamily::OneFOneB &&
                                                    document.plan.family == ScheduleFamily::GPipe);
    if (!is_asked_for) {
      claims.expect_text("/request/schedule", to_string(document.plan.family),
                         to_string(*request.family));
    }
  }
  const bool is_beyond = !request.family || !is_planned_as_1f1b(*request.family);
  if (is_beyond && request.mode.replicas == Replicas::Independent) {
    claims.refuse("/request/replicas",
                  "expected together, as with every schedule beyond 1f1b and "
                  "gpipe, got independent");
  }
  if (request.family && !is_planned_as_1f1b(*request.family) &&
      request.planner == PlannerKind::Dapple) {
    claims.refuse("/request/planner",
                  fmt::format("expected exact, the only planner of {}, got dapple",
                              to_string(*request.family)));
  }
  if (request.planner == PlannerKind::Dapple && request.target_gap.billionths > 0) {
    claims.refuse("/request/target_gap", "expected 0, as dapple proves no gap, got more");
  }
}

void check_memory(Claims& claims, const ClaimedPlan& claimed) {
  if (claimed.document.request->ignore_memory) return;
  for (const DeviceFigures& device : claimed.document.prediction.devices) {
    if (!lacks_memory(device)) continue;
    claims.refuse("/request/unlimited_memory",
                  fmt::format("expected true, as {} lacks memory, got false",
                              claimed.topology.device(device.device).name));
    return;
  }
}

}  // namespace

void check_request(Claims& claims, const ClaimedPlan& claimed) {
  const PlanDocument& document = claimed.document;
  const PlanRequest& request = *document.request;
  if (request.micro_batch_size) {
    claims.expect("/request/micro_batch_size", document.plan.micro_batch_size,
                  *request.micro_batch_size);
  }
  claims.expect_text("/request/contention", to_string(document.prediction.contention),
                     to_string(request.mode.contention));
  claims.expect_text("/request/replicas", to_string(document.prediction.replicas),
                     to_string(request.mode.replicas));
  check_schedule(claims, claimed);
  check_gradients(claims, claimed);
  check_memory(claims, claimed);
  if (claims.empty()) check_pinned(claims, claimed);
  if (claims.empty()) check_target(claims, claimed);
}

namespace {

/// Returns the options for the part of the space in which the plan was found.
PlannerOptions options_of_part(const ClaimedPlan& claimed) {
  const PlanDocument& document = claimed.document;
  PlannerOptions options = options_of(*document.request, document.plan.global_batch_size);
  if (!claimed.restriction) return options;
  options.pins.equal_shares = true;
  options.pins.replicas = static_cast<std::int32_t>(document.plan.stages.front().devices.size());
  if (!options.every_family) return options;
  options.every_family = false;
  options.family = document.plan.family;
  if (options.family == ScheduleFamily::OneFOneB) options.family.reset();
  return options;
}

/// Returns the planner that the record must name; a search that was stopped may have ended with its
/// first plans.
std::string_view expected_planner(const ClaimedPlan& claimed, const PlannerOptions& options) {
  const PlanDocument& document = claimed.document;
  if (options.family && !is_planned_as_1f1b(*options.family)) return kFamiliesPlanner;
  if (options.every_family) {
    const auto of_1f1b = std::find_if(
        document.schedules.begin(), document.schedules.end(),
        [](const ScheduleRecord& record) { return record.family == ScheduleFamily::OneFOneB; });
    if (of_1f1b != document.schedules.end() && !of_1f1b->iteration) return kFamiliesPlanner;
  }
  const bool is_first_plan = claimed.restriction &&
                             document.request->stopped_by != StopReason::None &&
                             document.search.planner == kDapplePlanner;
  if (is_first_plan || options.planner == PlannerKind::Dapple) return kDapplePlanner;
  return kExactPlanner;
}

std::vector<ExpectedLine> cuts_of_exact(const ClaimedPlan& claimed, const PlannerOptions& options,
                                        bool all_placements) {
  std::vector<ExpectedLine> lines;
  if (options.family == ScheduleFamily::GPipe) lines.push_back({.text = std::string{kCutOrders}});
  if (claimed.topology.device_count() > search::ExactSearch::kMostDevices) {
    lines.push_back({.text = cut_of_many_devices(search::ExactSearch::kMostDevices)});
  } else {
    lines.push_back({.text = std::string{kTooLongPattern}, .counts = true, .may_be_missing = true});
  }
  if (!all_placements) lines.push_back({.text = std::string{kPlacementsPattern}, .counts = true});
  return lines;
}

std::vector<ExpectedLine> cuts_of_dapple(const ClaimedPlan& claimed) {
  std::vector<ExpectedLine> lines{{.text = std::string{kNarrowedPattern}, .counts = true},
                                  {.text = std::string{kCutPolicies}}};
  if (claimed.topology.device_count() > kFewDevices) {
    lines.push_back({.text = std::string{kCutReplicaCounts}});
  }
  lines.push_back(
      {.text = std::string{kNotSimulatedPattern}, .counts = true, .may_be_missing = true});
  return lines;
}

/// Adds the lines about families that were not searched completely: those with a bound below the
/// plan's iteration.
void add_family_cuts(const ClaimedPlan& claimed, std::vector<ExpectedLine>& lines) {
  const PlanDocument& document = claimed.document;
  const auto add = [&](const ScheduleRecord& record, bool may_be_missing) {
    lines.push_back({.text = cut_of_family(record.family), .may_be_missing = true});
    lines.push_back(
        {.text = shapes_pattern(record.family), .counts = true, .may_be_missing = may_be_missing});
  };
  for (const ScheduleFamily family : kFamiliesBeyond1F1B) {
    const auto found =
        std::find_if(document.schedules.begin(), document.schedules.end(),
                     [&](const ScheduleRecord& record) { return record.family == family; });
    if (found == document.schedules.end() || !found->lower_bound) continue;
    const ScheduleRecord& record = *found;
    if (claimed.restriction) {
      add(record, true);
      continue;
    }
    if (*record.lower_bound >= document.prediction.iteration) continue;
    const auto& cut = document.search.cut;
    add(record, std::find(cut.begin(), cut.end(), cut_of_family(record.family)) != cut.end());
  }
}

void check_record(Claims& claims, const ClaimedPlan& claimed) {
  const PlanDocument& document = claimed.document;
  const PlannerOptions options = options_of_part(claimed);
  const std::string_view planner = expected_planner(claimed, options);
  claims.expect_text("/search_space/planner", planner, document.search.planner);
  const bool all_placements = search::PlacementSpace(claimed.topology).is_complete();
  std::vector<ExpectedLine> searched;
  std::vector<ExpectedLine> cut = fixed_lines(micro_batch_sizes(options).cut);
  const PlanRequest& request = *document.request;
  const auto add = [&](std::vector<ExpectedLine> lines) {
    std::move(lines.begin(), lines.end(), std::back_inserter(cut));
  };
  std::vector<ExpectedLine> pinned = fixed_lines(cuts_of_pins(request.pins, document.profile));
  if (!claimed.restriction) add(pinned);
  if (planner == kExactPlanner) {
    searched = fixed_lines(exact_dimensions(all_placements, !options.bucket_size));
    add(cuts_of_exact(claimed, options, all_placements));
  } else if (planner == kDapplePlanner) {
    searched = fixed_lines(dapple_dimensions(!options.bucket_size));
    add(cuts_of_dapple(claimed));
  } else {
    searched = fixed_lines(families_dimensions());
  }
  if (asks_for_families(options)) {
    searched.push_back({.text = std::string{kFamilies}});
    add_family_cuts(claimed, cut);
  }
  if (claimed.restriction) {
    add(std::move(pinned));
    const bool is_1f1b = is_planned_as_1f1b(document.plan.family);
    cut.push_back({.text = cut_of_runtime(inexpressible_parts(
                       *claimed.restriction, claimed.restriction->least_depths && is_1f1b))});
  }
  check_lines(claims, "/search_space/searched", searched, document.search.searched);
  claims.expect_text("/search_space/outside", kOutsideSpace, document.search.outside);
  check_lines(claims, "/search_space/cut", cut, document.search.cut);
}

/// Checks the record of the plan's own family: its figures are those of the plan, and so is its
/// bound where no other family was searched.
void check_own_record(Claims& claims, const ClaimedPlan& claimed) {
  const PlanDocument& document = claimed.document;
  const std::optional<Duration>& bound = document.prediction.lower_bound;
  for (std::size_t i = 0; i < document.schedules.size(); ++i) {
    const ScheduleRecord& record = document.schedules[i];
    if (record.family != document.plan.family) continue;
    const std::string place = fmt::format("/schedules/{}", i);
    claims.expect_text(place + "/shape", shape_of(document.plan), record.shape);
    claims.expect(place + "/missing_bytes", Bytes{}, record.missing);
    if (!document.request->family || claimed.restriction || !bound) continue;
    if (record.lower_bound != bound) {
      claims.refuse(
          place + "/lower_bound_ns",
          fmt::format("expected {}, as of the plan, whose family alone was looked at", bound->ns));
    }
    claims.expect_text(place + "/reason",
                       text_of({.kind = FamilyOutcomeKind::IsPlan,
                                .plan = document.prediction.iteration,
                                .lower_bound = bound}),
                       record.reason);
  }
}

/// Checks that the document has the records of the families that the request asks for.
void check_families(Claims& claims, const ClaimedPlan& claimed) {
  const PlanDocument& document = claimed.document;
  const PlanRequest& request = *document.request;
  std::vector<ScheduleFamily> expected;
  const auto is_looked_at = [&](ScheduleFamily family) {
    if (family == ScheduleFamily::Given) return false;
    if (request.family) return !is_planned_as_1f1b(family) && family == *request.family;
    if (!claimed.restriction) return true;
    const auto& families = claimed.restriction->families;
    return std::find(families.begin(), families.end(), family) != families.end();
  };
  std::copy_if(std::begin(kScheduleFamilies), std::end(kScheduleFamilies),
               std::back_inserter(expected), is_looked_at);
  const std::size_t common = std::min(expected.size(), document.schedules.size());
  for (std::size_t i = 0; i < common; ++i) {
    claims.expect_text(fmt::format("/schedules/{}/family", i), to_string(expected[i]),
                       to_string(document.schedules[i].family));
  }
  check_own_record(claims, claimed);
  if (expected.size() == document.schedules.size()) return;
  claims.refuse("/schedules", fmt::format("expected records of the {} families that were asked "
                                          "for beyond 1f1b alone, got {}",
                                          expected.size(), document.schedules.size()));
}

/// Refuses a recorded stop that changed nothing, as the planner does not record it.
void refuse_stop(Claims& claims, const PlanDocument& document) {
  const bool is_closed = is_gap_closed(document.prediction);
  claims.refuse("/request/stopped_by",
                fmt::format("expected null, as the gap {}, got a reason",
                            is_closed ? "was closed" : "that was asked for was reached"));
}

/// Checks that a recorded stop came before the search was done. Where a gap above zero was reached,
/// a stop may have come before the baselines were chosen; check_baselines_anew() checks that.
void check_stop(Claims& claims, const ClaimedPlan& claimed) {
  const PlanDocument& document = claimed.document;
  const PlanRequest& request = *document.request;
  if (request.stopped_by == StopReason::None || !is_search_done(document)) return;
  const bool is_closed = is_gap_closed(document.prediction);
  if (is_closed || !request.baselines) refuse_stop(claims, document);
}

/// Checks the number of open plans. Plans can be open only where the bound is below the plan; some
/// must be where a single family was searched in its whole space.
void check_open(Claims& claims, const ClaimedPlan& claimed) {
  const PlanDocument& document = claimed.document;
  const SearchRecord& search = document.search;
  const PlanRequest& request = *document.request;
  if (search.planner != kExactPlanner) {
    claims.expect("/search_space/open", std::int64_t{0}, search.open);
    return;
  }
  const bool is_closed = is_gap_closed(document.prediction);
  if (is_closed) {
    claims.expect("/search_space/open", std::int64_t{0}, search.open);
    return;
  }
  if (!request.family || claimed.restriction) return;
  if (search.open == 0 && search.complete && request.target_gap.billionths == 0) {
    claims.refuse("/search_space/open", "expected at least 1, as the gap is not closed, got 0");
  }
}

}  // namespace

void check_search(Claims& claims, const ClaimedPlan& claimed) {
  const PlanDocument& document = claimed.document;
  check_stop(claims, claimed);
  if (claims.empty()) check_families(claims, claimed);
  if (!claims.empty()) return;
  check_record(claims, claimed);
  const bool has_bound = document.prediction.lower_bound.has_value();
  if (document.search.planner != kDapplePlanner && !has_bound) {
    claims.refuse("/predicted/lower_bound_ns",
                  fmt::format("expected a bound, which the planner \"{}\" proves, got null",
                              document.search.planner));
  }
  if (document.search.planner == kDapplePlanner && has_bound && !claimed.restriction) {
    claims.refuse("/predicted/lower_bound_ns",
                  "expected null, as the planner \"dapple\" proves no bound, got one");
  }
  const bool is_complete = document.search.cut.empty() && !claimed.restriction && has_bound &&
                           document.search.planner != kDapplePlanner;
  claims.expect("/search_space/complete", is_complete, document.search.complete);
  check_open(claims, claimed);
  std::vector<ExpectedLine> warnings = fixed_lines(warnings_of(document, claimed.topology));
  if (!warnings.empty() && is_gap_warning(warnings.back().text)) {
    warnings.back().older = kSpentBudget;
  }
  check_lines(claims, "/warnings", warnings, document.warnings);
}

namespace {

/// Checks the statement about what is outside the space; files of older versions have none.
void check_outside(Claims& claims, const SearchRecord& search) {
  if (search.outside.empty()) return;
  claims.expect_text("/search_space/outside", kOutsideSpace, search.outside);
}

void check_unasked_names(Claims& claims, const PlanDocument& document) {
  for (std::size_t i = 0; i < document.baselines.size(); ++i) {
    const std::string& name = document.baselines[i].name;
    if (std::find(std::begin(kBaselineNames), std::end(kBaselineNames), name) !=
        std::end(kBaselineNames)) {
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
  check_outside(claims, search);
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
    std::vector<ExpectedLine> whole = fixed_lines(exact_dimensions(true, false));
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
  std::vector<ExpectedLine> expected = fixed_lines(warnings_about(document, claimed.topology));
  const std::vector<DeviceFigures>& devices = document.prediction.devices;
  if (kind == Unsearched::Baseline && std::any_of(devices.begin(), devices.end(), lacks_memory)) {
    expected.push_back({.text = std::string{kMissingPattern}, .counts = true});
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
  check_outside(claims, search);
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

namespace {

void compare_baseline(Claims& claims, const std::string& place, const Baseline& fresh,
                      const Baseline& claimed) {
  claims.expect_text(place + "/shape", fresh.shape, claimed.shape);
  claims.expect(place + "/iteration_ns", fresh.iteration, claimed.iteration);
  for (const TimePart& part : kTimeParts) {
    claims.expect(fmt::format("{}/time_parts/{}", place, part.key), fresh.parts.*part.part,
                  claimed.parts.*part.part);
  }
  claims.expect(place + "/feasible", fresh.feasible, claimed.feasible);
  claims.expect(place + "/missing_bytes", fresh.missing, claimed.missing);
  claims.expect(place + "/depth_limited", fresh.depth_limited, claimed.depth_limited);
}

/// Compares the baselines of a search that was stopped. They may be missing or slower than those
/// made here, which cannot be distinguished from a false claim; but they cannot be faster.
void compare_stopped_baselines(Claims& claims, const std::vector<Baseline>& claimed,
                               const std::vector<BaselinePlan>& fresh,
                               std::vector<Unchecked>& unchecked) {
  std::size_t next = 0;
  bool is_whole = claimed.size() == fresh.size();
  for (std::size_t i = 0; i < claimed.size(); ++i) {
    const std::string place = fmt::format("/baselines/{}", i);
    while (next < fresh.size() && fresh[next].figures.name != claimed[i].name) ++next;
    if (next == fresh.size()) {
      claims.refuse(place + "/name", fmt::format("expected the next of {}, got \"{}\"",
                                                 fmt::join(kBaselineNames, ", "), claimed[i].name));
      return;
    }
    const Baseline& best = fresh[next++].figures;
    if (claimed[i].feasible && claimed[i].iteration < best.iteration) {
      claims.refuse(
          place + "/iteration_ns",
          fmt::format("expected at least {}, got {}", best.iteration.ns, claimed[i].iteration.ns));
    } else if (claimed[i].iteration == best.iteration && claimed[i].feasible == best.feasible) {
      compare_baseline(claims, place, best, claimed[i]);
    } else {
      is_whole = false;
    }
  }
  if (is_whole) return;
  unchecked.push_back({UncheckedKind::BaselinesOfStoppedSearch});
}

void compare_baselines(Claims& claims, const ClaimedPlan& claimed,
                       const std::vector<BaselinePlan>& fresh) {
  const PlanDocument& document = claimed.document;
  const PlannerOptions options = options_of(*document.request, document.plan.global_batch_size);
  // Where the 1F1B search has no plan to start from, the families are searched without baselines.
  const bool has_start = std::any_of(fresh.begin(), fresh.end(), [&](const BaselinePlan& plan) {
    const bool is_dapple = plan.figures.name == *std::rbegin(kBaselineNames);
    return plan.figures.feasible && (is_dapple || is_asked_for(plan.plan, options));
  });
  const bool may_have_none = document.search.planner == kFamiliesPlanner && !has_start;
  if (may_have_none && document.baselines.empty()) return;
  const std::vector<Baseline>& baselines = document.baselines;
  for (std::size_t i = 0; i < std::min(baselines.size(), fresh.size()); ++i) {
    const std::string place = fmt::format("/baselines/{}", i);
    if (baselines[i].name != fresh[i].figures.name) {
      claims.expect_text(place + "/name", fresh[i].figures.name, baselines[i].name);
      return;
    }
    compare_baseline(claims, place, fresh[i].figures, baselines[i]);
  }
  if (baselines.size() == fresh.size()) return;
  claims.refuse("/baselines", fmt::format("expected {}, got {}", fresh.size(), baselines.size()));
}

}  // namespace

void check_baselines_anew(Claims& claims, const ClaimedPlan& claimed, Progress* progress,
                          std::vector<Unchecked>& unchecked) {
  const PlanDocument& document = claimed.document;
  if (!document.request->baselines) {
    if (document.baselines.empty()) return;
    claims.refuse("/baselines", fmt::format("expected none, as none were asked for, got {}",
                                            document.baselines.size()));
    return;
  }
  const PlannerOptions options = options_of(*document.request, document.plan.global_batch_size);
  const std::vector<BaselinePlan> fresh =
      plans_of_others({document.profile, claimed.topology, options, progress});
  if (StopQuestion(progress)()) {
    unchecked.push_back({UncheckedKind::Baselines});
  } else if (document.request->stopped_by != StopReason::None) {
    // A stop before all baselines were chosen shows in the document, as the last one is left out.
    const bool shows_stop = document.baselines.size() < fresh.size() || fresh.empty();
    if (is_search_done(document) && !shows_stop) return refuse_stop(claims, document);
    compare_stopped_baselines(claims, document.baselines, fresh, unchecked);
  } else {
    compare_baselines(claims, claimed, fresh);
  }
}

}  // namespace dapple::planner
