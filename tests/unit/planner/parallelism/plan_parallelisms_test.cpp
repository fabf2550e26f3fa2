// The search over forms of parallelism: in which order it goes through them, what it tells
// meanwhile, and what it proves where state is sharded and nothing fits.
#include "dapple/planner/parallelism/plan_parallelisms.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "../../../support/impatient.h"
#include "../../../support/pipeline.h"
#include "../even_model.h"
#include "dapple/planner/make_plan.h"
#include "dapple/planner/parallelism/asked_parallelisms.h"

namespace dapple::planner {
namespace {

/// Keeps what it is told.
class Listener : public Progress {
 public:
  void update(const SearchProgress& progress) override { told_.push_back(progress); }
  const std::vector<SearchProgress>& told() const { return told_; }

 private:
  std::vector<SearchProgress> told_;
};

/// Two servers of two devices, with so many bytes each.
Topology devices_with(std::int64_t memory) {
  TopologyDescription description = small::cluster({.servers = 2, .devices = 2});
  description.devices.front().memory = {memory};
  return Topology(description);
}

/// One layer of 1,000 bytes of parameters and of gradients and 8,000 of optimizer state, of which a
/// sample stashes a byte.
ModelProfile one_layer() {
  ModelProfile profile = small::model_of(
      {{.forward = 10, .backward = 20, .output = 1, .parameters = 1'000, .stash = 1}});
  profile.optimizer.state_bytes_per_parameter_byte = {8 * kOne.billionths};
  return profile;
}

/// Layers with so many bytes of parameters each, of which a device needs ten times as many, and
/// half of that with tensor parallelism of two.
ModelProfile halved(const std::vector<std::int64_t>& parameters) {
  std::vector<small::LayerFigures> figures;
  for (const std::int64_t bytes : parameters) {
    figures.push_back({.forward = 10, .backward = 20, .output = 1, .parameters = bytes});
  }
  ModelProfile profile = small::model_of(figures);
  profile.optimizer.state_bytes_per_parameter_byte = {8 * kOne.billionths};
  for (Layer& layer : profile.layers) {
    LayerVariant& half = layer.variants.emplace_back();
    half.parallelism.tensor = 2;
    half.parameters = {layer.parameters.count / 2};
    half.measurements = layer.measurements;
  }
  return profile;
}

std::variant<MadePlan, Infeasible> plan_with_sharded_optimizer(std::int64_t memory) {
  PlannerOptions options = small::batch(8);
  options.sharding = Sharding::Optimizer;
  options.baselines = false;
  const Topology topology = devices_with(memory);
  const ModelProfile profile = one_layer();
  return make_plan_of_any_parallelism({profile, topology, options}, std::nullopt);
}

}  // namespace

TEST_CASE("every form has a plan before one of them is searched") {
  const ModelProfile profile = small::even_model(100, 10, 1);
  const Topology topology = devices_with(1'000'000);
  PlannerOptions options = small::batch(16);
  options.sharding = Sharding::Any;
  Listener listener;
  const auto made =
      make_plan_of_any_parallelism({profile, topology, options, &listener}, std::nullopt);
  REQUIRE(std::holds_alternative<MadePlan>(made));
  const std::size_t forms = std::get<MadePlan>(made).document.parallelisms.size();
  REQUIRE(forms >= 4);

  std::vector<std::string> order;
  std::optional<Duration> best;
  std::int64_t states = 0;
  for (const SearchProgress& progress : listener.told()) {
    if (order.empty() || order.back() != progress.part) order.push_back(progress.part);
    if (best) CHECK(progress.best.value() <= *best);
    best = progress.best;
    if (best && progress.bound) CHECK(*progress.bound <= *best);
    CHECK(progress.states >= states);
    states = progress.states;
  }
  CHECK(best == std::get<MadePlan>(made).document.prediction.iteration);
  // Forms with a bound above the best plan are left out.
  std::set<std::string> forms_of_first_round;
  std::size_t next = 0;
  while (next < order.size() && forms_of_first_round.insert(order[next]).second) ++next;
  CHECK(next >= 2);
  CHECK(next < order.size());
  for (const std::string& form : forms_of_first_round) {
    CHECK(form.find(" of " + std::to_string(forms) + " (") != std::string::npos);
  }
}

TEST_CASE("more samples than one let replicas share the state of a layer that fits no device") {
  // A whole layer needs above 10,000 bytes; over four replicas, 2,000 and 8,000 / 4 and buffers.
  const auto whole = plan_with_sharded_optimizer(11'500);
  REQUIRE(std::holds_alternative<MadePlan>(whole));
  const auto shared = plan_with_sharded_optimizer(6'000);
  REQUIRE(std::holds_alternative<MadePlan>(shared));
  CHECK(std::get<MadePlan>(shared).document.plan.stages.front().devices.size() > 1);
}

TEST_CASE("larger micro-batches let ranks of a group hold fewer samples of a batch under GPipe") {
  // Shards over two devices of 1,000 bytes of parameters, as many of gradients and 8,000 of state
  // are 5,000, and gathered parameters and gradients 2,000. Four micro-batches of a sample leave
  // one to a rank in each, 400 bytes; of two or four samples a rank has 200 bytes in all. A second
  // group needs a bucket of 500 bytes. Shards over all four devices fit too.
  ModelProfile profile = one_layer();
  profile.layers.front().measurements.front().stash = {100};
  PlannerOptions options = small::batch(4);
  options.family = ScheduleFamily::GPipe;
  options.sharding = Sharding::Full;
  options.baselines = false;
  const Topology topology = devices_with(7'300);
  const auto made = make_plan_of_any_parallelism({profile, topology, options}, std::nullopt);
  REQUIRE(std::holds_alternative<MadePlan>(made));
  const PlanDocument& document = std::get<MadePlan>(made).document;
  bool has_two_shards = false;
  for (const ParallelismRecord& record : document.parallelisms) {
    if (record.parallelism.full_shards != 2) continue;
    has_two_shards = true;
    CHECK(record.missing == Bytes{});
  }
  CHECK(has_two_shards);
  CHECK(document.prediction.lower_bound == document.prediction.iteration);
}

TEST_CASE("where state is sharded, it is proven that nothing fits") {
  const auto made = plan_with_sharded_optimizer(3'500);
  REQUIRE(std::holds_alternative<Infeasible>(made));
  const auto& infeasible = std::get<Infeasible>(made);
  CHECK(infeasible.is_certain);
  CHECK_FALSE(infeasible.stopped);
  // The closest plan is that of four replicas, not of one.
  REQUIRE(infeasible.closest.stages.size() == 1);
  CHECK(infeasible.closest.stages.front().devices.size() == 4);
}

TEST_CASE("that no plan of one form fits is no claim about forms that a stopped search left out") {
  // No device holds the first layer, nor half of it beside any other.
  const ModelProfile profile = halved({1'000, 200, 200, 200, 200, 200});
  PlannerOptions options = small::batch(8);
  options.baselines = false;
  const Topology topology = devices_with(5'500);
  REQUIRE(std::holds_alternative<MadePlan>(
      make_plan_of_any_parallelism({profile, topology, options}, std::nullopt)));
  int stopped = 0;
  for (int patience = 0; patience < 100; ++patience) {
    CAPTURE(patience);
    small::Impatient progress(patience);
    const auto made =
        make_plan_of_any_parallelism({profile, topology, options, &progress}, std::nullopt);
    const auto* const none = std::get_if<Infeasible>(&made);
    if (none == nullptr) continue;
    CHECK(none->stopped);
    ++stopped;
  }
  CHECK(stopped > 0);
}

TEST_CASE("that no plan fits is certain only if it is so of every form") {
  // A device holds no whole layer, but half of one, of which no two stages can be made.
  const ModelProfile profile = halved({1'000});
  PlannerOptions options = small::batch(8);
  options.baselines = false;
  options.family = ScheduleFamily::ZeroBubbleV;
  for (const std::int64_t memory : {1'000, 8'000}) {
    CAPTURE(memory);
    const auto made =
        make_plan_of_any_parallelism({profile, devices_with(memory), options}, std::nullopt);
    REQUIRE(std::holds_alternative<Infeasible>(made));
    const auto& none = std::get<Infeasible>(made);
    // It is not proven that no V holds half of the layer.
    CHECK(none.is_certain == (memory == 1'000));
    CHECK(none.lower_bound.is_infinite() == (memory == 1'000));
  }
}

TEST_CASE("where a search under 1F1B was stopped, no form claims that it has no plans") {
  // One layer on one of two devices, of which the second is twice as quick; to recompute takes
  // longer.
  ModelProfile profile = small::model_of({{.forward = 1'000, .backward = 8'000, .output = 1}});
  LayerVariant& variant = profile.layers.front().variants.emplace_back();
  variant.parallelism.recomputes = kWholeLayer;
  variant.measurements = profile.layers.front().measurements;
  variant.measurements.front().backward = {11'000};
  TopologyDescription description = small::cluster({.servers = 2});
  description.servers.front().count = 1;
  description.servers.push_back(description.servers.front());
  description.servers.back().name = "quick";
  description.servers.back().device = "quick";
  description.devices.push_back(description.devices.front());
  description.devices.back().name = "quick";
  description.devices.back().time_scale[description.devices.front().name] = {kOne.billionths / 2};
  profile.device = description.devices.front().name;
  const Topology topology(description);
  PlannerOptions options = small::batch(1);
  options.every_family = true;
  options.baselines = false;
  int open = 0;
  for (int patience = 0; patience < 100; ++patience) {
    CAPTURE(patience);
    small::Impatient progress(patience);
    const auto made =
        make_plan_of_any_parallelism({profile, topology, options, &progress}, std::nullopt);
    const auto* const plan = std::get_if<MadePlan>(&made);
    if (plan == nullptr) continue;
    CHECK(plan->document.prediction.lower_bound.value() <= Duration{4'500});
    for (const ScheduleRecord& record : plan->document.schedules) {
      CAPTURE(record.family);
      // A single stage has the same order under each.
      CHECK(record.lower_bound.value() <= Duration{4'500});
      if (record.family == ScheduleFamily::OneFOneB && !record.iteration) ++open;
    }
  }
  CHECK(open > 0);
}

TEST_CASE("that nothing fits on unlike devices in order is no claim about other orders") {
  // The first device has room for the second layer only, and the second one for the first.
  const ModelProfile profile =
      small::model_of({{.forward = 10, .backward = 20, .output = 1, .parameters = 2'500},
                       {.forward = 10, .backward = 20, .output = 1, .parameters = 1'000}});
  TopologyDescription description = small::cluster({.servers = 2});
  description.servers.front().count = 1;
  description.servers.push_back(description.servers.front());
  description.servers.back().name = "large";
  description.servers.back().device = "large";
  description.devices.push_back(description.devices.front());
  description.devices.front().memory = {2'300};
  description.devices.back().name = "large";
  description.devices.back().memory = {5'300};
  description.devices.back().time_scale[description.devices.front().name] = kOne;
  const Topology topology(description);
  PlannerOptions options = small::batch(1);
  options.baselines = false;
  REQUIRE(std::holds_alternative<MadePlan>(make_plan({profile, topology, options})));
  for (const PlannerKind planner : {PlannerKind::Exact, PlannerKind::Dapple}) {
    options.planner = planner;
    // Only plans that are faster than any need to be found.
    const auto made = make_plan({profile, topology, options, nullptr, Duration{1}});
    const auto* const none = std::get_if<Infeasible>(&made);
    if (none == nullptr) continue;
    CHECK_FALSE(none->is_certain);
    CHECK_FALSE(none->lower_bound.is_infinite());
  }
}

TEST_CASE("where replicas share state, plans may fit only if a stage deals its micro-batches") {
  // On one device the first layer needs 10,000 bytes, and on two, 2,000 and 8,000 / 2 and a bucket.
  // A device has room for one sample of the other layer, which two replicas cannot share.
  ModelProfile profile = small::model_of(
      {{.forward = 10, .backward = 20, .output = 1, .parameters = 1'000, .stash = 1},
       {.forward = 10, .backward = 20, .output = 1, .parameters = 100, .stash = 4'000}});
  profile.optimizer.state_bytes_per_parameter_byte = {8 * kOne.billionths};
  TopologyDescription description = small::cluster({.devices = 3});
  description.devices.front().memory = {7'500};
  const Topology topology(description);
  PlannerOptions options = small::batch(4);
  options.sharding = Sharding::Optimizer;
  options.baselines = false;
  REQUIRE(std::holds_alternative<Infeasible>(
      make_plan_of_any_parallelism({profile, topology, options}, std::nullopt)));
  options.replications = Replications::Any;
  const auto made = make_plan_of_any_parallelism({profile, topology, options}, std::nullopt);
  REQUIRE(std::holds_alternative<MadePlan>(made));
  const PlanDocument& document = std::get<MadePlan>(made).document;
  CHECK(deals_micro_batches(document.plan));
  CHECK(document.prediction.lower_bound == document.prediction.iteration);
}

TEST_CASE("the plans of a form are those of a set that has it if all groups have one size") {
  Parallelism halves;
  halves.tensor = 2;
  Parallelism ranks;
  ranks.group_replicas = 2;
  const Parallelism single;
  REQUIRE(halves.group_size() == ranks.group_size());
  CHECK(are_plans_of_set(ranks, ranks, {halves}));
  CHECK(are_plans_of_set(halves, ranks, {halves}));
  CHECK_FALSE(are_plans_of_set(halves, halves, {}));
  CHECK_FALSE(are_plans_of_set(single, ranks, {halves}));
  CHECK_FALSE(are_plans_of_set(halves, single, {halves}));
  CHECK_FALSE(are_plans_of_set(single, single, {halves}));
}

TEST_CASE("a search in sets of forms leaves out the forms whose plans they have") {
  // Eight layers that keep 60 bytes of each sample beside 10 of weights and 10 of gradients, on two
  // devices of 300: stages of four layers hold three micro-batches of one sample at a depth of one
  // only where layers recompute.
  ModelProfile profile = small::model_of(std::vector<small::LayerFigures>(
      8, {.forward = 10, .backward = 20, .output = 4, .parameters = 10, .stash = 60}));
  Parallelism form;
  form.recomputes = RecomputedParts{RecomputedPart::Layer};
  for (Layer& layer : profile.layers) {
    LayerVariant& variant = layer.variants.emplace_back();
    variant.parallelism = form;
    variant.parameters = layer.parameters;
    variant.measurements = layer.measurements;
    variant.measurements.front().backward = {30};
    variant.measurements.front().stash = {4};
  }
  TopologyDescription description = small::cluster({.servers = 1, .devices = 2});
  description.devices.front().memory = {300};
  const Topology topology(description);
  PlannerOptions options = small::batch(8);
  options.baselines = false;
  options.mixes_forms = true;
  options.recomputed_layers = RecomputedLayers::Any;
  const auto made = make_plan_of_any_parallelism({profile, topology, options}, std::nullopt);
  REQUIRE(std::holds_alternative<MadePlan>(made));
  const PlanDocument& mixed = std::get<MadePlan>(made).document;
  CHECK(mixed.prediction.lower_bound == mixed.prediction.iteration);
  Duration least = Duration::infinite();
  std::size_t forms = 0;
  for (const ParallelismRecord& record : mixed.parallelisms) {
    // A form has no bound if none of its plans fits.
    if (!record.stage_forms.empty() || !record.lower_bound) continue;
    ++forms;
    CHECK(*record.lower_bound >= mixed.prediction.iteration);
    if (record.iteration) least = std::min(least, *record.iteration);
  }
  CHECK(forms > 4);

  options.mixes_forms = false;
  const auto uniform = make_plan_of_any_parallelism({profile, topology, options}, std::nullopt);
  REQUIRE(std::holds_alternative<MadePlan>(uniform));
  const Duration best = std::get<MadePlan>(uniform).document.prediction.iteration;
  CHECK(best >= mixed.prediction.iteration);
  CHECK(least >= best);
}

TEST_CASE("the fastest plan has a form in its first stage that another one beats in every time") {
  // Two layers on two devices of 100 bytes, four samples. A layer keeps weights and gradients of 10
  // bytes each and, of each sample, 60, so that a first stage holds one micro-batch and four round
  // trips of 60 take 240; recomputing all of itself it holds all four and takes 40 + 90 + 30 = 160.
  // With its norm recomputed a layer takes 22 back in place of 20 and keeps 40 of a sample, so that
  // the first stage holds two: F and B0 end at 20 and 62, B1 and F3 at 94 and 104, and B3 follows
  // that of the last stage from 134 to 156. In both stages it takes 160.
  ModelProfile profile = small::model_of(std::vector<small::LayerFigures>(
      2, {.forward = 10, .backward = 20, .parameters = 10, .stash = 60}));
  Parallelism form;
  form.recomputes = RecomputedParts{RecomputedPart::Norm};
  for (Layer& layer : profile.layers) {
    layer.variants.push_back({.parallelism = form,
                              .parameters = layer.parameters,
                              .fixed_overhead = {},
                              .measurements = layer.measurements,
                              .forward_collectives = {},
                              .backward_collectives = {}});
    layer.variants.front().measurements.front().backward = {22};
    layer.variants.front().measurements.front().stash = {40};
  }
  TopologyDescription description = small::cluster({.servers = 1, .devices = 2});
  description.devices.front().memory = {100};
  const Topology topology(description);
  PlannerOptions options = small::batch(4);
  options.baselines = false;
  const auto plan = [&] {
    const auto made = make_plan_of_any_parallelism({profile, topology, options}, std::nullopt);
    REQUIRE(std::holds_alternative<MadePlan>(made));
    return std::get<MadePlan>(made).document;
  };
  CHECK(plan().prediction.iteration == Duration{160});
  options.mixes_forms = true;
  const PlanDocument mixed = plan();
  CHECK(mixed.prediction.iteration == Duration{156});
  CHECK(mixed.prediction.lower_bound == Duration{156});
  REQUIRE(mixed.plan.stages.size() == 2);
  CHECK(form_of(mixed.plan, mixed.plan.stages[0]) == form);
  CHECK(form_of(mixed.plan, mixed.plan.stages[1]).is_none());
}

}  // namespace dapple::planner
