#include "planner/verify/verify_baselines.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "dapple/plan/optimality.h"
#include "dapple/plan/record_text.h"
#include "dapple/planner/baselines/baselines.h"
#include "dapple/planner/parallelism/asked_parallelisms.h"
#include "planner/one_family/plan_one_family.h"
#include "planner/parallelism/best_uniform.h"
#include "planner/request/stop_question.h"
#include "planner/verify/verify_record.h"

namespace dapple::planner {
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

/// Adds the baseline over all forms of parallelism, made anew, if the file states one. Earlier
/// versions did not look at the interleaved schedule for it.
void add_best_uniform(const ClaimedPlan& claimed, const PlannerOptions& options, Progress* progress,
                      std::vector<BaselinePlan>& fresh) {
  const PlanDocument& document = claimed.document;
  const bool has_one =
      !document.baselines.empty() && document.baselines.back().name == kBestUniformName;
  if (!has_one || document.parallelisms.empty()) return;
  const Topology topology{document.original_topology()};
  const PlanningContext context{document.original_profile(), topology, options, progress};
  const std::vector<AskedParallelism> asked = asked_parallelisms(context, claimed.restriction);
  const UniformFamilies families = uniform_families(options, claimed.restriction);
  auto uniform = best_uniform(asked, context, families);
  const bool is_stated = uniform && uniform->figures.shape == document.baselines.back().shape;
  if (families.interleaved && !is_stated) {
    auto earlier = best_uniform(asked, context, {});
    if (earlier && earlier->figures.shape == document.baselines.back().shape) uniform = earlier;
  }
  if (uniform) fresh.push_back(*std::move(uniform));
}

void compare_baselines(Claims& claims, const ClaimedPlan& claimed,
                       const std::vector<BaselinePlan>& fresh) {
  const PlanDocument& document = claimed.document;
  const PlannerOptions options = options_of(*document.request, document.plan.global_batch_size);
  // Where the 1F1B search has no plan to start from, the families are searched without baselines.
  const bool has_start = std::any_of(fresh.begin(), fresh.end(), [&](const BaselinePlan& plan) {
    const bool is_dapple = plan.figures.name == *std::rbegin(kBaselineNames);
    if (plan.figures.name == kBestUniformName) return false;
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
  std::vector<BaselinePlan> fresh =
      plans_of_others({document.profile, claimed.topology, options, progress});
  add_best_uniform(claimed, options, progress, fresh);
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
