#include <fmt/format.h>

#include <ostream>
#include <utility>
#include <vector>

#include "app/commands/commands.h"
#include "app/commands/pareto/pareto_request.h"
#include "app/commands/pareto/pareto_text.h"
#include "app/commands/pareto/trade_off_plans.h"
#include "app/request/inputs.h"
#include "dapple/command_line/files.h"
#include "dapple/io/documents/documents.h"
#include "dapple/io/documents/trade_off_document.h"

namespace dapple::app {
namespace {

void check_pareto_outputs(const ParetoRequest& request) {
  std::vector<command_line::NamedPath> outputs;
  if (request.plan.output) outputs.push_back({"--output", *request.plan.output});
  if (request.certificate) outputs.push_back({"--certificate", *request.certificate});
  if (request.plot) outputs.push_back({"--plot", *request.plot});
  if (request.is_csv) outputs.push_back({"--csv", "-"});
  check_outputs(outputs, {{"--model", request.plan.model}, {"--topo", request.plan.topology}});
}

/// Returns the trade-off as a file states it. Requires: a plan is chosen.
TradeOffDocument certificate_of(const Shown& shown) {
  TradeOffDocument document{.tool = kTool,
                            .request = shown.request.terms,
                            .searches = {},
                            .front = {},
                            .chosen = *shown.chosen,
                            .claim = shown.claim};
  for (std::size_t i = 0; i < shown.points.size(); ++i) {
    document.searches.push_back(shown.comparison.plans[i].search);
    if (shown.is_on_front[i]) document.front.push_back(i);
  }
  return document;
}

int run_pareto(const command_line::Options& options, command_line::Console& console) {
  const ParetoRequest request = pareto_request(options);
  check_pareto_outputs(request);
  const Comparison comparison = compare_plans(request, console);
  const std::vector<planner::TradeOffPoint> points = comparison.points();
  const planner::TradeOffLimits limits =
      planner::limits_of(request.terms, points, comparison.global_batch_size);
  const std::vector<bool> is_on_front = planner::pareto_front(points);
  const TradeOffClaim claim = planner::claim_of(request.terms, points, limits);
  const Shown shown{request,     comparison,
                    points,      limits,
                    is_on_front, planner::best_within(points, limits, request.terms.objective),
                    claim};
  const bool out_is_taken = request.is_csv || request.plan.output == "-" ||
                            request.certificate == "-" || request.plot == "-";
  const auto [stream, style] = console.words(out_is_taken);
  command_line::Results results(console);
  if (request.plan.output && shown.chosen) {
    results.add(*request.plan.output, io::write_plan(*comparison.plans[*shown.chosen].document()));
  }
  if (request.certificate && shown.chosen) {
    results.add(*request.certificate, io::write_trade_off(certificate_of(shown)));
  }
  if (request.plot) {
    if (std::optional<std::string> plot = pareto_plot(shown)) {
      results.add(*request.plot, *std::move(plot));
    }
  }
  results.commit();
  for (const std::string& left_out : comparison.left_out) {
    command_line::print_warning(console, left_out);
  }
  for (const TradeOffPlan& plan : comparison.plans) {
    if (plan.unproven.empty() || !shown.chosen) continue;
    command_line::print_warning(
        console, fmt::format("the certificate has no proof of the bound on {}: {}", plan.servers,
                             plan.unproven));
  }
  if (request.is_csv) console.documents << pareto_csv(shown);
  stream << pareto_table(shown, style);
  if (comparison.was_interrupted) stream << "interrupted: further plans were not searched\n";
  if (request.plot && comparison.has_plans() && *request.plot != "-") {
    stream << "plot written to " << printable(*request.plot) << '\n';
  }
  if (!shown.chosen) return command_line::kInfeasible;
  if (request.plan.output && *request.plan.output != "-") {
    stream << "plan written to " << printable(*request.plan.output) << '\n';
  }
  if (request.certificate && *request.certificate != "-") {
    stream << "certificate written to " << printable(*request.certificate) << '\n';
  }
  return command_line::kDone;
}

}  // namespace

command_line::Command pareto_command() {
  return {
      .description =
          {.name = "pareto",
           .summary = "weigh time against the price of a cluster, or against memory",
           .usage = {"dapple-plan pareto --model PROFILE --topo TOPOLOGY [options]"},
           .details =
               {"A plan is made for every smaller cluster of the topology's servers, or for less "
                "and less memory on every device. Those that no other plan beats in both "
                "quantities are marked, one is chosen, and what is proven of all plans follows "
                "from the bounds of all searches.",
                "A topology states the price of a device as \"price_per_hour\". All devices of a "
                "cluster are paid for, whether a plan uses them or not."},
           .options = pareto_options(),
           .examples = {"dapple-plan pareto --model profiles/bert-48.json --topo "
                        "topologies/2x8xV100.json --plot bert.svg"},
           .exit_codes = {{command_line::kInfeasible, "no plan is within the limits"}}},
      .run = run_pareto};
}

}  // namespace dapple::app
