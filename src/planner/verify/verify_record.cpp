#include "planner/verify/verify_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dapple/plan/optimality.h"
#include "dapple/plan/record_text.h"
#include "dapple/plan/warning_text.h"
#include "dapple/planner/parallelism/asked_parallelisms.h"
#include "dapple/planner/request/planner_options.h"
#include "dapple/planner/request/warnings.h"
#include "dapple/profile/variants.h"
#include "dapple/search/exact/exact_search.h"
#include "dapple/search/placement/placement_space.h"
#include "dapple/topology/servers_of_kind.h"
#include "planner/families/plan_families.h"
#include "planner/one_family/dapple_planner.h"
#include "planner/request/asked_families.h"
#include "planner/request/micro_batches.h"
#include "planner/verify/expected_lines.h"

namespace dapple::planner {
namespace {

/// Returns the options for the part of the space in which the plan was found.
PlannerOptions options_of_part(const ClaimedPlan& claimed) {
  const PlanDocument& document = claimed.document;
  PlannerOptions options = options_of(*document.request, document.plan.global_batch_size);
  if (!claimed.restriction) return options;
  options.pins.equal_shares = true;
  options.pins.replicas_in_group = document.plan.parallelism.replicas_in_group();
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
    // The record of 1F1B may be of a plan of another form of parallelism.
    const bool is_of_other_form = !document.parallelisms.empty() &&
                                  !is_planned_as_1f1b(document.plan.family) &&
                                  document.search.planner == kFamiliesPlanner;
    if (is_of_other_form) return kFamiliesPlanner;
  }
  const bool is_first_plan = claimed.restriction &&
                             document.request->stopped_by != StopReason::None &&
                             document.search.planner == kDapplePlanner;
  if (is_first_plan || options.planner == PlannerKind::Dapple) return kDapplePlanner;
  // Which of the two depends on how long the exact search would take, and on the version.
  return document.search.planner == kDiagramPlanner ? kDiagramPlanner : kExactPlanner;
}

std::vector<ExpectedLine> cuts_of_exact(const ClaimedPlan& claimed, const PlannerOptions& options,
                                        bool all_placements) {
  std::vector<ExpectedLine> lines;
  if (options.family == ScheduleFamily::GPipe) lines.push_back({.text = std::string{kCutOrders}});
  if (claimed.topology.device_count() > search::ExactSearch::kMostDevices) {
    lines.push_back({.text = cut_of_many_devices(search::ExactSearch::kMostDevices)});
  } else {
    lines.push_back(
        {.text = std::string{kTooLongPattern}, .has_figures = true, .may_be_missing = true});
  }
  // The record of a restricted plan may be that of a part in which all allowed placements are
  // tried.
  if (!all_placements) {
    lines.push_back({.text = std::string{kPlacementsPattern},
                     .has_figures = true,
                     .may_be_missing = claimed.restriction && claimed.restriction->in_order});
  }
  if (!all_placements && may_deal(options)) lines.push_back({.text = std::string{kCutDealt}});
  return lines;
}

std::vector<ExpectedLine> cuts_of_diagrams(const PlannerOptions& options) {
  std::vector<ExpectedLine> lines;
  if (options.family == ScheduleFamily::GPipe) lines.push_back({.text = std::string{kCutOrders}});
  lines.push_back({.text = std::string{kCutOfDiagrams}});
  if (may_deal(options)) lines.push_back({.text = std::string{kCutDealt}});
  return lines;
}

std::vector<ExpectedLine> cuts_of_dapple(const ClaimedPlan& claimed) {
  std::vector<ExpectedLine> lines{{.text = std::string{kNarrowedPattern}, .has_figures = true},
                                  {.text = std::string{kCutPolicies}}};
  if (claimed.topology.device_count() > kFewDevices) {
    lines.push_back({.text = std::string{kCutReplicaCounts}});
  }
  lines.push_back(
      {.text = std::string{kNotSimulatedPattern}, .has_figures = true, .may_be_missing = true});
  return lines;
}

/// Adds the lines about families that were not searched completely: those with a bound below the
/// plan's iteration.
void add_family_cuts(const ClaimedPlan& claimed, std::vector<ExpectedLine>& lines) {
  const PlanDocument& document = claimed.document;
  const auto add = [&](const ScheduleRecord& record, bool may_be_missing) {
    lines.push_back({.text = cut_of_family(record.family), .may_be_missing = true});
    lines.push_back({.text = shapes_pattern(record.family),
                     .has_figures = true,
                     .may_be_missing = may_be_missing});
  };
  const auto record_of = [&](ScheduleFamily family) {
    return std::find_if(document.schedules.begin(), document.schedules.end(),
                        [&](const ScheduleRecord& record) { return record.family == family; });
  };
  const auto of_1f1b = record_of(ScheduleFamily::OneFOneB);
  if (of_1f1b != document.schedules.end() && document.search.planner == kFamiliesPlanner) {
    // A plan under 1F1B may fit although none was found.
    lines.push_back({.text = cut_of_family(ScheduleFamily::OneFOneB), .may_be_missing = true});
  }
  for (const ScheduleFamily family : kFamiliesBeyond1F1B) {
    const auto found = record_of(family);
    if (found == document.schedules.end()) continue;
    const ScheduleRecord& record = *found;
    if (claimed.restriction || !document.parallelisms.empty()) {
      // The bound of a family is the lowest of its parts, by forms of parallelism and, restricted,
      // by replicas, and there is none where a part was left open beside the DAPPLE planner; the
      // lines are those of the best part alone.
      add(record, true);
      continue;
    }
    if (!record.lower_bound || *record.lower_bound >= fastest_found(document)) continue;
    const auto& cut = document.search.cut;
    add(record, std::find(cut.begin(), cut.end(), cut_of_family(record.family)) != cut.end());
  }
}

/// Returns what the space does not contain, in the words of the file's version.
std::string expected_outside(const ClaimedPlan& claimed) {
  const PlanDocument& document = claimed.document;
  const PlanRequest& request = *document.request;
  std::string outside = outside_space(document.original_profile(), request.sharding,
                                      request.mixes_forms, request.mixes_group_sizes);
  // Files of older versions, whose shares are equal, do not name others.
  const bool is_old = request.shares == Shares::Equal && document.search.outside == outside;
  if (!is_old && kinds_in_use(claimed.topology).size() > 1) {
    outside += shares_outside_space(request.shares);
  }
  // Nor do they name other layers that recompute than all.
  const bool are_all = request.recomputed_layers == RecomputedLayers::All;
  const bool is_unnamed = are_all && document.search.outside == outside;
  if (!is_unnamed && recomputes_in_some_form(document.original_profile())) {
    const SelectableLayers all{.first = true, .every_nth = true};
    const SelectableLayers selectable =
        claimed.restriction ? claimed.restriction->recomputed_layers : all;
    outside += recomputation_outside_space(are_all ? SelectableLayers{} : selectable);
  }
  return outside;
}

void check_record(Claims& claims, const ClaimedPlan& claimed) {
  const PlanDocument& document = claimed.document;
  const PlannerOptions options = options_of_part(claimed);
  const std::string_view planner = expected_planner(claimed, options);
  claims.expect_text("/search_space/planner", planner, document.search.planner);
  const search::PlacementSpace placements(claimed.topology);
  const bool all_placements = placements.is_complete();
  const FurtherDimensions further = further_dimensions(options, claimed.topology);
  std::vector<ExpectedLine> searched;
  std::vector<ExpectedLine> cut = fixed_lines(micro_batch_sizes(options).cut);
  const PlanRequest& request = *document.request;
  const auto add = [&](std::vector<ExpectedLine> lines) {
    std::move(lines.begin(), lines.end(), std::back_inserter(cut));
  };
  std::vector<ExpectedLine> pinned = fixed_lines(cuts_of_pins(request.pins, document.profile));
  if (!claimed.restriction) add(pinned);
  if (planner == kExactPlanner) {
    searched = fixed_lines(exact_dimensions(all_placements, further));
    add(cuts_of_exact(claimed, options, all_placements));
  } else if (planner == kDiagramPlanner) {
    searched = fixed_lines(diagram_dimensions(further));
    add(cuts_of_diagrams(options));
  } else if (planner == kDapplePlanner) {
    searched = fixed_lines(dapple_dimensions(further));
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
    const std::string text = cut_of_runtime(
        inexpressible_parts(*claimed.restriction, claimed.restriction->least_depths && is_1f1b));
    cut.push_back({.text = text, .older = with_older_runtime(text, claimed.restriction->target)});
  }
  for (const ParallelismRecord& record : document.parallelisms) {
    if (is_of(record, document.plan)) continue;
    cut.push_back({.text = cut_of_parallelism(record.parallelism, record.stage_forms),
                   .may_be_missing = true});
  }
  check_lines(claims, "/search_space/searched", searched, document.search.searched);
  claims.expect_text("/search_space/outside", expected_outside(claimed), document.search.outside);
  check_lines(claims, "/search_space/cut", cut, document.search.cut);
}

/// Checks the shape in a record of the plan's own part of the space. Where a plan close to the
/// fastest one was chosen, the record is of the fastest one, which is not in the file.
void check_own_shape(Claims& claims, const std::string& place, const PlanDocument& document,
                     const std::string& shape) {
  if (document.search.fastest) return;
  claims.expect_text(place + "/shape", shape_of(document.plan), shape);
}

/// Checks the record of the plan's own family: its figures are those of the plan, and so is its
/// bound where no other family was searched.
void check_own_record(Claims& claims, const ClaimedPlan& claimed) {
  const PlanDocument& document = claimed.document;
  const std::optional<Duration>& bound = document.prediction.lower_bound;
  for (std::size_t i = 0; i < document.schedules.size(); ++i) {
    const ScheduleRecord& record = document.schedules[i];
    if (record.family != recorded_family(document.plan.family)) continue;
    const std::string place = fmt::format("/schedules/{}", i);
    check_own_shape(claims, place, document, record.shape);
    claims.expect(place + "/missing_bytes", Bytes{}, record.missing);
    if (!document.request->family || claimed.restriction || !bound) continue;
    if (record.lower_bound != bound) {
      claims.refuse(
          place + "/lower_bound_ns",
          fmt::format("expected {}, as of the plan, whose family alone was looked at", bound->ns));
    }
    claims.expect_text(place + "/reason",
                       text_of({.kind = FamilyOutcomeKind::IsPlan,
                                .plan = fastest_found(document),
                                .lower_bound = bound}),
                       record.reason);
  }
}

/// Checks the records of the forms of parallelism: that there is one of each that was asked for,
/// that none is of a plan faster than the plan, and that none contradicts the bound.
void check_parallelisms(Claims& claims, const ClaimedPlan& claimed) {
  const PlanDocument& document = claimed.document;
  const Topology topology{document.original_topology()};
  const PlannerOptions options = options_of(*document.request, document.plan.global_batch_size);
  std::vector<AskedParallelism> asked =
      asked_parallelisms({document.original_profile(), topology, options}, claimed.restriction);
  if (asked.size() == 1) asked.clear();
  if (asked.size() != document.parallelisms.size()) {
    claims.refuse("/parallelisms",
                  fmt::format("expected records of the {} forms of parallelism that were asked "
                              "for, got {}",
                              asked.size(), document.parallelisms.size()));
    return;
  }
  const std::optional<Duration>& bound = document.prediction.lower_bound;
  for (std::size_t i = 0; i < asked.size(); ++i) {
    const ParallelismRecord& record = document.parallelisms[i];
    const std::string place = fmt::format("/parallelisms/{}", i);
    claims.expect_text(place + "/parallelism", to_text(asked[i].parallelism),
                       to_text(record.parallelism));
    const Duration fastest = fastest_found(document);
    const Duration iteration = record.iteration.value_or(fastest);
    if (asked[i].stage_forms != record.stage_forms) {
      claims.refuse(place + "/stage_forms",
                    fmt::format("expected the forms that stages may have on groups of {}, got "
                                "others",
                                record.parallelism.group_size()));
    }
    if (is_of(record, document.plan)) {
      claims.expect(place + "/iteration_ns", fastest, iteration);
      check_own_shape(claims, place, document, record.shape);
    } else if (iteration < fastest) {
      claims.refuse(
          place + "/iteration_ns",
          fmt::format("expected at least the plan's own {}, got {}", fastest.ns, iteration.ns));
    }
    if (bound && record.lower_bound && *bound > *record.lower_bound) {
      claims.refuse("/predicted/lower_bound_ns",
                    fmt::format("expected at most that of {}, {}, got {}",
                                to_text(record.parallelism), record.lower_bound->ns, bound->ns));
    }
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

/// Checks that a recorded stop came before the search was done. Where a gap above zero was reached,
/// a stop may have come before the baselines were chosen; check_baselines_anew() checks that.
void check_stop(Claims& claims, const ClaimedPlan& claimed) {
  const PlanDocument& document = claimed.document;
  const PlanRequest& request = *document.request;
  if (request.stopped_by == StopReason::None || !is_search_done(document)) return;
  const bool is_closed = is_gap_closed(document);
  if (is_closed || !request.baselines) refuse_stop(claims, document);
}

/// Checks the number of open plans. Plans can be open only where the bound is below the plan; some
/// must be where a single family was searched in its whole space.
void check_open(Claims& claims, const ClaimedPlan& claimed) {
  const PlanDocument& document = claimed.document;
  const SearchRecord& search = document.search;
  const PlanRequest& request = *document.request;
  if (search.planner != kExactPlanner && search.planner != kDiagramPlanner) {
    claims.expect("/search_space/open", std::int64_t{0}, search.open);
    return;
  }
  const bool is_closed = is_gap_closed(document);
  if (is_closed) {
    claims.expect("/search_space/open", std::int64_t{0}, search.open);
    return;
  }
  if (!request.family || claimed.restriction) return;
  if (search.open == 0 && search.complete && request.target_gap.billionths == 0) {
    claims.refuse("/search_space/open", "expected at least 1, as the gap is not closed, got 0");
  }
}

/// Whether the document must state a bound. The DAPPLE planner proves none. Where it planned one
/// family of several under a restriction, there is none for them together either, and the record
/// names the planner of the best family.
bool must_have_bound(const ClaimedPlan& claimed) {
  const PlanDocument& document = claimed.document;
  if (document.search.planner == kDapplePlanner) return false;
  const PlannerOptions options = options_of(*document.request, document.plan.global_batch_size);
  return !claimed.restriction || !options.every_family || options.planner != PlannerKind::Dapple;
}

}  // namespace

void refuse_stop(Claims& claims, const PlanDocument& document) {
  const bool is_closed = is_gap_closed(document);
  claims.refuse("/request/stopped_by",
                fmt::format("expected null, as the gap {}, got a reason",
                            is_closed ? "was closed" : "that was asked for was reached"));
}

void check_search(Claims& claims, const ClaimedPlan& claimed) {
  const PlanDocument& document = claimed.document;
  check_stop(claims, claimed);
  if (claims.empty()) check_families(claims, claimed);
  if (claims.empty()) check_parallelisms(claims, claimed);
  if (!claims.empty()) return;
  check_record(claims, claimed);
  const bool has_bound = document.prediction.lower_bound.has_value();
  if (must_have_bound(claimed) && !has_bound) {
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
  std::vector<ExpectedLine> warnings = expected_warnings(warnings_of(document, claimed.topology));
  if (!warnings.empty() && is_gap_warning(warnings.back().text)) {
    warnings.back().older = std::string(kSpentBudget);
  } else if (!warnings.empty() && document.request && document.request->time_limit) {
    warnings.back().older = with_rounded_limit(warnings.back().text, *document.request->time_limit);
  }
  check_lines(claims, "/warnings", warnings, document.warnings);
}

}  // namespace dapple::planner
