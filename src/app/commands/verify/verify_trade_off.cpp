#include "dapple/planner/verify/verify_trade_off.h"

#include <fmt/format.h>

#include <algorithm>
#include <ostream>
#include <utility>
#include <vector>

#include "app/commands/json_result.h"
#include "app/commands/progress_line.h"
#include "app/commands/verify/verify_file.h"
#include "app/request/for_target.h"
#include "app/request/inputs.h"
#include "dapple/command_line/files.h"
#include "dapple/command_line/tool.h"
#include "dapple/io/documents/trade_off_document.h"
#include "dapple/planner/result/trade_off.h"
#include "dapple/report/show.h"
#include "dapple/report/table.h"

namespace dapple::app {
namespace {

/// Returns the topology of each search's plan, after the checks of every plan that is read. Throws
/// Error(BadInput) with the place of a plan that is not sound.
std::vector<std::optional<Topology>> topologies_of(const TradeOffDocument& document,
                                                   const std::string& source) {
  std::vector<std::optional<Topology>> topologies;
  for (std::size_t i = 0; i < document.searches.size(); ++i) {
    const std::optional<PlanDocument>& plan = document.searches[i].document;
    try {
      topologies.push_back(plan ? std::optional(make_subject(*plan, {}, source).topology)
                                : std::nullopt);
    } catch (const Error& error) {
      std::vector<Violation> violations = error.violations();
      for (Violation& violation : violations) {
        violation.place = fmt::format("/searches/{}/plan", i) + violation.place;
      }
      throw Error{error.kind(), error.source(), std::move(violations)};
    }
  }
  return topologies;
}

/// Says how the bound of a search was checked.
std::string check_text(const TradeOffSearch& search,
                       const planner::PlanVerification& verification) {
  switch (verification.bound) {
    case BoundCheck::NotStated:
      return search.document ? "the file states no bound" : "nothing is claimed";
    case BoundCheck::Proven:
      return "proven anew";
    default:
      return search.lower_bound.is_infinite()
                 ? "not proven anew"
                 : fmt::format("{} is proven anew", report::show(verification.proven));
  }
}

std::string searches_table(const TradeOffDocument& document,
                           const planner::TradeOffVerification& verification,
                           const report::TextStyle& style) {
  using report::Align;
  constexpr std::size_t kLeast = 12;
  report::Table table{{{"search", Align::Right},
                       {"topology", Align::Left, kLeast},
                       {"iteration", Align::Right},
                       {"no plan below", Align::Right},
                       {"", Align::Left, kLeast}}};
  for (std::size_t i = 0; i < document.searches.size(); ++i) {
    const TradeOffSearch& search = document.searches[i];
    const Prediction* const prediction = search.document ? &search.document->prediction : nullptr;
    const std::optional<Duration> bound =
        prediction != nullptr ? prediction->lower_bound : std::optional(search.lower_bound);
    table.add_row({{fmt::format("{}", i)},
                   {printable(search.searched_topology().name)},
                   {prediction != nullptr ? report::show(prediction->iteration) : "none"},
                   {!bound || *bound == Duration{} ? "-"
                    : bound->is_infinite()         ? "none fits"
                                                   : report::show(*bound)},
                   {check_text(search, verification.searches[i])}});
  }
  return table.text(2, style);
}

/// Returns " within the limits" if the request has any.
std::string within_limits(const TradeOffRequest& request) {
  const bool has_limits = request.slack || request.min_throughput || request.budget;
  return has_limits ? " within the limits" : "";
}

/// Says which plan is chosen.
std::string choice_text(const TradeOffDocument& document) {
  const TradeOffRequest& request = document.request;
  const char* which = request.objective == Objective::Time ? "the fastest plan"
                      : request.against == Against::Price  ? "the cheapest plan"
                                                           : "the plan of least memory";
  return fmt::format("search {}, {}{}", document.chosen, which, within_limits(request));
}

/// Says what is proven of all plans that the searches cover.
std::string claim_text(const TradeOffDocument& document) {
  const TradeOffClaim& claim = document.claim;
  const std::string no_plan = "no plan" + within_limits(document.request);
  if (claim.iteration > Duration{}) {
    return fmt::format("{} is faster than {}", no_plan, report::show(*claim.iteration));
  }
  if (claim.price > 0) {
    const bool has_prices =
        planner::has_prices(document.searches[document.chosen].searched_topology());
    return fmt::format("1,000 iterations of {} cost less than {:.4g}{}", no_plan, *claim.price,
                       has_prices ? "" : " device-hours");
  }
  if (claim.memory) {
    return fmt::format("{} fits within {} a device", no_plan, report::show(*claim.memory));
  }
  return "nothing about other plans";
}

/// Returns what was neither confirmed nor refuted, with the place of its search.
std::vector<std::string> unchecked_of(const planner::TradeOffVerification& verification) {
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < verification.searches.size(); ++i) {
    for (const planner::Unchecked& part : verification.searches[i].unchecked) {
      texts.push_back(fmt::format("search {}: {}", i, unchecked_reason(part)));
    }
  }
  return texts;
}

/// Returns all plans with the least of what was found of their bounds.
io::ResultDocument result_of(const TradeOffDocument& document, const std::string& file,
                             const planner::TradeOffVerification& verification) {
  io::VerificationResult found{.bound = BoundCheck::Proven};
  std::vector<io::PlanResult> plans;
  io::TradeOffResult claimed{
      .searches = {}, .front = document.front, .chosen = document.chosen, .claim = document.claim};
  for (std::size_t i = 0; i < document.searches.size(); ++i) {
    const planner::PlanVerification& search = verification.searches[i];
    if (search.bound == BoundCheck::NotProven) found.bound = BoundCheck::NotProven;
    found.is_stopped = found.is_stopped || search.is_stopped;
    found.partial_plans += search.partial_plans;
    found.simulated += search.simulated;
    const std::optional<PlanDocument>& plan = document.searches[i].document;
    claimed.searches.push_back(
        {.topology = document.searches[i].searched_topology().name,
         .iteration = plan ? std::optional(plan->prediction.iteration) : std::nullopt,
         .lower_bound = plan ? plan->prediction.lower_bound.value_or(Duration{})
                             : document.searches[i].lower_bound,
         .bound = search.bound});
    if (!plan) continue;
    io::PlanResult result = io::plan_result(*plan, file);
    result.warnings = plan->warnings;
    plans.push_back(std::move(result));
  }
  found.unchecked = unchecked_of(verification);
  const int code = verification.is_whole() ? command_line::kDone : command_line::kNotVerified;
  return {.command = "verify",
          .exit_code = code,
          .plans = std::move(plans),
          .verification = std::move(found),
          .trade_off = std::move(claimed)};
}

void print(const TradeOffDocument& document, const planner::TradeOffVerification& verification,
           const std::string& file, const std::string& end, command_line::Console& console) {
  const auto [stream, style] = console.words(false);
  const PlanDocument& chosen = *document.searches[document.chosen].document;
  const bool is_whole = verification.is_whole();
  std::string text = fmt::format(
      "{}: {}: {}, time against {}\n\n{}\n",
      is_whole ? "verified" : "nothing is false, but not all is verified", printable(file),
      printable(chosen.original_profile().name), to_string(document.request.against),
      searches_table(document, verification, style));
  const auto add = [&, &shown = style](const char* title, const std::string& line) {
    text += fmt::format("  {:<9}{}\n", title, report::fill_lines(printable(line), 11, shown));
  };
  add("chosen", choice_text(document));
  add("proven", claim_text(document) +
                    (is_whole ? "" : ", if all holds that the file claims of the searches"));
  for (const std::string& unchecked : unchecked_of(verification)) add("open", unchecked);
  const bool is_stopped =
      std::any_of(verification.searches.begin(), verification.searches.end(),
                  [](const planner::PlanVerification& search) { return search.is_stopped; });
  if (is_stopped) add("open", end);
  stream << text;
}

}  // namespace

int verify_trade_off(const VerifyRequest& request, const std::string& text,
                     command_line::Console& console) {
  const std::string source = command_line::source_name(request.file);
  const TradeOffDocument document = io::read_trade_off(text, source);
  const std::vector<std::optional<Topology>> topologies = topologies_of(document, source);
  StopReason reason = StopReason::None;
  planner::TradeOffVerification verification = [&] {
    ProgressLine progress{console, request.time_limit};
    planner::TradeOffVerification made = planner::verify_trade_off(
        document, topologies,
        [&](const PlanDocument& plan) { return restriction_in(plan, source); }, request.budget,
        &progress);
    reason = progress.stop_reason();
    return made;
  }();
  if (!verification.violations.empty()) {
    throw Error{ErrorKind::BadInput, source, std::move(verification.violations)};
  }
  if (request.is_json) {
    io::ResultDocument result = result_of(document, source, verification);
    const int code = result.exit_code;
    print_result(std::move(result), nullptr, console);
    return code;
  }
  print(document, verification, source, end_text(reason), console);
  if (verification.is_whole()) return command_line::kDone;
  command_line::print_warnings_if_quiet(console, {"nothing is false, but not all is verified"});
  return command_line::kNotVerified;
}

}  // namespace dapple::app
