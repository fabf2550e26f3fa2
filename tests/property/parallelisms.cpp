// Forms of parallelism against every plan of small problems: groups are formed here by other means
// than in the product, and each form is enumerated by itself.

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>

#include "dapple/planner/parallelism/plan_parallelisms.h"
#include "dapple/planner/verify/verify.h"
#include "dapple/profile/variants.h"
#include "dapple/search/decision_diagram/decision_diagram.h"
#include "dapple/search/families/family_bound.h"
#include "dapple/topology/servers_of_kind.h"
#include "exact_planner_checks.h"
#include "parallel_problems.h"

using namespace dapple;

namespace {

using namespace dapple::small;

/// What a form chooses, of a cluster of so many devices.
std::set<std::string> dimensions_of(const Parallelism& form, std::int32_t devices) {
  const LayerSelection::Kind selected = form.recomputed_layers.kind();
  const std::pair<const char*, bool> all[] = {
      {"tensor", form.tensor > 1},
      {"sequence", form.sequence},
      {"context", form.context > 1},
      {"experts", form.experts > 1},
      {"experts of another tensor degree", form.experts > 1 && form.expert_tensor != form.tensor},
      {"sharded optimizer", form.shards_optimizer},
      {"optimizer sharded over some", form.optimizer_shards > 0},
      {"optimizer of replicas sharded over some",
       form.optimizer_shards > 0 && devices >= 2 * form.group_size()},
      {"sharded state", form.full_shards > 1},
      {"sharded state of replicas", form.full_shards > 1 && devices >= 2 * form.group_size()},
      {"recomputed parts", !form.recomputes.none()},
      {"first layers recomputing", selected == LayerSelection::Kind::First},
      {"every n-th layer recomputing", selected == LayerSelection::Kind::EveryNth}};
  std::set<std::string> dimensions;
  for (const auto& [name, is_chosen] : all) {
    if (is_chosen) dimensions.insert(name);
  }
  return dimensions;
}

/// What may be chosen: a form in which some plan fits has it.
std::set<std::string> open_dimensions(const std::map<Parallelism, Duration>& fastest,
                                      const Question& question) {
  std::set<std::string> open;
  for (const auto& [form, iteration] : fastest) {
    if (iteration.is_infinite()) continue;
    const std::int32_t devices = question.topology.device_count();
    open.merge(dimensions_of(form, devices));
    const bool may_send =
        devices > form.group_size() && question.made.problem.profile.layers.size() > 1;
    if (may_send && cuts_tensors(question.made.problem, form)) {
      open.insert("scatter-gather boundaries");
    }
  }
  return open;
}

/// Every dimension is open in enough of the instances.
void check_open(const Counts& open) {
  CHECK(open.at("instances") >= small::scaled(200));
  CHECK(open.size() == 15);
  for (const auto& [dimension, instances] : open) {
    CAPTURE(dimension);
    CHECK(instances >= small::scaled(30));
  }
}

}  // namespace

TEST_CASE("the plan is the fastest of all forms of parallelism, and it knows") {
  ProblemMaker maker(4101, {.layers = 3, .devices = 4, .global_batch = 4, .own_times = false});
  Dice dice(4102);
  Counts seen;
  Counts open;  // instances in which a dimension is
  for (int round = 0; round < small::scaled(850); ++round) {
    CAPTURE(round);
    ParallelProblem problem(maker, dice);
    problem.pin_some_shards(round, 3);
    const Question& question = problem.question;
    const std::map<Parallelism, Duration> fastest = fastest_of_each(problem);
    if (lacks_figures(problem)) ++seen["no figures between servers"];
    if (fastest.empty()) {
      ++seen["no form"];
      CHECK_THROWS_AS(planner::make_plan_of_any_parallelism(
                          {question.made.problem.profile, question.topology, question.options}, {}),
                      Error);
      continue;
    }
    Duration least = Duration::infinite();
    for (const auto& [form, iteration] : fastest) least = std::min(least, iteration);
    const auto made = planner::make_plan_of_any_parallelism(
        {question.made.problem.profile, question.topology, question.options}, {});
    const auto* plan = std::get_if<planner::MadePlan>(&made);
    if (plan == nullptr) {
      INFO(text_of(problem));
      REQUIRE(least.is_infinite());
      ++seen["none fits"];
      continue;
    }
    const PlanDocument& document = plan->document;
    INFO(text_of(problem) << "\n" << small::text_of(document.plan));
    REQUIRE(document.prediction.iteration == least);
    REQUIRE(document.prediction.lower_bound == least);
    const bool is_cut = question.options.pins.has_degrees();
    REQUIRE(document.search.complete != is_cut);
    for (const ParallelismRecord& record : document.parallelisms) {
      const auto form = fastest.find(record.parallelism);
      if (record.iteration) REQUIRE(*record.iteration >= form->second);
      if (record.lower_bound) REQUIRE(*record.lower_bound <= form->second);
      if (record.missing.count > 0) REQUIRE(form->second.is_infinite());
    }
    ++open["instances"];
    for (const std::string& dimension : open_dimensions(fastest, question)) { ++open[dimension]; }
    const Parallelism& form = document.plan.parallelism;
    ++seen[form.group_size() > 1 ? "groups" : "no groups"];
    if (form.sequence) ++seen["sequence parallelism"];
    if (form.context > 1) ++seen["context parallelism"];
    if (form.experts > 1) ++seen["expert parallelism"];
    if (!form.recomputes.none()) ++seen["recomputed parts"];
    const LayerSelection::Kind selected = form.recomputed_layers.kind();
    if (selected == LayerSelection::Kind::First) ++seen["first layers recomputing"];
    if (selected == LayerSelection::Kind::EveryNth) ++seen["every n-th layer recomputing"];
    if (form.shards_optimizer) ++seen["sharded"];
    if (form.full_shards > 1) ++seen["all state sharded"];
    if (form.optimizer_shards > 0) {
      ++seen["optimizer sharded over some"];
      const bool has_others =
          std::any_of(document.plan.stages.begin(), document.plan.stages.end(),
                      [](const StagePlan& stage) { return stage.devices.size() > 1; });
      if (has_others) ++seen["groups with the same shards"];
    }
    if (question.topology.server_count() > 1 && document.topology.servers_of_group > 1) {
      ++seen["groups of servers"];
    }
    for (const auto& [some, iteration] : fastest) {
      if (iteration.is_infinite() || kinds_in_use(question.topology).size() == 1) continue;
      const auto inputs = group_inputs(question.made.problem.profile, question.topology, some);
      const bool has_other_links = !std::get<PlanInputs>(inputs).profile.other_groups.empty();
      if (has_other_links) ++seen["groups with other links"];
      if (!has_other_links && some.group_size() > 1) ++seen["groups of two kinds"];
    }
    const bool is_cut_anywhere = cuts_tensors(question.made.problem, form);
    if (is_cut_anywhere && document.plan.stages.size() > 1) ++seen["shares over boundaries"];
    if (fastest.size() > 1) ++seen["several forms"];
    if (fastest.size() > 1 && fastest.begin()->second.is_infinite()) ++seen["alone none fits"];
  }
  if (small::scaled(800) < 800) return;  // Too few for every subject.
  const std::pair<const char*, int> subjects[] = {{"groups", 10},
                                                  {"no groups", 10},
                                                  {"sequence parallelism", 10},
                                                  {"context parallelism", 10},
                                                  {"expert parallelism", 4},
                                                  {"groups of servers", 4},
                                                  {"no figures between servers", 10},
                                                  {"groups of two kinds", 4},
                                                  {"groups with other links", 4},
                                                  {"recomputed parts", 10},
                                                  {"first layers recomputing", 4},
                                                  {"every n-th layer recomputing", 1},
                                                  {"sharded", 10},
                                                  {"all state sharded", 10},
                                                  {"optimizer sharded over some", 10},
                                                  {"groups with the same shards", 4},
                                                  {"several forms", 10},
                                                  {"shares over boundaries", 1},
                                                  {"none fits", 10},
                                                  {"alone none fits", 10}};
  for (const auto& [what, least] : subjects) {
    CAPTURE(what);
    CHECK(seen[what] >= small::scaled(least));
  }
  check_open(open);
}

TEST_CASE("plans of groups are verified, also after they were written and read") {
  ProblemMaker maker(4103, {.layers = 3, .devices = 4, .global_batch = 4, .own_times = false});
  Dice dice(4104);
  int verified = 0;
  for (int round = 0; round < small::scaled(250); ++round) {
    CAPTURE(round);
    ParallelProblem problem(maker, dice);
    problem.pin_some_shards(round, 5);
    Question& question = problem.question;
    question.options.baselines = dice.chance(30);
    question.options.every_family =
        round % 3 == 0 && question.options.replicas == Replicas::Together;
    if (round % 4 == 1) question.options.jitter = JitterRequest{.deviation = {50'000'000}};
    if (question.options.pins.tensor || fastest_of_each(problem).size() < 2) continue;
    auto made = planner::make_plan_of_any_parallelism(
        {question.made.problem.profile, question.topology, question.options}, {});
    auto* plan = std::get_if<planner::MadePlan>(&made);
    if (plan == nullptr) continue;
    plan->document.tool = "test";
    const std::string text = io::write_plan(plan->document);
    const PlanDocument document = io::read_plan(text, "plan");
    INFO(text);
    REQUIRE(io::write_plan(document) == text);
    const Topology topology(document.topology);
    planner::VerifyOptions options;
    options.budget = 2'000'000;
    const planner::PlanVerification found = planner::verify(document, topology, options);
    const std::string fault = found.violations.empty() ? ""
                                                       : found.violations.front().place + ": " +
                                                             found.violations.front().message;
    REQUIRE(fault == "");
    REQUIRE(found.bound == BoundCheck::Proven);
    REQUIRE(found.unchecked.empty());
    ++verified;
    // A bound above the plan of another form is refuted.
    if (document.parallelisms.empty()) continue;
    PlanDocument tampered = document;
    for (ParallelismRecord& record : tampered.parallelisms) {
      if (record.parallelism == document.plan.parallelism || !record.lower_bound) continue;
      record.iteration = document.prediction.iteration - Duration{1};
      CHECK_FALSE(planner::verify(tampered, topology, options).violations.empty());
      break;
    }
  }
  CHECK(verified >= small::scaled(40));
}

namespace {

/// Asks for any mode of the simulation, and for 1F1B or GPipe.
void ask_for_any_mode(Dice& dice, planner::PlannerOptions& options) {
  if (dice.chance(20)) options.replicas = Replicas::Independent;
  if (options.replicas == Replicas::Together && dice.chance(25)) {
    options.transfers = dice.chance(50) ? Transfers::Blocking : Transfers::Serial;
  }
  if (dice.chance(15)) options.family = ScheduleFamily::GPipe;
}

/// Checks that no bound on plans with these forms is above the fastest of them.
void check_bounds(Dice& dice, const Question& mixed, Duration fastest) {
  const planner::PlannerOptions& options = mixed.options;
  const CostModel costs(mixed.made.problem.profile, mixed.topology);
  const auto width = static_cast<std::size_t>(dice.roll(1, 4));
  Duration merged = Duration::infinite();
  Duration of_paths = Duration::infinite();
  Duration of_work = Duration::infinite();
  for (std::int64_t size = 1; size <= options.global_batch_size; ++size) {
    if (options.global_batch_size % size != 0) continue;
    const search::SearchProblem problem{
        .global_batch_size = options.global_batch_size,
        .micro_batch_size = size,
        .gradients = mixed.gradients().front(),
        .gpipe = options.family == ScheduleFamily::GPipe,
        .links_are_shared = options.contention == Contention::Shared,
        .replicas = options.replicas,
        .transfers = options.transfers,
        .shares_by_speed = planner::has_shares_by_speed(options, mixed.topology)};
    search::DecisionDiagram diagram(mixed.made.problem.profile, mixed.topology, problem,
                                    2 * fastest, {});
    merged = std::min(merged, diagram.relaxed_bound(width));
    of_paths = std::min(of_paths, diagram.bound_of_paths());
    search::FamilyBound bound(costs, {.global_batch_size = options.global_batch_size,
                                      .micro_batch_size = size,
                                      .split_backward = dice.chance(50),
                                      .optimizer = options.optimizer,
                                      .ignore_memory = dice.chance(50)});
    Duration of_size = bound.of_work(2 * fastest);
    if (options.replicas == Replicas::Together) {
      of_size = std::max({of_size, bound.of_pipelines(2 * fastest), bound.of_loops(2 * fastest)});
    }
    of_work = std::min(of_work, of_size);
  }
  REQUIRE(merged <= of_paths);
  REQUIRE(of_paths <= fastest);
  REQUIRE(of_work <= fastest);
}

}  // namespace

TEST_CASE("a stage costs what it costs where all stages have its form") {
  ProblemMaker maker(4107, {.layers = 5, .devices = 6, .global_batch = 6, .own_times = false});
  Dice dice(4108);
  Counts seen;
  for (int round = 0; round < small::scaled(1500); ++round) {
    CAPTURE(round);
    ParallelProblem problem(maker, dice);
    problem.pin_some_shards(round, 5);
    problem.question.options.pins.tensor.reset();
    // Whether tensors cross in shares depends on both forms.
    problem.question.made.problem.profile.boundaries = Boundaries::Whole;
    for (const MixedForms& set : mixed_by_hand(problem)) {
      const Question question = question_of(problem, set.problem);
      const ModelProfile& profile = set.problem.profile;
      const auto layers = static_cast<std::int32_t>(profile.layers.size());
      const std::int32_t devices = question.topology.device_count();
      if (devices < 2 || layers < 2 || problem.question.options.global_batch_size < 2) continue;
      // Two stages on any devices, each in any form.
      const std::int32_t cut = static_cast<std::int32_t>(dice.roll(1, layers - 1));
      const auto first = static_cast<std::int32_t>(dice.roll(1, devices - 1));
      Plan plan{.global_batch_size = problem.question.options.global_batch_size,
                .micro_batch_size = problem.question.options.global_batch_size,
                .stage_forms = stage_forms_of(profile),
                .warmup_depths = {1, 1},
                .stages = std::vector<StagePlan>(2)};
      plan.stages[0].layers = {0, cut};
      plan.stages[1].layers = {cut, layers};
      for (std::int32_t d = 0; d < devices; ++d) {
        StagePlan& stage = plan.stages[d < first ? 0 : 1];
        if (std::ssize(stage.devices) < plan.micro_batch_size) stage.devices.push_back({d});
      }
      for (StagePlan& stage : plan.stages) {
        stage.form.value = static_cast<std::int32_t>(dice.roll(0, std::ssize(profile.stage_forms)));
        stage.recompute = dice.chance(30);
      }
      Plan mixed = plan;
      fill_gradient_buckets(mixed, profile);
      REQUIRE(costing_faults(mixed, profile, question.topology).empty());
      const PlanCost costs = CostModel(profile, question.topology).plan_cost(mixed);
      for (std::size_t s = 0; s < 2; ++s) {
        // A profile of that form alone.
        ModelProfile alone = in_form(profile, plan.stages[s].form);
        alone.stage_forms.clear();
        Plan uniform = plan;
        uniform.stage_forms.clear();
        for (StagePlan& stage : uniform.stages) stage.form = {};
        fill_gradient_buckets(uniform, alone);
        const PlanCost expected = CostModel(alone, question.topology).plan_cost(uniform);
        const StageCost& one = costs.stages[s];
        const StageCost& other = expected.stages[s];
        REQUIRE(mixed.stages[s].gradient_buckets == uniform.stages[s].gradient_buckets);
        REQUIRE(one.forward == other.forward);
        REQUIRE(one.backward == other.backward);
        REQUIRE(one.optimizer_step == other.optimizer_step);
        REQUIRE(one.tied_reduction == other.tied_reduction);
        REQUIRE(one.buckets.size() == other.buckets.size());
        for (std::size_t r = 0; r < one.replicas.size(); ++r) {
          REQUIRE(one.replicas[r].memory.peak() == other.replicas[r].memory.peak());
        }
        // It receives what it receives from a stage of its own form.
        const BoundaryCost& ours = costs.boundaries.front();
        const BoundaryCost& theirs = expected.boundaries.front();
        const TransferCost& received = s == 1 ? ours.forward.front() : ours.backward.front();
        const TransferCost& same = s == 1 ? theirs.forward.front() : theirs.backward.front();
        REQUIRE(received.time == same.time);
        REQUIRE(received.size == same.size);
      }
      ++seen[plan.stages[0].form == plan.stages[1].form ? "one form" : "two forms"];
      if (!mixed.tied_gradients.empty()) ++seen["ties"];
      if (costs.boundaries.front().forward.front().size !=
          costs.boundaries.front().backward.front().size) {
        ++seen["other layouts"];
      }
    }
  }
  for (const char* what : {"one form", "two forms", "ties", "other layouts"}) {
    CAPTURE(what);
    CHECK(seen[what] >= small::scaled(20));
  }
}

/// Counts in what forms of stages differ.
void count_differences(const std::set<Parallelism>& forms, Counts& seen) {
  std::set<std::int64_t> tensor;
  std::set<std::int64_t> context;
  std::set<std::int64_t> experts;
  std::set<RecomputedParts> parts;
  std::set<LayerSelection> layers;
  std::set<bool> sharded;
  for (const Parallelism& form : forms) {
    layers.insert(form.recomputed_layers);
    tensor.insert(form.tensor);
    context.insert(form.context);
    experts.insert(form.experts);
    parts.insert(form.recomputes);
    sharded.insert(form.full_shards > 1);
  }
  if (tensor.size() > 1) ++seen["tensor degrees differ"];
  if (context.size() > 1) ++seen["context degrees differ"];
  if (experts.size() > 1) ++seen["expert degrees differ"];
  if (parts.size() > 1) ++seen["recomputed parts differ"];
  if (layers.size() > 1) ++seen["recomputed layers differ"];
  if (sharded.size() > 1) ++seen["sharded in some stages"];
}

/// Plans with stages in any forms, and compares with the fastest of all; counts subjects in `seen`.
void compare_mixed(const ParallelProblem& problem, Dice& dice, Counts& seen) {
  const Question& question = problem.question;
  const std::vector<MixedForms> sets = mixed_by_hand(problem);
  if (sets.empty() || !are_few(sets)) return;
  Duration of_one = Duration::infinite();
  for (const auto& [form, iteration] : fastest_of_each(problem)) {
    of_one = std::min(of_one, iteration);
  }
  std::map<std::set<Parallelism>, Duration> fastest;
  Duration least = of_one;
  for (const MixedForms& set : sets) {
    const Question mixed = question_of(problem, set.problem);
    const small::OracleAnswer found = mixed.fastest();
    if (found.plan) check_bounds(dice, mixed, found.iteration);
    fastest[set.forms] = found.plan ? found.iteration : Duration::infinite();
    least = std::min(least, fastest[set.forms]);
  }
  auto made = planner::make_plan_of_any_parallelism(
      {question.made.problem.profile, question.topology, question.options}, {});
  auto* plan = std::get_if<planner::MadePlan>(&made);
  INFO(text_of(problem));
  if (plan == nullptr) {
    REQUIRE(least.is_infinite());
    ++seen["none fits"];
    return;
  }
  plan->document.tool = "test";
  const PlanDocument& document = plan->document;
  INFO(io::write_plan(document));
  CAPTURE(of_one.ns, least.ns);
  REQUIRE(document.prediction.iteration == least);
  REQUIRE(document.prediction.lower_bound == least);
  std::size_t records = 0;
  for (const ParallelismRecord& record : document.parallelisms) {
    if (record.stage_forms.empty() && record.parallelism.group_replicas == 1) continue;
    std::set<Parallelism> forms(record.stage_forms.begin(), record.stage_forms.end());
    forms.insert(record.parallelism);
    const auto set = fastest.find(forms);
    REQUIRE(set != fastest.end());
    if (record.lower_bound) REQUIRE(*record.lower_bound <= set->second);
    ++records;
  }
  REQUIRE(records == fastest.size());
  ++seen["plans"];
  if (least >= of_one) return;
  ++seen[of_one.is_infinite() ? "only different stages fit" : "different stages are faster"];
  std::set<Parallelism> forms;
  for (const StagePlan& stage : document.plan.stages) {
    forms.insert(form_of(document.plan, stage));
  }
  if (forms.size() < 2) {
    ++seen["data-parallel ranks in groups"];
    return;
  }
  count_differences(forms, seen);
  require_verified(document);
}

TEST_CASE("where stages may differ in their form the plan is the fastest of all, and it knows") {
  ProblemMaker maker(4105, {.layers = 3, .devices = 4, .global_batch = 4, .own_times = false});
  Dice dice(4106);
  Counts seen;
  for (int round = 0; round < small::scaled(1000); ++round) {
    CAPTURE(round);
    ParallelProblem problem(maker, dice);
    problem.pin_some_shards(round, 10);
    Question& question = problem.question;
    question.options.mixes_forms = true;
    question.options.recomputed_layers = RecomputedLayers::All;
    question.options.pins.tensor.reset();
    ask_for_any_mode(dice, question.options);
    if (mixed_by_hand(problem).empty()) continue;
    if (dice.chance(60)) tighten_memory(dice, question);
    compare_mixed(problem, dice, seen);
  }
  if (small::scaled(1000) < 1000) return;  // Too few for every subject.
  // One of so many rounds, at least.
  const std::pair<const char*, int> subjects[] = {{"plans", 10},
                                                  {"none fits", 20},
                                                  {"different stages are faster", 100},
                                                  {"data-parallel ranks in groups", 200},
                                                  {"recomputed parts differ", 200},
                                                  {"tensor degrees differ", 500},
                                                  {"context degrees differ", 1000},
                                                  {"expert degrees differ", 2000},
                                                  {"only different stages fit", 2000},
                                                  {"sharded in some stages", 10000}};
  for (const auto& [what, rounds] : subjects) {
    CAPTURE(what);
    CHECK(seen[what] >= small::scaled(1000) / rounds);
  }
}

TEST_CASE("where stages may differ in how many of their layers recompute, too") {
  ProblemMaker maker(4111, {.layers = 4, .devices = 2, .global_batch = 3, .own_times = false});
  Dice dice(4112);
  Counts seen;
  for (int round = 0; round < small::scaled(300); ++round) {
    CAPTURE(round);
    ParallelProblem problem(maker, dice);
    Question& question = problem.question;
    for (Layer& layer : question.made.problem.profile.layers) {
      LayerVariant recomputing{.parallelism = {.recomputes = kWholeLayer},
                               .parameters = layer.parameters,
                               .fixed_overhead = {},
                               .measurements = layer.measurements,
                               .forward_collectives = {},
                               .backward_collectives = {}};
      for (Measurement& measured : recomputing.measurements) {
        measured.backward += measured.forward;
        measured.stash = {measured.stash.count / 4};
      }
      layer.variants = {recomputing};
    }
    question.options.mixes_forms = true;
    question.options.recomputed_layers = RecomputedLayers::Any;
    question.options.sharding = Sharding::None;
    question.options.pins.tensor.reset();
    question.options.max_tensor.reset();
    tighten_memory(dice, question);
    compare_mixed(problem, dice, seen);
  }
  if (small::scaled(300) < 300) return;  // Too few for every subject.
  CHECK(seen["plans"] >= small::scaled(100));
  CHECK(seen["recomputed layers differ"] >= small::scaled(5));
}

namespace {

/// What each device of a stage on groups of different sizes receives from each device of the
/// other one, by the parts of the tensor that both would have if it were divided among the
/// devices of a replica in order.
std::map<std::pair<std::int32_t, std::int32_t>, std::int64_t> flows_by_hand(
    const Plan& plan, const StagePlan& from, const StagePlan& to,
    const std::function<std::int64_t(std::int64_t)>& size_of) {
  std::map<std::pair<std::int32_t, std::int32_t>, std::int64_t> flows;
  for (std::int64_t i = 0; i < std::ssize(from.devices); ++i) {
    for (std::int64_t j = 0; j < std::ssize(to.devices); ++j) {
      const std::int64_t senders = from.devices_per_replica;
      const std::int64_t receivers = to.devices_per_replica;
      std::int64_t samples = 0;
      for (std::int64_t s = 0; s < plan.micro_batch_size; ++s) {
        const auto has = [&](const StagePlan& stage, std::int64_t replica) {
          const SampleRange own = replica_share(plan.micro_batch_size, replicas_of(stage), replica);
          return own.begin <= s && s < own.end;
        };
        if (has(from, i / senders) && has(to, j / receivers)) ++samples;
      }
      // What parts a of `senders` and b of `receivers` of one whole have in common, of which the
      // receiver's part has as many units as there are senders.
      const std::int64_t a = i % senders;
      const std::int64_t b = j % receivers;
      const std::int64_t common =
          std::min((a + 1) * receivers, (b + 1) * senders) - std::max(a * receivers, b * senders);
      if (samples == 0 || common <= 0) continue;
      const auto bytes =
          static_cast<std::int64_t>(ceiling(Wide{size_of(samples)} * common, senders));
      if (bytes > 0) {
        flows[{from.devices[static_cast<std::size_t>(i)].value,
               to.devices[static_cast<std::size_t>(j)].value}] = bytes;
      }
    }
  }
  return flows;
}

std::map<std::pair<std::int32_t, std::int32_t>, std::int64_t> flows_of(const TransferCost& cost) {
  std::map<std::pair<std::int32_t, std::int32_t>, std::int64_t> flows;
  for (const PairFlow& flow : cost.flows) {
    flows[{flow.from.value, flow.to.value}] += flow.size.count;
  }
  return flows;
}

/// A plan of two stages, each in any form of a set on its groups; nothing if they do not fit.
std::optional<Plan> two_stages(Dice& dice, const MixedForms& set, std::int64_t batch) {
  const ModelProfile& profile = set.problem.profile;
  const Topology topology(set.problem.topology);
  const auto layers = static_cast<std::int32_t>(profile.layers.size());
  const auto cut = static_cast<std::int32_t>(dice.roll(1, layers - 1));
  Plan plan{.global_batch_size = batch,
            .micro_batch_size = batch,
            .parallelism = profile.parallelism,
            .stage_forms = stage_forms_of(profile),
            .warmup_depths = {1, 1},
            .stages = std::vector<StagePlan>(2)};
  plan.stages[0].layers = {0, cut};
  plan.stages[1].layers = {cut, layers};
  std::set<std::int32_t> used;
  for (StagePlan& stage : plan.stages) {
    stage.form.value = static_cast<std::int32_t>(dice.roll(0, std::ssize(profile.stage_forms)));
    stage.recompute = dice.chance(30);
    const auto each = static_cast<std::int32_t>(Group(form_of(plan, stage)).size /
                                                Group(profile.parallelism).size);
    const std::int64_t most = dice.roll(1, batch);
    for (std::int32_t first = 0; first + each <= topology.device_count(); first += each) {
      const bool is_last = &stage == &plan.stages[1];
      // The first stage leaves some groups free.
      if ((!is_last && dice.chance(40)) || std::ssize(stage.devices) / each >= most) continue;
      bool is_free = true;
      for (std::int32_t d = first; d < first + each; ++d) is_free = is_free && used.count(d) == 0;
      if (!is_free) continue;
      for (std::int32_t d = first; d < first + each; ++d) {
        stage.devices.push_back({d});
        used.insert(d);
      }
    }
    if (stage.devices.empty()) return std::nullopt;
  }
  set_devices_per_replica(plan);
  return plan;
}

/// The same stage on its groups as single devices, with the other stage on the rest.
StageCost as_groups(const ParallelProblem& problem, const Plan& plan, std::size_t s) {
  const Parallelism form = form_of(plan, plan.stages[s]);
  auto grouped = grouped_by_hand(problem.question.made.problem, form);
  REQUIRE(grouped.has_value());
  const Topology topology(grouped->topology);
  Plan alone = plan;
  alone.stage_forms.clear();
  for (StagePlan& stage : alone.stages) {
    stage.form = {};
    stage.devices_per_replica = 1;
    stage.devices.clear();
    stage.gradient_buckets.clear();
  }
  const StagePlan& own = plan.stages[s];
  for (std::size_t i = 0; i < own.devices.size();
       i += static_cast<std::size_t>(own.devices_per_replica)) {
    alone.stages[s].devices.push_back({own.devices[i].value / own.devices_per_replica});
  }
  // The other stage is on some other device, if any is left, as what it costs does not matter.
  for (std::int32_t d = 0; d < topology.device_count(); ++d) {
    const std::vector<DeviceIndex>& taken = alone.stages[s].devices;
    if (std::find(taken.begin(), taken.end(), DeviceIndex{d}) != taken.end()) continue;
    alone.stages[1 - s].devices = {{d}};
    break;
  }
  REQUIRE_FALSE(alone.stages[1 - s].devices.empty());
  fill_gradient_buckets(alone, grouped->profile);
  return CostModel(grouped->profile, topology).plan_cost(alone).stages[s];
}

}  // namespace

TEST_CASE("stages on groups of different sizes cost what they cost on their own groups") {
  ProblemMaker maker(4111, {.layers = 5, .devices = 6, .global_batch = 6, .own_times = false});
  Dice dice(4112);
  Counts seen;
  for (int round = 0; round < small::scaled(30000); ++round) {
    CAPTURE(round);
    ParallelProblem problem(maker, dice);
    problem.pin_some_shards(round, 7);
    problem.question.options.pins.tensor.reset();
    problem.question.made.problem.profile.boundaries = Boundaries::Whole;
    const std::int64_t batch = problem.question.options.global_batch_size;
    // Twice as many devices in each server, so that there are three sizes.
    for (ServerGroup& servers : problem.question.made.problem.topology.servers) {
      if (servers.nics.front().devices.empty()) servers.devices *= 2;
      servers.bus_bandwidth.clear();
    }
    for (const MixedForms& set : any_sizes_by_hand(problem)) {
      if (set.problem.profile.layers.size() < 2) continue;
      const auto plan = two_stages(dice, set, batch);
      if (!plan) continue;
      Plan mixed = *plan;
      const ModelProfile& profile = set.problem.profile;
      const Topology topology(set.problem.topology);
      fill_gradient_buckets(mixed, profile);
      INFO(text_of(problem) << "\n" << small::text_of(mixed));
      REQUIRE(costing_faults(mixed, profile, topology).empty());
      const CostModel model(profile, topology);
      const PlanCost costs = model.plan_cost(mixed);
      for (std::size_t s = 0; s < 2; ++s) {
        const StageCost& one = costs.stages[s];
        const StageCost other = as_groups(problem, mixed, s);
        REQUIRE(one.forward == other.forward);
        REQUIRE(one.backward == other.backward);
        REQUIRE(one.optimizer_step == other.optimizer_step);
        REQUIRE(one.buckets.size() == other.buckets.size());
        for (std::size_t b = 0; b < one.buckets.size(); ++b) {
          REQUIRE(one.buckets[b].time == other.buckets[b].time);
        }
        for (std::size_t d = 0; d < one.replicas.size(); ++d) {
          const std::size_t r = d / static_cast<std::size_t>(mixed.stages[s].devices_per_replica);
          REQUIRE(one.replicas[d].memory.peak() == other.replicas[r].memory.peak());
          REQUIRE(one.replicas[d].samples == other.replicas[r].samples);
        }
      }
      const std::int32_t cut = mixed.stages[1].layers.begin;
      const auto received_by = [&](std::size_t s) {
        return [&, s](std::int64_t samples) {
          return model.in(mixed.stages[s].form).boundary_size(cut, samples).count;
        };
      };
      const BoundaryCost& boundary = costs.boundaries.front();
      REQUIRE(flows_of(boundary.forward.front()) ==
              flows_by_hand(mixed, mixed.stages[0], mixed.stages[1], received_by(1)));
      REQUIRE(flows_of(boundary.backward.front()) ==
              flows_by_hand(mixed, mixed.stages[1], mixed.stages[0], received_by(0)));
      const std::int32_t front = mixed.stages[0].devices_per_replica;
      const std::int32_t back = mixed.stages[1].devices_per_replica;
      ++seen[front == back ? (front == 1 ? "smallest groups" : "larger groups")
                           : "different groups"];
      if (front > 1 && back > 1 && front != back) ++seen["three sizes"];
      if (!costs.stages[0].buckets.empty() && front > 1) ++seen["reductions of larger groups"];
      if (topology.server_count() > 1 && front != back) ++seen["several servers"];
    }
  }
  const std::pair<const char*, int> subjects[] = {{"different groups", 500},
                                                  {"larger groups", 100},
                                                  {"three sizes", 5},
                                                  {"reductions of larger groups", 100},
                                                  {"several servers", 100}};
  for (const auto& [what, least] : subjects) {
    CAPTURE(what);
    CHECK(seen[what] >= small::scaled(least));
  }
}

namespace {

/// Makes all outputs larger, so that transfers decide.
void enlarge_outputs(std::int64_t factor, ModelProfile& profile) {
  for (Layer& layer : profile.layers) {
    for (Measurement& point : layer.measurements) point.output = factor * point.output;
    for (LayerVariant& variant : layer.variants) {
      for (Measurement& point : variant.measurements) point.output = factor * point.output;
    }
  }
}

}  // namespace

TEST_CASE("where groups may have different sizes the plan is the fastest of all, and it knows") {
  ProblemMaker maker(4113, {.layers = 3, .devices = 4, .global_batch = 4, .own_times = false});
  Dice dice(4114);
  Counts seen;
  for (int round = 0; round < small::scaled(12000); ++round) {
    CAPTURE(round);
    ParallelProblem problem(maker, dice);
    problem.pin_some_shards(round, 10);
    Question& question = problem.question;
    question.options.mixes_forms = true;
    question.options.mixes_group_sizes = true;
    question.options.recomputed_layers = RecomputedLayers::All;
    question.options.pins.tensor.reset();
    ask_for_any_mode(dice, question.options);
    question.options.replicas = Replicas::Together;
    if (dice.chance(50)) {
      constexpr std::int64_t kFactors[] = {10, 100, 1000, 10000};
      enlarge_outputs(kFactors[dice.roll(0, 3)], question.made.problem.profile);
      question.options.pins.stages = dice.roll(2, 3);
    }
    if (any_sizes_by_hand(problem).empty()) continue;
    if (dice.chance(60)) tighten_memory(dice, question);
    const std::vector<MixedForms> of_one_size = mixed_by_hand(problem);
    const std::vector<MixedForms> sets = any_sizes_by_hand(problem);
    if (!are_few(of_one_size) || !are_few(sets)) continue;
    Duration of_others = Duration::infinite();
    for (const auto& [form, iteration] : fastest_of_each(problem)) {
      of_others = std::min(of_others, iteration);
    }
    for (const MixedForms& set : of_one_size) {
      const small::OracleAnswer found = question_of(problem, set.problem).fastest();
      if (found.plan) of_others = std::min(of_others, found.iteration);
    }
    std::map<std::set<Parallelism>, Duration> fastest;
    Duration least = of_others;
    for (const MixedForms& set : sets) {
      const small::OracleAnswer found = question_of(problem, set.problem).fastest();
      fastest[set.forms] = found.plan ? found.iteration : Duration::infinite();
      least = std::min(least, fastest[set.forms]);
    }
    auto made = planner::make_plan_of_any_parallelism(
        {question.made.problem.profile, question.topology, question.options}, {});
    auto* plan = std::get_if<planner::MadePlan>(&made);
    INFO(text_of(problem));
    CAPTURE(of_others.ns, least.ns);
    ++seen["instances"];
    if (plan == nullptr) {
      REQUIRE(least.is_infinite());
      ++seen["none fits"];
      continue;
    }
    plan->document.tool = "test";
    const PlanDocument& document = plan->document;
    INFO(io::write_plan(document));
    REQUIRE(document.prediction.iteration == least);
    REQUIRE(document.prediction.lower_bound == least);
    for (const ParallelismRecord& record : document.parallelisms) {
      std::set<Parallelism> forms(record.stage_forms.begin(), record.stage_forms.end());
      forms.insert(record.parallelism);
      const auto set = fastest.find(forms);
      if (set == fastest.end()) continue;
      if (record.lower_bound) REQUIRE(*record.lower_bound <= set->second);
      ++seen["records"];
    }
    if (least >= of_others) continue;
    ++seen[of_others.is_infinite() ? "only different sizes fit" : "different sizes are faster"];
    REQUIRE(has_larger_groups(document.plan));
    if (question.options.transfers != Transfers::Overlapped) ++seen["transfers block"];
    if (question.made.contention == Contention::Off) ++seen["links are not shared"];
    require_verified(document);
  }
  if (small::scaled(12000) < 12000) return;  // Too few for every subject.
  const std::pair<const char*, int> subjects[] = {
      {"instances", 900},     {"records", 500},
      {"none fits", 5},       {"different sizes are faster", 10},
      {"transfers block", 1}, {"links are not shared", 2}};
  for (const auto& [what, least] : subjects) {
    CAPTURE(what);
    CHECK(seen[what] >= least);
  }
}
