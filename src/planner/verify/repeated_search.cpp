#include "planner/verify/repeated_search.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "dapple/plan/document.h"
#include "dapple/plan/optimality.h"
#include "dapple/plan/record_text.h"
#include "dapple/planner/candidates/plan_pool.h"
#include "dapple/planner/parallelism/plan_parallelisms.h"
#include "dapple/planner/result/made_plan.h"
#include "planner/verify/budgeted_progress.h"

namespace dapple::planner {
namespace {

/// Whether two searches did the same work, as those of one version do where the same is asked.
bool did_the_same_work(const SearchRecord& a, const SearchRecord& b) {
  return a.states == b.states && a.candidates == b.candidates && a.simulated == b.simulated;
}

/// Compares what came of a schedule family or form of parallelism in the same search.
template <class Record>
void compare_outcome(Claims& claims, const std::string& place, const Record& now,
                     const Record& then, const std::string& older_reason) {
  const auto figure = [](const std::optional<Duration>& time) {
    return time ? fmt::format("{}", time->ns) : std::string{"null"};
  };
  claims.expect_text(place + "/iteration_ns", figure(now.iteration), figure(then.iteration));
  claims.expect_text(place + "/lower_bound_ns", figure(now.lower_bound), figure(then.lower_bound));
  claims.expect_text(place + "/shape", now.shape, then.shape);
  claims.expect(place + "/missing_bytes", now.missing, then.missing);
  if (then.reason != older_reason) claims.expect_text(place + "/reason", now.reason, then.reason);
}

/// Refuses what a plan or a bound of another search contradicts. Returns whether the outcomes are
/// the same.
template <class Record>
bool agrees_with(const Record& now, Claims& claims, const std::string& place, const Record& then,
                 const std::string& older_reason) {
  if (now.iteration && then.lower_bound && *now.iteration < *then.lower_bound) {
    claims.refuse(place + "/lower_bound_ns",
                  fmt::format("expected at most {}, which a plan takes, got {}", now.iteration->ns,
                              then.lower_bound->ns));
  }
  if (now.lower_bound && then.iteration && *then.iteration < *now.lower_bound) {
    claims.refuse(place + "/iteration_ns",
                  fmt::format("expected at least {}, as no plan takes less, got {}",
                              now.lower_bound->ns, then.iteration->ns));
  }
  const bool is_said_to_lack_memory = then.missing > Bytes{} && !then.lower_bound;
  if (now.iteration && is_said_to_lack_memory) {
    claims.refuse(place + "/missing_bytes",
                  fmt::format("expected 0, as a plan fits, got {}", then.missing.count));
  }
  return now.iteration == then.iteration && now.lower_bound == then.lower_bound &&
         now.shape == then.shape && now.missing == then.missing &&
         (now.reason == then.reason || older_reason == then.reason);
}

/// Calls `compare(place, now, then, older_reason)` with each outcome of a schedule family or form
/// of parallelism, as found now and as claimed, and the reason as files of older versions have it.
/// Requires: as many of each.
template <class Compare>
void for_each_outcome(const PlanDocument& fresh, const PlanDocument& claimed, Compare compare) {
  for (std::size_t i = 0; i < fresh.schedules.size(); ++i) {
    compare(fmt::format("/schedules/{}", i), fresh.schedules[i], claimed.schedules[i],
            fresh.schedules[i].reason);
  }
  const Duration plan = fastest_found(fresh);
  for (std::size_t i = 0; i < fresh.parallelisms.size(); ++i) {
    const ParallelismRecord& record = fresh.parallelisms[i];
    const std::string older_reason =
        !record.iteration || *record.iteration <= plan
            ? with_older_runtime(with_older_count(record.reason), claimed.request->target)
            : older_text_of({.kind = ParallelismOutcomeKind::Found,
                             .plan = plan,
                             .found = record.iteration,
                             .lower_bound = record.lower_bound});
    compare(fmt::format("/parallelisms/{}", i), record, claimed.parallelisms[i], older_reason);
  }
}

/// Whether a record states a bound below the one that is proven now, as files of older versions do,
/// whose bounds were weaker.
template <class Record>
bool has_weaker_bound(const Record& now, const Record& then) {
  return now.lower_bound && then.lower_bound && *then.lower_bound < *now.lower_bound;
}

/// Compares the records with those of the repeated search. Where that did other work, or has a
/// higher bound, as another version does, records may differ; what contradicts them is refused.
/// Returns how many differ then.
std::size_t compare_records(Claims& claims, const PlanDocument& fresh,
                            const PlanDocument& claimed) {
  const bool is_same_work = did_the_same_work(fresh.search, claimed.search);
  std::size_t different = 0;
  bool is_any_weaker = false;
  for_each_outcome(fresh, claimed,
                   [&](const auto& place, const auto& now, const auto& then, const auto& older) {
                     const bool is_weaker = has_weaker_bound(now, then);
                     is_any_weaker = is_any_weaker || is_weaker;
                     if (is_same_work && !is_weaker) {
                       compare_outcome(claims, place, now, then, older);
                     } else if (!agrees_with(now, claims, place, then, older)) {
                       ++different;
                     }
                   });
  if (!is_same_work) return different;
  if (claimed.search.fastest) {
    claims.expect("/search_space/fastest_ns", fastest_found(fresh), *claimed.search.fastest);
  }
  // With weaker bounds more was open.
  if (!is_any_weaker) claims.expect("/search_space/open", fresh.search.open, claimed.search.open);
  return different;
}

/// The states that a repeated search may have for each partial plan of the budget. They take about
/// ten times as long: half a minute by default.
constexpr std::int64_t kStatesOfAPartialPlan = 512;
/// What a simulation counts as besides its passes.
constexpr std::int64_t kStatesOfASimulation = 8;

}  // namespace

void repeat_search(Claims& claims, const ClaimedPlan& claimed, const VerifyOptions& options,
                   Progress* progress, PlanVerification& verification) {
  const PlanDocument& document = claimed.document;
  // A single requested family is the plan's own, whose record was checked already.
  const bool is_of_plan_alone =
      document.schedules.size() == 1 && document.request->family && !claimed.restriction;
  const bool has_families = !document.schedules.empty() && !is_of_plan_alone;
  if (!has_families && document.parallelisms.empty()) return;
  if (document.request->stopped_by != StopReason::None) {
    verification.unchecked.push_back({UncheckedKind::FamiliesOfStoppedSearch});
    return;
  }
  PlannerOptions asked = options_of(*document.request, document.plan.global_batch_size);
  // The records are of the search for the fastest plan.
  asked.jitter.reset();
  const auto passes =
      document.plan.num_micro_batches * static_cast<std::int64_t>(document.plan.stages.size());
  const bool is_limited =
      options.proof == nullptr && options.budget < INT64_MAX / kStatesOfAPartialPlan;
  // A pass in a simulation takes about as long as a state.
  BudgetedProgress budgeted(is_limited ? options.budget * kStatesOfAPartialPlan : INT64_MAX,
                            kStatesOfASimulation + passes, progress);
  const Topology topology{document.original_topology()};
  PlanningContext context{document.original_profile(), topology, asked, &budgeted};
  // Where plans are kept to choose among them, first plans are made by themselves.
  PlanPool pool;
  if (document.request->jitter) context.pool = &pool;
  const auto made = make_plan_of_any_parallelism(context, claimed.restriction);
  if (budgeted.has_ended()) {
    verification.is_stopped = verification.is_stopped || budgeted.is_stopped();
    verification.unchecked.push_back(
        {budgeted.is_stopped() ? UncheckedKind::Families : UncheckedKind::FamiliesBeyondBudget});
    return;
  }
  if (const auto* plan = std::get_if<MadePlan>(&made)) {
    const std::size_t different = compare_records(claims, plan->document, document);
    if (different > 0) {
      verification.unchecked.push_back(
          {.kind = UncheckedKind::RecordsOfAnotherSearch, .count = different});
    }
  } else {
    claims.refuse("/schedules", "expected none, as the search finds no plan, got some");
  }
}

}  // namespace dapple::planner
