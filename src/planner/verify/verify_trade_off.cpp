#include "dapple/planner/verify/verify_trade_off.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <variant>

#include "dapple/cost/compatible.h"
#include "dapple/planner/parallelism/plan_parallelisms.h"
#include "dapple/planner/result/trade_off.h"
#include "planner/verify/claims.h"

namespace dapple::planner {
namespace {

/// Returns what was asked of all searches, as it is for a topology. Requests leave out what has no
/// effect on theirs: shares by speed, and that collectives share links.
PlannerOptions options_for(const Topology& topology, const TradeOffDocument& document,
                           const PlanDocument& some) {
  PlannerOptions options = options_of(*some.request, some.plan.global_batch_size);
  options.baselines = false;
  options.jitter.reset();
  options.shares = Shares::Any;
  for (const TradeOffSearch& search : document.searches) {
    if (!search.document) continue;
    const PlanRequest& request = *search.document->request;
    if (request.mode.contention == Contention::SharedWithCollectives) {
      options.contention = Contention::SharedWithCollectives;
    }
    const Topology of_plan{search.document->original_topology()};
    if (has_shares_by_speed(options, of_plan)) options.shares = request.shares;
  }
  if (options.contention == Contention::SharedWithCollectives &&
      !may_span_servers(options, some.original_profile(), topology)) {
    options.contention = Contention::Shared;
  }
  return options;
}

/// Searches again for a plan where none was found, as for those that were.
PlanVerification search_again(const TradeOffSearch& search, const TradeOffDocument& document,
                              const PlanDocument& some,
                              const std::optional<PlanRestriction>& restriction, Progress* progress,
                              const std::string& place, Claims& claims) {
  PlanVerification found;
  if (search.lower_bound == Duration{}) return found;
  const ModelProfile& profile = some.original_profile();
  const Topology topology{search.topology};
  for (Violation& fault : check_compatible(profile, topology, some.plan.global_batch_size)) {
    const bool is_of_topology = fault.place.starts_with("/devices");
    claims.refuse(place + "/topology" + (is_of_topology ? fault.place : ""),
                  std::move(fault.message));
  }
  if (!claims.empty()) return found;
  const PlannerOptions options = options_for(topology, document, some);
  const PlanningContext context{profile, topology, options, progress};
  try {
    const auto result = make_plan_of_any_parallelism(context, restriction);
    if (const auto* infeasible = std::get_if<Infeasible>(&result)) {
      const bool has_no_plans = !infeasible->stopped && infeasible->is_proven();
      found.is_stopped = infeasible->stopped;
      found.proven = has_no_plans ? Duration::infinite() : infeasible->lower_bound;
    } else {
      const Prediction& prediction = std::get<MadePlan>(result).document.prediction;
      found.proven = prediction.lower_bound.value_or(Duration{});
      if (prediction.iteration < search.lower_bound) {
        claims.refuse(
            place + "/lower_bound_ns",
            fmt::format("expected at most {}, which a plan takes, got {}", prediction.iteration.ns,
                        search.lower_bound.is_infinite()
                            ? "null"
                            : fmt::format("{}", search.lower_bound.ns)));
      }
    }
  } catch (const Error& error) {
    // Pins and sharding that the topology cannot have leave no plan; of other faults nothing is
    // known.
    const std::string& at = error.violations().front().place;
    if (at == "/request/pins" || at == "/request/sharding") found.proven = Duration::infinite();
  }
  found.bound = found.proven >= search.lower_bound ? BoundCheck::Proven : BoundCheck::NotProven;
  found.proof = BoundProof::Search;
  return found;
}

std::string text_of(const TradeOffClaim& claim) {
  std::vector<std::string> parts;
  if (claim.iteration) parts.push_back(fmt::format("\"iteration_ns\": {}", claim.iteration->ns));
  if (claim.price) parts.push_back(fmt::format("\"price\": {}", *claim.price));
  if (claim.memory) parts.push_back(fmt::format("\"memory_bytes\": {}", claim.memory->count));
  return fmt::format("{{{}}}", fmt::join(parts, ", "));
}

/// Checks that prices can be compared: all topologies have them or none, and each kind of device
/// has the same everywhere.
void check_prices(Claims& claims, const std::vector<TradeOffSearch>& searches) {
  std::map<std::string, std::optional<Factor>> prices;
  const bool are_priced = has_prices(searches.front().searched_topology());
  for (std::size_t i = 0; i < searches.size(); ++i) {
    const TopologyDescription& topology = searches[i].searched_topology();
    const std::string place =
        fmt::format("/searches/{}{}/topology{}", i, searches[i].document ? "/plan" : "",
                    searches[i].document ? "/description" : "");
    if (has_prices(topology) != are_priced) {
      claims.refuse(place,
                    fmt::format("expected {}, as in the first search, got {}",
                                are_priced ? "prices" : "no prices", are_priced ? "none" : "some"));
      return;
    }
    try {
      price_per_hour(topology, "");
    } catch (const Error& error) {
      const Violation& fault = error.violations().front();
      claims.refuse(place + fault.place, fault.message);
      return;
    }
    for (const DeviceKind& kind : topology.devices) {
      const auto [known, is_new] = prices.try_emplace(kind.name, kind.price_per_hour);
      if (known->second == kind.price_per_hour) continue;
      claims.refuse(fmt::format("{}/devices/{}/price_per_hour", place, kind.name),
                    "expected the price that the kind has in an earlier search, got another");
      return;
    }
  }
}

/// Checks what the file derives from its searches.
void check_conclusions(Claims& claims, const TradeOffDocument& document, const PlanDocument& some) {
  if (document.request.against == Against::Price) check_prices(claims, document.searches);
  if (!claims.empty()) return;
  std::vector<TradeOffPoint> points;
  for (const TradeOffSearch& search : document.searches) {
    points.push_back(point_of(search, document.request.against, ""));
  }
  const TradeOffLimits limits = limits_of(document.request, points, some.plan.global_batch_size);
  std::vector<std::size_t> front;
  const std::vector<bool> is_on_front = pareto_front(points);
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (is_on_front[i]) front.push_back(i);
  }
  if (front != document.front) {
    claims.refuse("/front", fmt::format("expected [{}], got [{}]", fmt::join(front, ", "),
                                        fmt::join(document.front, ", ")));
  }
  const auto chosen = best_within(points, limits, document.request.objective);
  if (chosen != document.chosen) {
    claims.refuse("/chosen",
                  fmt::format("expected {}, got {}",
                              chosen ? fmt::format("{}", *chosen) : "no plan", document.chosen));
  }
  const TradeOffClaim claim = claim_of(document.request, points, limits);
  claims.expect("/proven", text_of(claim), text_of(document.claim));
}

}  // namespace

bool TradeOffVerification::is_whole() const {
  return violations.empty() &&
         std::all_of(searches.begin(), searches.end(),
                     [](const PlanVerification& search) { return search.is_whole(); });
}

TradeOffVerification verify_trade_off(
    const TradeOffDocument& document, const std::vector<std::optional<Topology>>& topologies,
    const std::function<std::optional<PlanRestriction>(const PlanDocument&)>& restriction_of,
    std::int64_t budget, Progress* progress) {
  Claims claims;
  TradeOffVerification verification;
  const auto with_plan =
      std::find_if(document.searches.begin(), document.searches.end(),
                   [](const TradeOffSearch& search) { return search.document.has_value(); });
  check(with_plan != document.searches.end(), "a trade-off has no plan");
  const PlanDocument& some = *with_plan->document;
  check_conclusions(claims, document, some);
  const std::optional<PlanRestriction> restriction = restriction_of(some);
  for (std::size_t i = 0; i < document.searches.size() && claims.empty(); ++i) {
    const TradeOffSearch& search = document.searches[i];
    const std::string place = fmt::format("/searches/{}", i);
    if (!search.document) {
      verification.searches.push_back(
          search_again(search, document, some, restriction, progress, place, claims));
      continue;
    }
    VerifyOptions options{.restriction = restriction_of(*search.document)};
    options.budget = budget;
    options.proof = search.proof ? &*search.proof : nullptr;
    PlanVerification found = verify(*search.document, topologies[i].value(), options, progress);
    for (Violation& violation : found.violations) {
      claims.refuse(place + "/plan" + violation.place, std::move(violation.message));
    }
    for (Violation& violation : found.proof_faults) {
      claims.refuse(place + "/proof" + violation.place, std::move(violation.message));
    }
    found.violations.clear();
    found.proof_faults.clear();
    verification.searches.push_back(std::move(found));
  }
  verification.violations = claims.take();
  return verification;
}

}  // namespace dapple::planner
