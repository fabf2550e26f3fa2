#include "app/commands/plan/planning.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "app/request/for_target.h"
#include "app/request/inputs.h"
#include "app/request/pins.h"
#include "app/request/runtimes.h"
#include "dapple/cost/compatible.h"
#include "dapple/io/documents/documents.h"
#include "dapple/io/files/read_file.h"
#include "dapple/plan/optimality.h"
#include "dapple/planner/parallelism/plan_parallelisms.h"
#include "dapple/planner/request/warnings.h"
#include "dapple/planner/verify/make_proof.h"
#include "dapple/profile/collective.h"
#include "dapple/profile/context_exchanges.h"
#include "dapple/profile/doubts.h"
#include "dapple/profile/variants.h"

namespace dapple::app {
namespace {

/// Returns what is said of options that have no effect, as the profile lacks the variants of layers
/// that they are about.
std::vector<std::string> options_without_effect(const planner::PlannerOptions& planner,
                                                const ModelProfile& profile) {
  const std::vector<Parallelism> forms = parallelisms_of(profile);
  const auto has_any = [&](auto property) {
    return std::any_of(forms.begin(), forms.end(), property);
  };
  std::vector<std::string> texts;
  const auto add = [&](const char* option, const char* lacking) {
    texts.push_back(fmt::format("{} has no effect, as the profile has no variants of layers {}",
                                option, lacking));
  };
  std::int64_t largest = 1;
  for (const Parallelism& form : forms) largest = std::max(largest, form.tensor);
  if (planner.max_tensor && largest == 1) {
    add("--max-tensor", "with tensor parallelism");
  } else if (planner.max_tensor && 2 * largest <= *planner.max_tensor) {
    // Only estimates state a precision.
    texts.push_back(fmt::format(
        "--max-tensor {}: the largest degree is {}, {}", *planner.max_tensor, largest,
        profile.precision.empty()
            ? "as not all layers have variants of larger ones"
            : "as larger powers of two do not divide the model's heads, widths or tokens"));
  }
  const bool has_shards = planner.sharding == Sharding::Full || planner.sharding == Sharding::Any;
  if (planner.mixes_forms && forms.size() == 1 && !has_shards) {
    add("--per-stage", "in another form of parallelism");
  }
  if (planner.recomputed_layers == RecomputedLayers::Any &&
      !has_any([](const Parallelism& form) { return !form.recomputes.none(); })) {
    add("--recompute-layers auto", "that recompute");
  }
  return texts;
}

/// Returns which forms that pins allow the target cannot run because of how their context ranks
/// exchange keys and values, and which option keeps them; empty if there are none.
std::string forms_left_out(const PlanCommandRequest& request, const ModelProfile& profile,
                           bool is_estimate) {
  if (!request.target) return "";
  const ContextExchanges known = context_exchanges_of(*request.target);
  if (!known.any()) return "";
  const auto& pinned = request.foreign.estimate.options.pinned;
  std::set<std::int64_t> degrees;
  std::set<std::string> lacking;
  for (const Parallelism& form : parallelisms_of(profile)) {
    if (form.context == 1 || (pinned && !pinned->allow_degrees(form))) continue;
    const std::optional<ContextExchange> exchange = context_exchange_of(profile, form);
    if (known.include(exchange)) continue;
    degrees.insert(form.context);
    lacking.emplace(to_string(*exchange));
  }
  if (degrees.empty()) return "";
  std::vector<std::string> kinds;
  for (const ContextExchange exchange : kContextExchanges) {
    if (known.include(exchange)) kinds.emplace_back(to_string(exchange));
  }
  std::string text = fmt::format(
      "forms with context {} are left out, as {} has no context parallelism by {}, by which they "
      "are priced",
      fmt::join(degrees, ", "), *request.target, fmt::join(lacking, " or "));
  if (is_estimate) text += fmt::format("; --context-kind {} keeps them", fmt::join(kinds, " or "));
  return text;
}

}  // namespace

SearchInputs load_inputs(const PlanCommandRequest& request) {
  command_line::check_inputs({{"--model", request.model}, {"--topo", request.topology}});
  std::optional<TopologyDescription> topology;
  const auto loaded_topology = [&]() -> const TopologyDescription& {
    if (!topology) topology = load_topology(request.topology);
    return *topology;
  };
  const std::string text = io::read_file(request.model);
  interop::ImportedProfile imported =
      profile_of(text, request.model, request.foreign, loaded_topology);
  std::optional<ModelProfile> launched_sooner;
  if (request.explains && is_estimated(text, request.foreign)) {
    ForeignRequest halved = request.foreign;
    halved.estimate.launch_share = Factor{kOne.billionths / 2};
    ModelProfile other = profile_of(text, request.model, halved, loaded_topology).profile;
    // A calibration may have no floors.
    if (io::write_profile(other) != io::write_profile(imported.profile)) {
      launched_sooner = std::move(other);
    }
  }
  loaded_topology();
  SearchInputs inputs{.profile = std::move(imported.profile),
                      .launched_sooner = std::move(launched_sooner),
                      .topology = *std::move(topology),
                      .runtime = {},
                      .warnings = std::move(imported.warnings)};
  inputs.profile.skip_tensors = request.skip_tensors;
  if (inputs.launched_sooner) inputs.launched_sooner->skip_tensors = request.skip_tensors;
  for (std::string& warning : options_without_effect(request.planner, inputs.profile)) {
    inputs.warnings.push_back(std::move(warning));
  }
  inputs.left_out = forms_left_out(request, inputs.profile, is_estimated(text, request.foreign));
  if (!inputs.left_out.empty()) inputs.warnings.push_back(inputs.left_out);
  settle_device(inputs.profile, inputs.topology, inputs.warnings);
  apply_time_scale(request.time_scale, inputs.profile, inputs.topology);
  if (request.runtime) {
    apply(*request.runtime, inputs.profile);
    if (inputs.launched_sooner) apply(*request.runtime, *inputs.launched_sooner);
    reserve(*request.runtime, inputs.topology);
    inputs.runtime = request.runtime;
  }
  spdlog::info("model {}: {} layers, with times on {}", printable(inputs.profile.name),
               inputs.profile.layers.size(), printable(inputs.profile.device));
  return inputs;
}

std::int64_t global_batch_of(const PlanCommandRequest& request, const ModelProfile& profile) {
  if (request.global_batch) return *request.global_batch;
  if (profile.global_batch_size) return *profile.global_batch_size;
  throw command_line::usage_error(
      "--global-batch", "the samples of one iteration are required, as " +
                            command_line::source_name(request.model) + " does not state them");
}

void check_suited(const PlanCommandRequest& request, const ModelProfile& profile,
                  const Topology& topology, std::int64_t global_batch_size) {
  std::vector<Violation> faults = check_compatible(profile, topology, global_batch_size);
  if (faults.empty()) return;
  name_time_scale(faults);
  // Kinds of devices without times for the model are in the topology.
  const bool is_of_devices = faults.front().place.starts_with("/devices");
  const std::string& file = is_of_devices ? request.topology : request.model;
  throw Error{ErrorKind::BadInput, command_line::source_name(file), std::move(faults)};
}

Pins pins_of(const PlanCommandRequest& request, const ModelProfile& profile,
             const Topology& topology) {
  Pins pins = parse_pins(request.pins, profile, topology);
  const planner::PlannerOptions& planner = request.planner;
  const ScheduleFamily family = planner.family.value_or(ScheduleFamily::OneFOneB);
  if (pins.least_depths && (planner.every_family || family != ScheduleFamily::OneFOneB)) {
    throw command_line::usage_error("--pin",
                                    fmt::format("depths=least needs --schedule 1f1b, got {}",
                                                planner.every_family ? "auto" : to_string(family)));
  }
  if (pins.shards.value_or(1) > 1 && planner.sharding == Sharding::None) {
    throw command_line::usage_error(
        "--pin",
        fmt::format("shards={} needs --shard optimizer, full or auto, got none", *pins.shards));
  }
  return pins;
}

void suit_contention(const ModelProfile& profile, const Topology& topology,
                     planner::PlannerOptions& planner) {
  if (planner.contention == Contention::SharedWithCollectives &&
      !may_span_servers(planner, profile, topology)) {
    planner.contention = Contention::Shared;
  }
}

std::variant<planner::MadePlan, planner::Infeasible> make_plan(
    const planner::PlanningContext& context,
    const std::optional<planner::PlanRestriction>& restriction, const std::string& left_out) {
  try {
    return planner::make_plan_of_any_parallelism(context, restriction);
  } catch (const Error& error) {
    const Violation& fault = error.violations().front();
    if (fault.place == "/request/pins") {
      const bool is_why = !left_out.empty() && context.options.pins.context.value_or(1) > 1;
      throw Error{error.kind(), "--pin", {{"", fault.message + (is_why ? "; " + left_out : "")}}};
    }
    if (fault.place == "/request/sharding") {
      throw Error{error.kind(), "--shard", {{"", fault.message}}};
    }
    if (fault.place != "/request/micro_batch_size") throw;
    throw Error{error.kind(), "--micro-batch", {{"", fault.message}}};
  }
}

std::variant<planner::MadePlan, planner::Infeasible> plan_as_requested(
    const PlanCommandRequest& request, const ModelProfile& profile, const Topology& topology,
    planner::PlannerOptions planner, planner::Progress& progress) {
  planner.pins = pins_of(request, profile, topology);
  suit_contention(profile, topology, planner);
  check_suited(request, profile, topology, planner.global_batch_size);
  std::optional<planner::PlanRestriction> restriction;
  if (request.target) restriction = restriction_of(*request.target, planner, profile);
  return make_plan({profile, topology, planner, &progress}, restriction);
}

ProofEnd prove(const PlanDocument& document, const Topology& topology,
               const std::optional<planner::PlanRestriction>& restriction,
               planner::Progress& progress) {
  if (!document.prediction.lower_bound) return {std::nullopt, "the plan states no bound"};
  planner::MadeProof made = make_proof(document, topology, restriction, &progress);
  if (made.is_stopped) return {std::nullopt, "it was interrupted"};
  if (!made.unproven.empty()) {
    return {std::nullopt, "what the search proved of " + made.unproven +
                              " could not be derived again in as many steps"};
  }
  made.document.plan_sha256 = io::hash_of(document);
  return {std::move(made.document), ""};
}

void complete_document(planner::MadePlan& made, const SearchInputs& inputs, StopReason reason,
                       std::optional<Duration> time_limit) {
  PlanDocument& document = made.document;
  document.tool = kTool;
  document.runtime = inputs.runtime;
  PlanRequest& request = *document.request;
  request.input_warnings = inputs.warnings;
  const std::vector<std::string> doubts = doubts_about(inputs.profile);
  std::erase_if(request.input_warnings, [&](const std::string& warning) {
    return std::find(doubts.begin(), doubts.end(), warning) != doubts.end();
  });
  const bool is_done = is_search_done(document) && !made.lacks_baselines;
  request.stopped_by = is_done ? StopReason::None : reason;
  if (request.stopped_by == StopReason::TimeLimit) request.time_limit = time_limit;
  document.warnings = planner::warnings_of(document, Topology{document.topology});
}

}  // namespace dapple::app
