#include "app/commands/pareto/trade_off_plans.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <variant>

#include "app/commands/pareto/variations.h"
#include "app/commands/plan/planning.h"
#include "app/commands/progress_line.h"
#include "app/request/for_target.h"
#include "dapple/report/show.h"
#include "dapple/topology/topology.h"

namespace dapple::app {
namespace {

/// How far the limit of memory falls below what the last plan uses, and how often at most.
constexpr std::int64_t kPercentOfLast = 95;
constexpr std::size_t kMostLimits = 64;

/// Returns the first fault of an error with its place, such as an option.
std::string text_of(const Error& error) {
  const Violation& fault = error.violations().front();
  std::string place = error.source();
  if (!fault.place.empty()) place += (place.empty() ? "" : ": ") + fault.place;
  return place.empty() ? fault.message : place + ": " + fault.message;
}

class PlanComparer {
 public:
  PlanComparer(const ParetoRequest& request, command_line::Console& console);

  Comparison run();

 private:
  void compare_prices();
  void compare_memory();
  TradeOffPlan subject(TopologyDescription topology) const;
  void prove_bound(TradeOffPlan& plan);
  void search(TradeOffPlan subject);
  bool is_out_of_limits(const TradeOffPlan& plan) const;

  const ParetoRequest& request_;
  const SearchInputs inputs_;
  const std::string source_name_;
  planner::PlannerOptions planner_;
  ProgressLine progress_;
  Comparison found_;
  std::optional<Error> last_error_;
};

PlanComparer::PlanComparer(const ParetoRequest& request, command_line::Console& console)
    : request_(request),
      inputs_(load_inputs(request.plan)),
      source_name_(command_line::source_name(request.plan.topology)),
      planner_(request.plan.planner),
      progress_(console, request.plan.time_limit) {
  planner_.global_batch_size = global_batch_of(request.plan, inputs_.profile);
  found_.global_batch_size = planner_.global_batch_size;
  const Topology whole{inputs_.topology, source_name_};
  check_suited(request.plan, inputs_.profile, whole, planner_.global_batch_size);
  // Throws for pins that no smaller cluster can have either.
  pins_of(request.plan, inputs_.profile, whole);
  found_.has_prices = planner::has_prices(inputs_.topology);
}

Comparison PlanComparer::run() {
  if (request_.terms.against == Against::Price) {
    compare_prices();
  } else {
    compare_memory();
  }
  const bool is_impossible =
      std::all_of(found_.plans.begin(), found_.plans.end(),
                  [](const TradeOffPlan& plan) { return !plan.fault.empty(); });
  if (last_error_ && is_impossible) throw Error{*last_error_};
  progress_.clear();
  return std::move(found_);
}

void PlanComparer::compare_prices() {
  // Throws for a device without a price before anything is searched.
  planner::price_per_hour(inputs_.topology, source_name_);
  for (TopologyDescription& cluster :
       smaller_clusters(inputs_.topology, source_name_, found_.left_out)) {
    if (request_.max_devices && device_count(cluster) > *request_.max_devices) break;
    search(subject(std::move(cluster)));
    if (found_.was_interrupted) return;
  }
}

void PlanComparer::compare_memory() {
  search(subject(inputs_.topology));
  while (!found_.was_interrupted && found_.plans.back().document() &&
         found_.plans.size() < kMostLimits && !is_out_of_limits(found_.plans.back())) {
    const Bytes last = found_.plans.back().document()->prediction.most_memory();
    search(subject(named_with_memory_limit(inputs_.topology, {last.count / 100 * kPercentOfLast})));
  }
}

/// Whether it is proven that no plan within this or a smaller limit of memory is fast enough.
bool PlanComparer::is_out_of_limits(const TradeOffPlan& plan) const {
  const std::optional<Duration> most =
      planner::limits_of(request_.terms, found_.points(), found_.global_batch_size).iteration;
  return most && plan.point.least_iteration > *most;
}

TradeOffPlan PlanComparer::subject(TopologyDescription topology) const {
  TradeOffPlan plan{.search = {},
                    .devices = device_count(topology),
                    .servers = servers_text(topology, inputs_.topology),
                    .price_per_hour = planner::price_per_hour(topology, source_name_)};
  plan.search.topology = std::move(topology);
  return plan;
}

/// Adds the proof of the plan's bound, if it is proven again before a signal is received.
void PlanComparer::prove_bound(TradeOffPlan& plan) {
  if (progress_.stop_reason() == StopReason::Signal) {
    plan.unproven = "the search was interrupted";
    return;
  }
  progress_.restart(std::nullopt);
  const PlanDocument& document = *plan.search.document;
  ProofEnd end = prove(document, Topology{document.topology},
                       restriction_in(document, source_name_), progress_);
  plan.search.proof = std::move(end.proof);
  plan.unproven = std::move(end.why_not);
}

/// Searches for a plan. What is asked for may be impossible with fewer devices or less memory; if
/// it is with all of them, run() says so.
void PlanComparer::search(TradeOffPlan plan) {
  progress_.restart(request_.plan.time_limit);
  if (progress_.should_stop() && progress_.stop_reason() == StopReason::Signal) {
    found_.was_interrupted = true;
    return;
  }
  try {
    const Topology topology{plan.search.topology, source_name_};
    auto result = plan_as_requested(request_.plan, inputs_.profile, topology, planner_, progress_);
    if (auto* made = std::get_if<planner::MadePlan>(&result)) {
      complete_document(*made, inputs_, progress_.stop_reason(), request_.plan.time_limit);
      plan.search.document = std::move(made->document);
    } else {
      const auto& infeasible = std::get<planner::Infeasible>(result);
      const bool has_no_plans = !infeasible.stopped && infeasible.is_proven();
      plan.remark = has_no_plans ? "no plan fits" : "none found";
      if (infeasible.missing() > Bytes{}) {
        plan.remark += fmt::format(", {}{} short", infeasible.is_least_shortage ? "at least " : "",
                                   report::show(infeasible.missing()));
      }
      plan.search.lower_bound = has_no_plans ? Duration::infinite() : infeasible.lower_bound;
    }
  } catch (const Error& error) {
    plan.remark = "impossible";
    plan.fault = text_of(error);
    last_error_ = error;
    // Pins and sharding that are impossible leave no plan at all; of other faults nothing is known.
    const bool has_no_plans = error.kind() == ErrorKind::Usage || error.source() == "--pin" ||
                              error.source() == "--shard";
    plan.search.lower_bound = has_no_plans ? Duration::infinite() : Duration{};
  }
  if (progress_.stop_reason() != StopReason::None) {
    plan.remark += plan.remark.empty() ? "stopped" : ", stopped";
  }
  plan.point = planner::point_of(plan.search, request_.terms.against, source_name_);
  if (request_.certificate && plan.search.document) prove_bound(plan);
  found_.was_interrupted = progress_.stop_reason() == StopReason::Signal;
  found_.plans.push_back(std::move(plan));
}

}  // namespace

std::vector<planner::TradeOffPoint> Comparison::points() const {
  std::vector<planner::TradeOffPoint> points;
  for (const TradeOffPlan& plan : plans) points.push_back(plan.point);
  return points;
}

bool Comparison::has_plans() const {
  return std::any_of(plans.begin(), plans.end(),
                     [](const TradeOffPlan& plan) { return plan.document().has_value(); });
}

Comparison compare_plans(const ParetoRequest& request, command_line::Console& console) {
  return PlanComparer(request, console).run();
}

}  // namespace dapple::app
