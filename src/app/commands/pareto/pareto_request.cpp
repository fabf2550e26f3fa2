#include "app/commands/pareto/pareto_request.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

namespace dapple::app {
namespace {

using command_line::OptionSection;
using command_line::ValueKind;

/// Options of plan that have no meaning for many plans.
constexpr std::array<std::string_view, 12> kOfOnePlan = {
    "alternatives", "explain", "jitter", "json",  "no-baselines",       "orders",
    "output",       "proof",   "seed",   "trace", "write-alternatives", "write-baselines"};

OptionSection trade_off() {
  return {"Trade-off",
          {{.name = "against",
            .value = "WHAT",
            .choices = {"price", "memory"},
            .text = "Compare time with {}.",
            .default_value = "price",
            .details = "With price plans for fewer servers and fewer devices are made, and all "
                       "devices of such a cluster are paid for. Where no device has a price, "
                       "each costs 1 an hour. With memory plans are made for less and less "
                       "memory on every device, 5 % at a time, until none fits."},
           {.name = "objective",
            .value = "WHAT",
            .choices = {"cost", "time"},
            .text = "Choose the plan of least {}.",
            .default_value = "cost",
            .details = "The cost is the price, or the most memory of any device."},
           {.name = "max-devices", .value = "N", .text = "Take clusters of at most N devices."},
           {.name = "min-throughput",
            .value = "X",
            .text = "Choose a plan of at least X samples per second."},
           {.name = "budget",
            .value = "X",
            .text = "Choose a plan whose 1,000 iterations cost at most X.",
            .details = "X is a price or, where no device has one, device-hours."},
           {.name = "slack",
            .value = "X",
            .text = "Choose a plan at most X slower than the fastest, such as \"5%\"."}}};
}

OptionSection outputs() {
  return {
      "Output",
      {{.name = "output",
        .letter = 'o',
        .value = "FILE",
        .kind = ValueKind::File,
        .text = "Write the chosen plan."},
       {.name = "certificate",
        .value = "FILE",
        .kind = ValueKind::File,
        .text = "Write all plans and what they prove, for verify."},
       {.name = "plot", .value = "FILE", .kind = ValueKind::File, .text = "Draw all plans as SVG."},
       {.name = "csv", .text = "Print a row for each plan as CSV."}}};
}

}  // namespace

std::vector<OptionSection> pareto_options() {
  std::vector<OptionSection> sections = plan_options();
  for (OptionSection& section : sections) {
    std::erase_if(section.options, [](const command_line::OptionSpec& option) {
      return std::find(kOfOnePlan.begin(), kOfOnePlan.end(), option.name) != kOfOnePlan.end();
    });
    for (command_line::OptionSpec& option : section.options) {
      if (option.name != "time-limit") continue;
      option.text = "Stop the search for each plan after SECONDS.";
      option.details = "Ctrl-C stops all of them.";
    }
    // The help of plan has them in full.
    section.is_brief = !section.title.empty();
  }
  std::erase_if(sections, [](const OptionSection& section) { return section.options.empty(); });
  sections.insert(sections.begin() + 1, {trade_off(), outputs()});
  return sections;
}

ParetoRequest pareto_request(const command_line::Options& options) {
  constexpr std::int64_t kMostNumber = 1'000'000'000;
  ParetoRequest request{
      .plan = plan_request(options),
      .terms = {.min_throughput = options.positive_number("min-throughput", kMostNumber),
                .budget = options.positive_number("budget", kMostNumber),
                .slack = options.fraction("slack")},
      .max_devices = options.positive_integer("max-devices", kMaxCount),
      .certificate = options.text("certificate"),
      .plot = options.text("plot"),
      .is_csv = options.has("csv")};
  request.plan.planner.baselines = false;
  if (options.choice("against") == "memory") request.terms.against = Against::Memory;
  if (options.choice("objective") == "time") request.terms.objective = Objective::Time;
  if (request.terms.slack && !request.terms.budget && request.terms.objective == Objective::Time) {
    throw command_line::usage_error(
        "--slack", "needs --objective cost or --budget, as the fastest plan is within any slack");
  }
  if (request.plan.planner.planner == PlannerKind::Dapple) {
    throw command_line::usage_error("--planner", "expected exact, which proves bounds, got dapple");
  }
  if (request.terms.against == Against::Memory) {
    for (const char* name : {"max-devices", "budget"}) {
      if (options.has(name)) {
        throw command_line::usage_error(std::string("--") + name, "needs --against price");
      }
    }
    if (request.plan.planner.ignore_memory) {
      throw command_line::usage_error("--unlimited-memory", "needs --against price");
    }
  }
  return request;
}

}  // namespace dapple::app
