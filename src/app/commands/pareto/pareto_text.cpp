#include "app/commands/pareto/pareto_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "app/commands/csv_cell.h"
#include "dapple/plan/optimality.h"
#include "dapple/plan/plan.h"
#include "dapple/profile/parallelism.h"
#include "dapple/report/table.h"
#include "dapple/report/trade_off_plot.h"

namespace dapple::app {
namespace {

using report::Align;

std::string price_text(double price) {
  return fmt::format("{:.4g}", price);
}

/// Returns what costs of 1,000 iterations are called: a price, or hours of devices without prices.
const char* name_of_price(const Comparison& comparison) {
  return comparison.has_prices ? "price" : "device-hours";
}

/// Returns the search's remark, or what its plan is among the others.
std::string standing(const Shown& shown, std::size_t i) {
  const TradeOffPlan& plan = shown.comparison.plans[i];
  std::string text = plan.remark;
  const auto add = [&](const char* words) {
    text += (text.empty() ? "" : ", ") + std::string(words);
  };
  if (shown.is_on_front[i]) add("front");
  if (shown.chosen == i) add("chosen");
  return text;
}

std::string gap_text(const Prediction& prediction) {
  return prediction.optimality_gap ? report::show_percent(*prediction.optimality_gap) : "-";
}

/// Returns what tells the search of a plan from the others.
std::vector<report::Cell> subject_cells(const Shown& shown, const TradeOffPlan& plan) {
  if (shown.request.terms.against == Against::Price) {
    return {{fmt::format("{}", plan.devices)}, {plan.servers}};
  }
  return {
      {report::show(plan.point.memory_limit, shown.comparison.plans.front().point.memory_limit)}};
}

std::string cost_text(const Shown& shown, const TradeOffPlan& plan) {
  if (shown.request.terms.against == Against::Price)
    return price_text(planner::price_of_thousand(plan.point.cost));
  return report::show(plan.document()->prediction.most_memory(),
                      shown.comparison.plans.front().point.memory_limit);
}

/// Whether a search compared several forms of parallelism, or the plans' forms differ.
bool has_several_forms(const Comparison& comparison) {
  return std::any_of(comparison.plans.begin(), comparison.plans.end(),
                     [](const TradeOffPlan& plan) {
                       return plan.document() && (!plan.document()->parallelisms.empty() ||
                                                  !plan.document()->plan.parallelism.is_none());
                     });
}

/// Returns the form of parallelism of a plan, or those of its stages.
std::string form_text(const Plan& plan) {
  std::string text = short_text(plan.parallelism);
  for (const Parallelism& form : plan.stage_forms) text += "; " + short_text(form);
  return text;
}

std::string table_of(const Shown& shown, const report::TextStyle& style) {
  constexpr std::size_t kLeast = 12;
  const bool is_price = shown.request.terms.against == Against::Price;
  std::vector<report::Column> columns{{is_price ? "devices" : "allowed", Align::Right}};
  if (is_price) columns.push_back({"servers", Align::Left, kLeast});
  columns.push_back({"iteration", Align::Right});
  columns.push_back({"samples/s", Align::Right});
  columns.push_back({is_price ? name_of_price(shown.comparison) : "memory", Align::Right});
  columns.push_back({"gap", Align::Right});
  columns.push_back({"stages", Align::Left, kLeast});
  const bool has_forms = has_several_forms(shown.comparison);
  if (has_forms) columns.push_back({"parallelism", Align::Left, kLeast});
  columns.push_back({"", Align::Left, kLeast});
  const std::size_t count = columns.size();
  report::Table table{std::move(columns)};
  for (std::size_t i = 0; i < shown.comparison.plans.size(); ++i) {
    const TradeOffPlan& plan = shown.comparison.plans[i];
    std::vector<report::Cell> cells = subject_cells(shown, plan);
    if (plan.document()) {
      const Prediction& prediction = plan.document()->prediction;
      cells.push_back({report::show(prediction.iteration)});
      cells.push_back({report::show_rate(prediction.samples_per_second)});
      cells.push_back({cost_text(shown, plan)});
      cells.push_back({gap_text(prediction)});
      cells.push_back({shape_of(plan.document()->plan)});
      if (has_forms) cells.push_back({form_text(plan.document()->plan)});
    } else {
      cells.resize(count - 1, {"-"});
    }
    cells.push_back({standing(shown, i), plan.document() ? report::Ink::Plain : report::Ink::Bad});
    table.add_row(std::move(cells));
  }
  return table.text(0, style);
}

/// Returns what is proven about all plans that the searches cover.
std::string proof_text(const Shown& shown) {
  const TradeOffRequest& asked = shown.request.terms;
  const planner::TradeOffPoint& best = shown.points[*shown.chosen];
  const TradeOffClaim& claim = shown.claim;
  if (asked.against == Against::Memory && asked.objective == Objective::Cost) {
    if (!claim.memory) return "proven: nothing about plans that use less memory\n";
    return fmt::format("proven: no plan as asked for {}within {} a device\n",
                       shown.limits.iteration ? "and as fast fits " : "fits ",
                       report::show(*claim.memory));
  }
  const double bound =
      claim.iteration ? static_cast<double>(claim.iteration->ns) : claim.price.value_or(0);
  const double value = claim.iteration ? static_cast<double>(best.iteration->ns)
                                       : planner::price_of_thousand(best.cost);
  if (bound == 0 && value > 0) return "proven: nothing about other plans\n";
  std::string text =
      fmt::format("proven: no plan as asked for {} these {} {}",
                  shown.limits.iteration || shown.limits.cost ? "and within the limits on" : "on",
                  asked.against == Against::Price ? "clusters" : "devices",
                  claim.iteration ? "is faster" : "costs less");
  if (bound >= value) return text + '\n';
  return text +
         fmt::format(" than {}, {} below it\n",
                     claim.iteration ? report::show(*claim.iteration) : price_text(*claim.price),
                     report::show_percent(1 - bound / value));
}

/// Returns why no plan is chosen, as far as that is proven.
std::string no_choice_text(const Shown& shown) {
  const bool is_proven =
      !planner::bound_within(shown.points, shown.limits, shown.request.terms.objective);
  if (!shown.comparison.has_plans()) return is_proven ? "no plan fits\n" : "no plan was found\n";
  return is_proven ? "no plan is within the limits\n" : "no plan within the limits was found\n";
}

std::string choice_text(const Shown& shown) {
  const Comparison& comparison = shown.comparison;
  if (!shown.chosen) return no_choice_text(shown);
  const TradeOffPlan& plan = comparison.plans[*shown.chosen];
  std::string cost = cost_text(shown, plan);
  if (shown.request.terms.against == Against::Memory) {
    cost += " on the fullest device";
  } else {
    cost += comparison.has_prices ? " for 1,000 iterations" : " device-hours for 1,000 iterations";
  }
  return fmt::format("chosen: {} on {}, {}\n", report::show(*plan.point.iteration), plan.servers,
                     cost) +
         proof_text(shown);
}

}  // namespace

std::string pareto_table(const Shown& shown, const report::TextStyle& style) {
  if (shown.comparison.plans.empty()) {
    return shown.comparison.was_interrupted ? std::string() : "no cluster is small enough\n";
  }
  std::string text = table_of(shown, style) + '\n';
  if (shown.request.terms.against == Against::Price) {
    text +=
        shown.comparison.has_prices
            ? "Prices are of 1,000 iterations on all devices of the cluster.\n"
            : "Device-hours are of 1,000 iterations on all devices of the cluster; the topology "
              "states no prices.\n";
  }
  std::string last_fault;
  for (const TradeOffPlan& plan : shown.comparison.plans) {
    if (plan.fault.empty() || plan.fault == last_fault) continue;
    last_fault = plan.fault;
    text += fmt::format("impossible on {}: {}\n", plan.servers, printable(plan.fault));
  }
  return text + choice_text(shown);
}

std::string pareto_csv(const Shown& shown) {
  const std::string price = shown.comparison.has_prices ? "price" : "device_hours";
  std::string text = fmt::format(
      "devices,servers,memory_limit_bytes,iteration_ns,lower_bound_ns,samples_per_second,{0},"
      "least_{0},peak_memory_bytes,stages,front,chosen,remark,parallelism\n",
      price);
  for (std::size_t i = 0; i < shown.comparison.plans.size(); ++i) {
    const TradeOffPlan& plan = shown.comparison.plans[i];
    const planner::TradeOffPoint& point = plan.point;
    std::vector<std::string> cells{fmt::format("{}", plan.devices), csv_cell(plan.servers),
                                   fmt::format("{}", plan.point.memory_limit.count)};
    const auto price_at = [&](Duration time) {
      return fmt::format("{}", planner::price_of_thousand(plan.price_per_hour * time.ns));
    };
    const bool is_bounded = !point.least_iteration.is_infinite();
    const Prediction* const prediction = plan.document() ? &plan.document()->prediction : nullptr;
    cells.push_back(point.iteration ? fmt::format("{}", point.iteration->ns) : "");
    cells.push_back(is_bounded ? fmt::format("{}", point.least_iteration.ns) : "");
    cells.push_back(prediction != nullptr ? fmt::format("{}", prediction->samples_per_second) : "");
    cells.push_back(point.iteration ? price_at(*point.iteration) : "");
    cells.push_back(is_bounded ? price_at(point.least_iteration) : "");
    cells.push_back(prediction != nullptr ? fmt::format("{}", prediction->most_memory().count)
                                          : "");
    cells.push_back(prediction != nullptr ? csv_cell(shape_of(plan.document()->plan)) : "");
    cells.emplace_back(shown.is_on_front[i] ? "yes" : "no");
    cells.emplace_back(shown.chosen == i ? "yes" : "no");
    cells.push_back(csv_cell(plan.fault.empty() ? plan.remark : printable(plan.fault)));
    cells.push_back(plan.document() ? csv_cell(form_text(plan.document()->plan)) : "");
    text += fmt::format("{}\n", fmt::join(cells, ","));
  }
  return text;
}

std::optional<std::string> pareto_plot(const Shown& shown) {
  const bool is_price = shown.request.terms.against == Against::Price;
  std::vector<report::PlotPoint> points;
  std::string model;
  for (std::size_t i = 0; i < shown.comparison.plans.size(); ++i) {
    const TradeOffPlan& plan = shown.comparison.plans[i];
    if (!plan.document()) continue;
    constexpr double kBytesOfGiB = 1024.0 * 1024 * 1024;
    const double memory =
        static_cast<double>(plan.document()->prediction.most_memory().count) / kBytesOfGiB;
    const double cost = is_price ? planner::price_of_thousand(plan.point.cost) : memory;
    model = plan.document()->original_profile().name;
    points.push_back({.x = cost,
                      .y = static_cast<double>(plan.point.iteration->ns) * 1e-9,
                      .label = is_price ? fmt::format("{}", plan.devices) : std::string(),
                      .is_on_front = shown.is_on_front[i],
                      .is_chosen = shown.chosen == i});
  }
  if (points.empty()) return std::nullopt;
  const std::string against = !is_price ? "GiB on the fullest device"
                              : shown.comparison.has_prices
                                  ? "price of 1,000 iterations, by number of devices"
                                  : "device-hours of 1,000 iterations, by number of devices";
  return report::draw_trade_off(std::move(points), {.title = printable(model) + ": simulated plans",
                                                    .x = against,
                                                    .y = "seconds of an iteration"});
}

}  // namespace dapple::app
