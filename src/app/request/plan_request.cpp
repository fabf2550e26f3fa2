#include "app/request/plan_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "app/request/for_target.h"
#include "app/request/modes.h"
#include "app/request/runtimes.h"
#include "dapple/cost/compatible.h"
#include "dapple/profile/limits.h"
#include "dapple/profile/parallelism.h"

namespace dapple::app {
namespace {

using command_line::OptionSection;
using command_line::ValueKind;

std::vector<std::string> schedule_choices() {
  std::vector<std::string> names{"1f1b", "auto"};
  for (const ScheduleFamily family : kScheduleFamilies) {
    if (family == ScheduleFamily::OneFOneB || family == ScheduleFamily::Given) continue;
    names.emplace_back(to_string(family));
  }
  return names;
}

OptionSection plan_inputs() {
  return {"",
          {model_option("Read the layer profile, or a configuration, or a graph."),
           topology_option("Read the devices and links."),
           {.name = "global-batch",
            .value = "N",
            .text = "Use N samples per iteration.",
            .default_value = "the profile's"},
           {.name = "micro-batch",
            .value = "N|auto",
            .choices = {"auto"},
            .text = "Use micro-batches of N samples in all.",
            .default_value = "auto",
            .details =
                "These are of all replicas together: N is the micro-batch size of frameworks "
                "times the data-parallel degree. With auto, every divisor of the global batch is "
                "tried."}}};
}

OptionSection plan_schedule() {
  return {"Schedule",
          {{.name = "schedule",
            .value = "FAMILY",
            .choices = schedule_choices(),
            .text = "Plan {}.",
            .default_value = "1f1b",
            .details = "With auto, every family is tried, and the best is taken."},
           {.name = "bucket-size",
            .value = "SIZE|auto",
            .choices = {"auto"},
            .text = "Use gradient buckets of SIZE.",
            .default_value = "25 MiB",
            .details = "With auto, several sizes are tried."},
           contention_option("on"),
           replicas_option("together")}};
}

OptionSection plan_search() {
  return {
      "Search",
      {{.name = "planner",
        .value = "PLANNER",
        .choices = {"exact", "dapple"},
        .text = "Use the planner {}.",
        .default_value = "exact",
        .details = "The exact planner proves how far the plan is from the best one; the DAPPLE "
                   "planner alone is quicker and proves nothing."},
       {.name = "gap",
        .value = "X",
        .text = "Stop at a proven gap of X, such as \"1%\".",
        .default_value = "0"},
       {.name = "time-limit",
        .value = "SECONDS",
        .text = "Stop after SECONDS, as Ctrl-C does, with the best plan."},
       {.name = "threads",
        .value = "N",
        .text = "Search on N threads.",
        .default_value = "all cores",
        .details = "The plan does not depend on their number, which is at most 256."},
       {.name = "alternatives",
        .value = "N",
        .text = "Also show the fastest plans of N other layouts.",
        .details =
            "A layout is the degrees of parallelism, what is sharded and recomputed, and a number "
            "of stages that divides that of the devices. N is at most 100. For each form that may "
            "be fast enough, a quick plan of each layout is made; then the N fastest are searched "
            "one by one, to a gap of 0.1 %. \"at least\" says what is proven: no plan of the "
            "layout is closer to the chosen one. The values that are shown fix a layout, together "
            "with the other options; the value shown for --shard takes the place of auto."},
       {.name = "jitter",
        .value = "X",
        .text = "Choose by the median with speeds that vary by X.",
        .details =
            "X is a standard deviation, such as 5%. The fastest plan, and plans that are at most X "
            "slower, of the same family and degrees of parallelism, are compared in the same draws "
            "of a speed for every device. The one with the least median is written. The bound is "
            "that of plans without jitter. A quarter of --time-limit is left for the comparison."},
       {.name = "explain",
        .text = "Split the time into parts, and find what would help.",
        .details = "The plan's iteration is split into its parts, next to those of the "
                   "baselines. Further searches, each as long as the first, find the fastest "
                   "plan with links between servers twice as fast, a quarter more memory, one "
                   "more server and, for an estimated profile, half the launch floors; and "
                   "where no plan fits, with what would make one fit."}}};
}

OptionSection plan_restrictions() {
  return {
      "Restrictions",
      {{.name = "pin",
        .value = "WHAT",
        .choices = {"stages=", "replicas=", "tensor=", "context=", "experts=", "expert-tensor=",
                    "shards=", "recompute=on", "recompute=off", "recompute=full", "depths=least",
                    "cut=", "join="},
        .repeats = true,
        .text = "Fix stages=N, replicas=N, a degree=N, recompute=WHAT, depths=least, "
                "cut=LAYER or join=LAYER.",
        .details =
            "A stage begins at a LAYER that is cut, and none at one that is joined. A layer "
            "is given by its name or by its number, counted from 0. A degree is tensor, "
            "context, experts, expert-tensor or, with --shard full or optimizer, shards. What is "
            "recomputed is "
            "on or off, of whole stages, or what every layer recomputes by its variant, such "
            "as full or core_attn+norm, or none."},
       {.name = "for",
        .value = "TARGET",
        .choices = limited_targets(),
        .text = "Plan for a runtime, such as megatron or nanotron.",
        .details = fmt::format("TARGET is {}. ", fmt::join(limited_targets(), ", ")) +
                   "Only what \"export\" can write for the target is planned, and for dapple-exec "
                   "only forms of parallelism of which it trains every plan. For megatron, which "
                   "may also be called megatron-lm, a configuration is estimated with "
                   "--framework megatron-lm unless another one is given, and for nanotron, which "
                   "cuts the model into stages itself, with --framework nanotron."},
       runtime_option("Simulate how a runtime, such as deepspeed, runs plans."),
       {.name = "per-stage",
        .text = "Let stages differ in how they share layers.",
        .details = "Each stage has any of the degrees and sets of recomputed parts whose groups "
                   "have one number of devices, the rest of which is data-parallel. Needs "
                   "--schedule 1f1b or gpipe, and cannot be used with --for."},
       {.name = "shard",
        .value = "WHAT",
        .choices = {"none", "optimizer", std::string(kFullKeep), "full", "auto"},
        .text = "Shard none (default), optimizer, full[-keep] or auto.",
        .details =
            "With optimizer, each replica of a stage holds and updates its shard of the "
            "optimizer's state, as with ZeRO stage 1; full-keep, FSDP that gathers parameters once "
            "an iteration and keeps them, is the same, as it holds and sends as much; with full, "
            "devices of a group hold a shard each of all state, and gather parameters for every "
            "micro-batch, as with ZeRO stage 3 and FSDP; with auto, whichever is fastest is "
            "chosen, the same for all stages."}}};
}

OptionSection plan_outputs() {
  return {
      "Output",
      {command_line::output_option("Write the plan.", "MODEL.plan.json"),
       command_line::trace_option(),
       {.name = "proof",
        .value = "FILE",
        .kind = ValueKind::File,
        .text = "Write what proves the bound.",
        .details = "\"verify --proof\" checks it, step by step. It is made after the search, which "
                   "takes at most about as long again and is not counted by --time-limit."},
       json_option()}};
}

constexpr std::string_view kLeastDepths = "depths=least";
constexpr std::int64_t kMostThreads = 256;
constexpr std::int64_t kMostAlternatives = 100;

/// Sets the schedule families. 1F1B is the default and is not set explicitly.
void choose_families(const command_line::Options& options, planner::PlannerOptions& planner) {
  const std::string name = options.choice("schedule");
  planner.every_family = name == "auto";
  for (const ScheduleFamily family : kScheduleFamilies) {
    if (family != ScheduleFamily::OneFOneB && name == to_string(family)) planner.family = family;
  }
}

planner::PlannerOptions planner_options_of(const command_line::Options& options) {
  planner::PlannerOptions planner;
  if (!options.is_word("micro-batch", "auto")) {
    planner.micro_batch_size = options.positive_integer("micro-batch", kMaxCount);
  }
  choose_families(options, planner);
  if (options.has("bucket-size")) {
    planner.bucket_size =
        options.is_word("bucket-size", "auto") ? std::nullopt : options.size("bucket-size");
  }
  if (options.choice("optimizer-step") == "per-bucket") {
    planner.optimizer = OptimizerTiming::PerBucket;
  }
  if (options.choice("planner") == "dapple") { planner.planner = PlannerKind::Dapple; }
  planner.memory_limit = memory_limit_of(options);
  planner.target_gap = options.fraction("gap").value_or(Factor{});
  planner.contention = contention_of(options).value_or(Contention::SharedWithCollectives);
  planner.replicas = replicas_of(options).value_or(Replicas::Together);
  planner.ignore_memory = options.has("unlimited-memory");
  const std::string shard = options.choice("shard");
  for (const Sharding sharding : {Sharding::Optimizer, Sharding::Full, Sharding::Any}) {
    if (shard == to_string(sharding)) planner.sharding = sharding;
  }
  if (shard == kFullKeep) planner.sharding = Sharding::Optimizer;
  planner.max_tensor = options.positive_integer("max-tensor", kMaxTensorParallel);
  planner.mixes_forms = options.has("per-stage");
  planner.mixes_group_sizes = options.choice("groups") == "any";
  planner.shares = options.choice("shares") == "equal" ? Shares::Equal : Shares::Any;
  planner.replications = options.has("deal") ? Replications::Any : Replications::Split;
  planner.recomputed_layers =
      options.choice("recompute-layers") == "auto" ? RecomputedLayers::Any : RecomputedLayers::All;
  planner.baselines = !options.has("no-baselines");
  planner.jitter = jitter_request_of(options);
  const std::int64_t cores = std::max<std::int64_t>(1, std::thread::hardware_concurrency());
  planner.threads = static_cast<int>(
      options.positive_integer("threads", kMostThreads).value_or(std::min(cores, kMostThreads)));
  return planner;
}

/// Makes configurations be estimated as a runtime has them. What an option asks for stays.
void estimate_for(const Runtime& runtime, const command_line::Options& options,
                  EstimateRequest& request) {
  estimate::EstimateOptions& estimate = request.options;
  if (!options.has("vocabulary-multiple")) {
    estimate.vocabulary_multiple = runtime.vocabulary_multiple;
  }
  if (!options.has("context-kind") && runtime.context_exchange) {
    estimate.context_exchange = *runtime.context_exchange;
  }
  estimate.merges_copies = runtime.merges_copies;
  if (!runtime.has_sequence_parallelism) estimate.has_sequence_parallelism = false;
  request.launch_floor = runtime.launch_floor;
}

/// Makes a request one for plans that a runtime executes. Throws Error(Usage) for options that it
/// excludes.
void plan_for(const Runtime& runtime, const command_line::Options& options,
              PlanCommandRequest& request) {
  estimate_for(runtime, options, request.foreign.estimate);
  planner::PlannerOptions& planner = request.planner;
  const ScheduleFamily family = planner.family.value_or(ScheduleFamily::OneFOneB);
  planner.transfers = planner.every_family ? runtime.transfers : transfers_of(runtime, family);
  planner.overlaps_gradients = runtime.overlaps_gradients;
  const auto refuse = [&](const char* option, const char* expected) {
    throw command_line::usage_error(
        option, fmt::format("expected {} for {}, got {}", expected, printable(runtime.name),
                            options.choice(option + 2)));
  };
  const bool blocks = planner.transfers != Transfers::Overlapped;
  const bool is_1f1b = !planner.every_family && is_planned_as_1f1b(family);
  const bool is_interleaved = !planner.every_family && family == ScheduleFamily::Interleaved &&
                              runtime.overlaps_interleaved;
  if (!is_1f1b && !is_interleaved && (blocks || runtime.has_least_depths)) {
    refuse("--schedule",
           runtime.overlaps_interleaved ? "1f1b, gpipe or interleaved" : "1f1b or gpipe");
  }
  if (is_interleaved && runtime.transfers != Transfers::Overlapped) {
    // Baselines would be simulated with transfers that the runtime does not have under them.
    if (options.has("write-baselines")) {
      throw command_line::usage_error(
          "--write-baselines",
          fmt::format("has no baselines to write: they are under 1f1b and gpipe, where transfers "
                      "of {} block",
                      printable(runtime.name)));
    }
    planner.baselines = false;
  }
  if (blocks && planner.replicas == Replicas::Independent) {
    refuse("--replicas", "together, as transfers block,");
  }
  if (!runtime.overlaps_gradients && planner.optimizer == OptimizerTiming::PerBucket) {
    refuse("--optimizer-step", "at-end, as gradients are reduced behind the last backward,");
  }
  const std::string least{kLeastDepths};
  const bool has_free_depths = planner.family != ScheduleFamily::GPipe;
  const bool is_pinned =
      std::find(request.pins.begin(), request.pins.end(), least) != request.pins.end();
  if (runtime.has_least_depths && is_1f1b && has_free_depths && !is_pinned) {
    request.pins.push_back(least);
  }
}

/// Throws Error(Usage) if options were given beside which no stage deals its micro-batches.
void check_dealing(const command_line::Options& options, const PlanCommandRequest& request) {
  const planner::PlannerOptions& planner = request.planner;
  if (planner.replications == Replications::Split) return;
  const std::string option = "--deal";
  const bool is_1f1b = !planner.every_family &&
                       is_planned_as_1f1b(planner.family.value_or(ScheduleFamily::OneFOneB));
  if (!is_1f1b) {
    throw command_line::usage_error(
        option, fmt::format("needs --schedule 1f1b or gpipe, got {}", options.choice("schedule")));
  }
  if (planner.replicas == Replicas::Independent) {
    throw command_line::usage_error(option, "needs --replicas together, got independent");
  }
  if (planner.planner == PlannerKind::Dapple) {
    throw command_line::usage_error(option, "needs --planner exact, got dapple");
  }
  if (planner.transfers != Transfers::Overlapped) {
    throw command_line::usage_error(
        option, "needs transfers that overlap with computation, which the runtime does not have");
  }
  if (std::find(request.pins.begin(), request.pins.end(), kLeastDepths) != request.pins.end()) {
    throw command_line::usage_error(option, "needs depths that are searched, got depths=least");
  }
  for (const std::string other : {"for", "proof", "alternatives", "orders"}) {
    if (!options.has(other) || (other == "for" && planner.for_executor)) continue;
    throw command_line::usage_error(option, fmt::format("cannot be used with --{}", other));
  }
}

/// Throws Error(Usage) where direct tensors are asked for beside what excludes them.
void check_skip_tensors(const command_line::Options& options, const PlanCommandRequest& request) {
  const planner::PlannerOptions& planner = request.planner;
  if (request.skip_tensors == SkipTensors::Forwarded) return;
  const auto refuse = [](const std::string& why) {
    throw command_line::usage_error("--skip-tensors", "direct " + why);
  };
  const bool is_1f1b = !planner.every_family &&
                       is_planned_as_1f1b(planner.family.value_or(ScheduleFamily::OneFOneB));
  if (!is_1f1b) {
    refuse(fmt::format("needs --schedule 1f1b or gpipe, got {}", options.choice("schedule")));
  }
  if (planner.transfers != Transfers::Overlapped) {
    refuse("needs transfers that overlap with computation, which the runtime does not have");
  }
  for (const char* const other : {"deal", "for", "orders", "per-stage", "proof"}) {
    if (options.has(other)) refuse(fmt::format("cannot be used with --{}", other));
  }
}

/// Throws Error(Usage) where plans over all orders of the layers have no bound.
void check_orders(const command_line::Options& options, const planner::PlannerOptions& planner,
                  bool is_1f1b) {
  const auto refuse = [](const char* why) { throw command_line::usage_error("--orders", why); };
  if (!is_1f1b) refuse("needs --schedule 1f1b or gpipe");
  if (planner.replicas == Replicas::Independent) refuse("needs --replicas together");
  if (planner.mixes_forms) refuse("cannot be used with --per-stage");
  if (options.has("json")) refuse("cannot be used with --json");
}

/// Throws Error(Usage) where groups of different sizes are asked for beside what excludes them.
void check_group_sizes(const command_line::Options& options,
                       const planner::PlannerOptions& planner) {
  const auto refuse = [](const char* why) {
    throw command_line::usage_error("--groups", std::string("any ") + why);
  };
  if (!planner.mixes_forms) refuse("needs --per-stage");
  if (planner.planner == PlannerKind::Dapple) refuse("needs --planner exact");
  if (planner.replicas == Replicas::Independent) refuse("needs --replicas together");
  if (planner.replications == Replications::Any) refuse("cannot be used with --deal");
  if (options.has("proof")) refuse("cannot be used with --proof");
}

/// Throws Error(Usage) if options were given that exclude each other.
void check_combinations(const command_line::Options& options,
                        const planner::PlannerOptions& planner) {
  const bool is_1f1b = !planner.every_family &&
                       is_planned_as_1f1b(planner.family.value_or(ScheduleFamily::OneFOneB));
  const std::string schedule = options.choice("schedule");
  if (!is_1f1b && planner.replicas == Replicas::Independent) {
    throw command_line::usage_error(
        "--replicas",
        fmt::format("independent replicas need --schedule 1f1b or gpipe, got {}", schedule));
  }
  if (!is_1f1b && !planner.every_family && options.has("planner")) {
    throw command_line::usage_error(
        "--planner",
        fmt::format("a choice of planner needs --schedule 1f1b, gpipe or auto, got {}", schedule));
  }
  if (planner.planner == PlannerKind::Dapple && options.has("gap")) {
    throw command_line::usage_error("--gap",
                                    "needs --planner exact, as the planner dapple proves no gap");
  }
  if (planner.planner == PlannerKind::Dapple && options.has("proof")) {
    throw command_line::usage_error("--proof",
                                    "needs --planner exact, as the planner dapple proves no bound");
  }
  if (planner.mixes_forms && !is_1f1b) {
    throw command_line::usage_error(
        "--per-stage", fmt::format("needs --schedule 1f1b or gpipe, got {}", schedule));
  }
  if (planner.mixes_forms && options.has("for") && !planner.for_executor) {
    throw command_line::usage_error("--per-stage",
                                    "cannot be used with --for, as all targets but dapple-exec "
                                    "share every layer alike");
  }
  if (planner.mixes_forms && options.has("alternatives")) {
    throw command_line::usage_error(
        "--per-stage", "cannot be used with --alternatives, whose stages share layers alike");
  }
  if (planner.mixes_group_sizes) check_group_sizes(options, planner);
  if (planner.sharding != Sharding::None && planner.optimizer == OptimizerTiming::PerBucket) {
    throw command_line::usage_error(
        "--shard", "sharded state cannot be used with --optimizer-step per-bucket");
  }
  if (options.has("write-alternatives") && !options.has("alternatives")) {
    throw command_line::usage_error("--write-alternatives", "needs --alternatives");
  }
  if (planner.jitter && options.has("alternatives")) {
    throw command_line::usage_error(
        "--jitter", "cannot be used with --alternatives, which are compared without jitter");
  }
  if (options.has("explain") && options.has("json")) {
    throw command_line::usage_error("--explain", "cannot be used with --json");
  }
  if (options.has("orders")) check_orders(options, planner, is_1f1b);
  if (!planner.baselines && options.has("write-baselines")) {
    throw command_line::usage_error("--write-baselines", "cannot be used with --no-baselines");
  }
}

/// Whether stages of one plan may have groups of different sizes.
command_line::OptionSpec groups_option() {
  return {.name = "groups",
          .value = "WHICH",
          .choices = {"same", "any"},
          .text = "With --per-stage, group devices alike, or also stage by stage.",
          .default_value = "same",
          .details =
              "With any, stages of one plan may also have groups of different sizes, each "
              "of which divides the next larger one and the devices of every server, such "
              "as two tensor ranks in one stage and eight in another. Such plans are made "
              "on devices of one kind, where all ways to place stages are tried and no "
              "layers share parameters. Needs --planner exact and --replicas together, and "
              "cannot be used with --deal and --proof."};
}

/// What stages may do that the search chooses.
std::vector<command_line::OptionSpec> choices_of_stages() {
  return {
      {.name = "recompute-layers",
       .value = "WHICH",
       .choices = {"all", "auto"},
       .text = "Recompute in all layers, or also in some of a stage.",
       .default_value = "all",
       .details =
           "Where a profile has variants of layers that recompute, auto also plans for recomputing "
           "only in the first layers of every stage, equally many in each or, with --per-stage, "
           "as many as each needs, and in every second, third and fourth layer, and takes several "
           "times as long. All layers recompute with --for a runtime that cannot do otherwise. "
           "--pin recompute=full:4 fixes the number, and recompute=full:1/2 has every second layer "
           "recompute."},
      {.name = "max-tensor",
       .value = "N",
       .text = "Share layers among at most N devices.",
       .default_value = "any",
       .details = "Layers are shared in the degrees of tensor parallelism for which "
                  "a profile has variants of all of them. A configuration is estimated "
                  "for degrees up to 8, or up to N or a pinned degree where that is larger."},
      {.name = "shares",
       .value = "WAY",
       .choices = {"auto", "equal"},
       .text = "Give replicas equal shares, or also shares by speed.",
       .default_value = "auto",
       .details = "On devices of several kinds a stage may then give each replica as many samples "
                  "as it processes in the same time, for all layers together. Shares are equal "
                  "with --for, where a runtime's transfers block, with --replicas independent, and "
                  "under schedules other than 1f1b and gpipe."},
      {.name = "deal",
       .text = "Also deal whole micro-batches to replicas in turn.",
       .details = "A stage may then give each replica every n-th micro-batch whole, as "
                  "PipeDream does, where that is faster than shares of all of them. "
                  "Needs --schedule 1f1b or gpipe, --replicas together and depths that are "
                  "searched, and cannot be used with --for other than dapple-exec, --proof, "
                  "--alternatives and "
                  "--orders. Where there are too many ways to place stages to try them all, "
                  "no stage deals, and the bound of plans in which some do is that of the "
                  "work alone."}};
}

/// The options of an estimate that few need, and the sizes of groups behind its degrees.
std::vector<command_line::OptionSpec> further_estimate_options() {
  std::vector<command_line::OptionSpec> further = more_estimate_options();
  const auto degree = std::find_if(further.begin(), further.end(), [](const auto& option) {
    return option.name == std::string_view("max-expert-tensor");
  });
  further.insert(degree == further.end() ? degree : degree + 1, groups_option());
  for (command_line::OptionSpec& option : further) {
    if (option.name == std::string_view("context-kind")) {
      option.default_value = "that of --runtime, or all-gather";
    }
  }
  return further;
}

}  // namespace

std::vector<OptionSection> plan_options() {
  std::vector<command_line::OptionSpec> further = further_estimate_options();
  further.push_back({.name = "optimizer-step",
                     .value = "TIME",
                     .choices = {"at-end", "per-bucket"},
                     .text = "Update weights {}.",
                     .default_value = "at-end",
                     .details = "With per-bucket, the parameters of a bucket are updated once it "
                                "is reduced; gradients can then not be clipped by their norm."});
  further.push_back(seed_option());
  further.push_back({.name = "write-baselines",
                     .value = "DIR",
                     .kind = ValueKind::Folder,
                     .text = "Write the baselines' plans to DIR/NAME.plan.json."});
  further.push_back(
      {.name = "no-baselines",
       .text = "Leave out the comparison with other planners.",
       .details = "Another of several equally fast plans may then be chosen, and a slower one may "
                  "be found under schedules that are not searched exhaustively, as the search does "
                  "not begin with the plans of the baselines."});
  further.push_back(
      {.name = "unlimited-memory", .text = "Plan as if every device had enough memory."});
  further.push_back({.name = "write-alternatives",
                     .value = "DIR",
                     .kind = ValueKind::Folder,
                     .text = "Write the plans of --alternatives to DIR/alternative-N.plan.json."});
  for (command_line::OptionSpec& spec : choices_of_stages()) further.push_back(std::move(spec));
  further.push_back(time_scale_option());
  further.push_back(memory_limit_option());
  for (const command_line::OptionSpec& spec : foreign_profile_options()) further.push_back(spec);
  further.push_back(
      {.name = "skip-tensors",
       .value = "WAY",
       .choices = {"forwarded", "direct"},
       .text = "Hand tensors on through stages, or send them straight.",
       .default_value = "forwarded",
       .details = "A tensor that is consumed by a later stage than the next one is handed on by "
                  "the stages between or, with direct, sent straight to each stage that consumes "
                  "it. The bound of direct plans counts only what the next layer consumes. "
                  "dapple-exec does not run them. Direct needs --schedule 1f1b or gpipe, and "
                  "cannot be used with --deal, --for, --orders, --per-stage and --proof."});
  further.push_back(
      {.name = "orders",
       .text = "Bound the plans over all other orders of the layers.",
       .details = "Stages have consecutive layers in the order of the profile. Where the layers "
                  "form a graph that has other orders, a lower bound on the plans over all of "
                  "these orders is printed, which ignores memory."});
  OptionSection inputs = plan_inputs();
  for (const command_line::OptionSpec& spec : estimate_options()) inputs.options.push_back(spec);
  return {std::move(inputs),   plan_schedule(), plan_search(),
          plan_restrictions(), plan_outputs(),  {"Further options", std::move(further), true}};
}

namespace {

/// Returns the degree that a pin asks for, if one does. What is wrong with pins is named later.
std::optional<std::int64_t> pinned_degree(const PlanCommandRequest& request, const std::string& key,
                                          std::int64_t most) {
  const std::string pinned = key + "=";
  for (const std::string& pin : request.pins) {
    if (!pin.starts_with(pinned)) continue;
    std::int64_t degree = 0;
    const char* const end = pin.data() + pin.size();
    const auto [rest, error] = std::from_chars(pin.data() + pinned.size(), end, degree);
    if (error == std::errc{} && rest == end && degree >= 1 && degree <= most) return degree;
  }
  return std::nullopt;
}

/// Returns the parts that a pin has layers recompute, if one does.
std::optional<RecomputedParts> pinned_parts(const PlanCommandRequest& request) {
  constexpr std::string_view kPinned = "recompute=";
  for (const std::string& pin : request.pins) {
    if (!pin.starts_with(kPinned)) continue;
    const std::string what = pin.substr(kPinned.size());
    if (what == "none") return RecomputedParts{};
    if (const auto found = recomputation(what)) return found->parts;
  }
  return std::nullopt;
}

/// Makes configurations be estimated in the forms that pins ask for.
void estimate_pinned(PlanCommandRequest& request) {
  estimate::EstimateOptions& estimate = request.foreign.estimate.options;
  const estimate::PinnedForms pinned{
      .tensor = pinned_degree(request, "tensor", kMaxTensorParallel),
      .context = pinned_degree(request, "context", kMaxContextParallel),
      .experts = pinned_degree(request, "experts", kMaxGroup),
      .expert_tensor = pinned_degree(request, "expert-tensor", kMaxTensorParallel),
      .recomputes = pinned_parts(request)};
  request.foreign.estimate.pinned = {.tensor = pinned.tensor.value_or(1),
                                     .context = pinned.context.value_or(1),
                                     .experts = pinned.experts.value_or(1),
                                     .expert_tensor = pinned.expert_tensor.value_or(1)};
  estimate.pinned = pinned;
  estimate.max_tensor = std::max(
      {estimate.max_tensor, pinned.tensor.value_or(1), request.planner.max_tensor.value_or(1)});
  estimate.max_context = std::max(estimate.max_context, pinned.context.value_or(1));
  estimate.max_experts = std::max(estimate.max_experts, pinned.experts.value_or(1));
  estimate.max_expert_tensor =
      std::max(estimate.max_expert_tensor, pinned.expert_tensor.value_or(1));
}

}  // namespace

PlanCommandRequest plan_request(const command_line::Options& options) {
  options.require_options_only("--model FILE --topo FILE");
  PlanCommandRequest request{
      .model = options.required("model", "a layer profile"),
      .topology = options.required("topo", "a topology"),
      .foreign = foreign_request(options),
      .time_scale = options.positive_factor("time-scale"),
      .global_batch = options.positive_integer("global-batch", kMaxCount),
      .skip_tensors =
          options.choice("skip-tensors") == "direct" ? SkipTensors::Direct : SkipTensors::Forwarded,
      .planner = planner_options_of(options),
      .pins = options.texts("pin"),
      .target = std::nullopt,
      .runtime = runtime_of(options.text("runtime")),
      .time_limit = options.positive_seconds("time-limit"),
      .output = options.text("output"),
      .trace = options.text("trace"),
      .proof = options.text("proof"),
      .baselines = options.text("write-baselines"),
      .alternatives = options.positive_integer("alternatives", kMostAlternatives),
      .alternatives_folder = options.text("write-alternatives"),
      .explains = options.has("explain"),
      .compares_orders = options.has("orders"),
      .is_json = options.has("json")};
  estimate_pinned(request);
  if (options.has("for")) {
    request.target = target_given(options, "for");
    request.foreign.estimate.target = request.target;
    request.planner.for_executor = request.target == planner::kExecutorTarget;
  }
  if (request.runtime) plan_for(*request.runtime, options, request);
  check_combinations(options, request.planner);
  check_dealing(options, request);
  check_skip_tensors(options, request);
  return request;
}

}  // namespace dapple::app
