// The exact planner against every plan of small problems, each dimension of the space wide open.

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "../support/random_group.h"
#include "../support/skips.h"
#include "exact_planner_checks.h"

using namespace dapple;

namespace {

using small::Made;
using small::OracleAnswer;
using small::OracleOptions;
using small::ProblemMaker;
using small::Question;

/// In how many problems something was seen.
using Counts = std::map<std::string, int>;

void count(Counts& counts, const std::set<std::string>& seen) {
  for (const std::string& what : seen) ++counts[what];
}

void require_each(const Counts& counts, int least) {
  for (const auto& [what, times] : counts) {
    CAPTURE(what);
    CHECK(times >= small::scaled(least));
  }
}

bool has_given_shares(const Plan& plan) {
  return std::any_of(plan.stages.begin(), plan.stages.end(),
                     [](const StagePlan& stage) { return !stage.samples.empty(); });
}

bool has_several_kinds(const TopologyDescription& topology) {
  return std::any_of(
      topology.servers.begin(), topology.servers.end(),
      [&](const ServerGroup& group) { return group.device != topology.servers.front().device; });
}

/// Makes replicas pay: activations and gradients are smaller.
void shrink_transfers(small::Dice& dice, ModelProfile& profile) {
  const std::int64_t divisor = dice.roll(1, 20);
  for (Layer& layer : profile.layers) {
    layer.parameters.count /= divisor;
    for (Measurement& measured : layer.measurements) measured.output.count /= divisor;
  }
}

/// Pins that some plan or none obeys.
Pins random_pins(small::Dice& dice, std::int32_t layers, std::int32_t devices) {
  Pins pins;
  if (dice.chance(40)) {
    pins.stages = static_cast<std::int32_t>(dice.roll(1, std::min(layers, devices)));
  }
  if (dice.chance(30)) pins.replicas = static_cast<std::int32_t>(dice.roll(1, 2));
  if (dice.chance(40)) pins.recompute = dice.chance(60);
  pins.least_depths = dice.chance(40);
  for (std::int32_t layer = 1; layer < layers; ++layer) {
    if (dice.chance(20)) {
      pins.cuts.push_back(layer);
    } else if (dice.chance(20)) {
      pins.joints.push_back(layer);
    }
  }
  return pins;
}

}  // namespace

TEST_CASE("the oracle finds the same without its bounds") {
  ProblemMaker maker(2001, {.layers = 3, .devices = 3, .global_batch = 4});
  for (int round = 0; round < small::scaled(200); ++round) {
    CAPTURE(round);
    const Question question(maker.next());
    OracleOptions options{.contention = question.made.contention, .may_deal = round % 2 == 1};
    const OracleAnswer quick =
        small::fastest_plan(question.made.problem, question.topology, options);
    options.use_bounds = false;
    const OracleAnswer slow =
        small::fastest_plan(question.made.problem, question.topology, options);
    REQUIRE(quick.iteration == slow.iteration);
    REQUIRE(quick.plan.has_value() == slow.plan.has_value());
  }
}

TEST_CASE("the exact planner's plan is the fastest of all, and it knows") {
  ProblemMaker maker(2002);
  Counts open;
  Counts used;
  int infeasible = 0;
  for (int round = 0; round < small::scaled(1500); ++round) {
    CAPTURE(round);
    const Question question(maker.next());
    const Made answer = question.answer();
    const OracleAnswer fastest = small::require_fastest(question, answer);
    count(open, small::open_dimensions(question.made));
    if (fastest.memory_decides) ++open["memory"];
    const PlanDocument* document = small::document_of(answer);
    if (document == nullptr) {
      ++infeasible;
      continue;
    }
    count(used, small::used_dimensions(document->plan, question.topology));
  }
  CHECK(open.size() == 19);
  require_each(open, 200);
  // That is chosen once in tens of thousands.
  used.erase("recomputation of all");
  CHECK(used.size() == 10);
  require_each(used, 8);
  CHECK(infeasible >= small::scaled(100));
}

TEST_CASE("with independent replicas it is the fastest too, and it knows") {
  ProblemMaker maker(2007);
  int replicated = 0;
  for (int round = 0; round < small::scaled(600); ++round) {
    CAPTURE(round);
    Question question(maker.next());
    question.options.replicas = Replicas::Independent;
    question.options.shares = Shares::Any;
    const Made answer = question.answer();
    small::require_fastest(question, answer);
    const PlanDocument* document = small::document_of(answer);
    if (document != nullptr && splits_micro_batches(document->plan)) ++replicated;
  }
  CHECK(replicated >= small::scaled(100));
}

TEST_CASE("where transfers block and reductions come last it is the fastest too, and it knows") {
  ProblemMaker maker(2009);
  small::Dice dice(2010);
  std::map<Transfers, int> piped;
  for (int round = 0; round < small::scaled(800); ++round) {
    CAPTURE(round);
    Question question(maker.next());
    question.options.transfers = dice.chance(50) ? Transfers::Blocking : Transfers::Serial;
    question.options.overlaps_gradients = dice.chance(50);
    question.options.shares = Shares::Any;
    question.options.pins.least_depths = dice.chance(30);
    const Made answer = question.answer();
    small::require_fastest(question, answer);
    const PlanDocument* document = small::document_of(answer);
    if (document == nullptr || document->plan.stages.size() == 1) continue;
    ++piped[question.options.transfers];
  }
  CHECK(piped[Transfers::Blocking] >= small::scaled(80));
  CHECK(piped[Transfers::Serial] >= small::scaled(80));
}

TEST_CASE("with shares by speed it is the fastest too, and it knows") {
  ProblemMaker maker(2013, {.layers = 4, .devices = 5, .global_batch = 12});
  small::Dice dice(2014);
  int by_speed = 0;
  for (int round = 0; round < small::scaled(500);) {
    CAPTURE(round);
    small::PlanningProblem made = maker.next();
    if (!has_several_kinds(made.problem.topology)) continue;
    ++round;
    shrink_transfers(dice, made.problem.profile);
    Question question(std::move(made));
    question.options.shares = Shares::Any;
    if (dice.chance(20)) question.options.family = ScheduleFamily::GPipe;
    const Made answer = question.answer();
    small::require_fastest(question, answer);
    const PlanDocument* document = small::document_of(answer);
    if (document != nullptr && has_given_shares(document->plan)) ++by_speed;
  }
  CHECK(by_speed >= small::scaled(20));
}

TEST_CASE("with micro-batches dealt to replicas in turn it is the fastest too, and it knows") {
  ProblemMaker maker(2015, {.layers = 4, .devices = 4, .global_batch = 6, .crowded = true});
  small::Dice dice(2016);
  int dealt = 0;
  int mixed = 0;
  for (int round = 0; round < small::scaled(500); ++round) {
    CAPTURE(round);
    small::PlanningProblem made = maker.next();
    if (dice.chance(60)) shrink_transfers(dice, made.problem.profile);
    Question question(std::move(made));
    question.options.replications = Replications::Any;
    question.options.shares = Shares::Any;
    question.options.ignore_memory = dice.chance(30);
    // Tensors that wait at a boundary are counted by GPipe's depth, which is not that of a lane.
    if (question.options.ignore_memory && dice.chance(50)) {
      question.options.family = ScheduleFamily::GPipe;
    }
    if (dice.chance(30)) question.options.micro_batch_size = 1;
    const std::int64_t batch = question.made.problem.global_batch;
    if (dice.chance(20) && batch % 2 == 0) question.options.micro_batch_size = 2;
    if (dice.chance(20)) {
      question.options.pins =
          random_pins(dice, static_cast<std::int32_t>(question.made.problem.profile.layers.size()),
                      question.topology.device_count());
      question.options.pins.least_depths = false;
    }
    const Made answer = question.answer();
    small::require_fastest(question, answer);
    const PlanDocument* document = small::document_of(answer);
    if (document == nullptr || !deals_micro_batches(document->plan)) continue;
    ++dealt;
    if (document->plan.stages.size() > 1) ++mixed;
  }
  CHECK(dealt >= small::scaled(35));
  CHECK(mixed >= small::scaled(15));
}

TEST_CASE("where tensors that skip stages are sent directly it is the fastest too") {
  ProblemMaker maker(2021);
  small::Dice dice(2022);
  int skipping = 0;
  for (int round = 0; round < small::scaled(500); ++round) {
    CAPTURE(round);
    small::PlanningProblem made = maker.next();
    small::add_skips(dice, made.problem.profile);
    made.problem.profile.skip_tensors = SkipTensors::Direct;
    Question question(std::move(made));
    question.options.shares = Shares::Any;
    if (dice.chance(30)) question.options.family = ScheduleFamily::GPipe;
    const Made answer = question.answer();
    small::require_fastest(question, answer);
    const PlanDocument* document = small::document_of(answer);
    if (document == nullptr) continue;
    const PlanCost costs =
        CostModel(question.made.problem.profile, question.topology).plan_cost(document->plan);
    if (!costs.skips.empty()) ++skipping;
  }
  CHECK(skipping >= small::scaled(15));
}

TEST_CASE("with pins it is the fastest of the plans that obey them") {
  ProblemMaker maker(2003);
  small::Dice dice(2004);
  int infeasible = 0;
  for (int round = 0; round < small::scaled(400); ++round) {
    CAPTURE(round);
    Question question(maker.next());
    question.options.shares = Shares::Any;
    question.options.pins =
        random_pins(dice, static_cast<std::int32_t>(question.made.problem.profile.layers.size()),
                    question.topology.device_count());
    const Made answer = question.answer();
    small::require_fastest(question, answer);
    if (small::document_of(answer) == nullptr) ++infeasible;
  }
  CHECK(infeasible < small::scaled(300));
}

TEST_CASE("with any bucket size and an optimizer that steps by bucket it is the fastest too") {
  ProblemMaker maker(2007);
  small::Dice dice(2008);
  std::set<Bytes> chosen;
  int by_bucket = 0;
  for (int round = 0; round < small::scaled(600); ++round) {
    CAPTURE(round);
    Question question(maker.next());
    if (dice.chance(70)) question.options.bucket_size.reset();
    if (dice.chance(30)) question.options.bucket_size = Bytes{dice.roll(1, 200) * 1'000'000};
    if (dice.chance(60)) question.options.optimizer = OptimizerTiming::PerBucket;
    const Made answer = question.answer();
    small::require_fastest(question, answer);
    const PlanDocument* document = small::document_of(answer);
    if (document == nullptr) continue;
    const Plan& plan = document->plan;
    for (const StagePlan& stage : plan.stages) {
      if (stage.gradient_buckets.size() < 2) continue;
      if (!question.options.bucket_size) chosen.insert(plan.gradients.bucket_size);
      if (plan.gradients.optimizer == OptimizerTiming::PerBucket) ++by_bucket;
    }
  }
  CHECK(chosen.size() >= (small::scaled(600) >= 600 ? 3U : 1U));
  CHECK(by_bucket >= small::scaled(20));
}

TEST_CASE("the plan is the fastest where what replicas in a group send decides") {
  // Two groups of two replicas each share three samples. The group with two samples sends those of
  // one replica, half of what is sent for all three: sizes step, and are not divided evenly.
  ProblemMaker maker(2011, {.layers = 3, .devices = 4, .global_batch = 6});
  small::Dice dice(2012);
  int sending = 0;
  for (int round = 0; round < small::scaled(400); ++round) {
    CAPTURE(round);
    small::PlanningProblem made = maker.next();
    made.problem.global_batch = 6;
    made.problem.profile.group.replicas = 2;
    for (Layer& layer : made.problem.profile.layers) {
      layer.fixed_overhead = {};
      for (Measurement& measured : layer.measurements) {
        measured.forward.ns /= 500;
        measured.backward.ns /= 500;
        measured.input_gradient.reset();
        measured.weight_gradient.reset();
      }
    }
    Question question(std::move(made));
    question.options.micro_batch_size = 3;
    question.options.pins.replicas = 2;
    const Made answer = question.answer();
    const PlanDocument* document = small::document_of(answer);
    const OracleAnswer fastest = question.fastest();
    REQUIRE((document != nullptr) == fastest.plan.has_value());
    if (document == nullptr) continue;
    REQUIRE(document->prediction.iteration == fastest.iteration);
    REQUIRE(document->prediction.lower_bound == fastest.iteration);
    if (document->plan.stages.size() > 1) ++sending;
  }
  CHECK(sending >= small::scaled(10));
}

TEST_CASE("the bound of list schedules is below every 1F1B plan, however gradients are handled") {
  // 1F1B's orders are among those that a list schedule may choose.
  ProblemMaker maker(2009);
  small::Dice dice(2010);
  int compared = 0;
  for (int round = 0; round < small::scaled(300); ++round) {
    CAPTURE(round);
    small::PlanningProblem made = maker.next();
    made.problem.topology.shards_optimizer = dice.chance(30);
    const bool are_groups = dice.chance(30);
    if (are_groups) small::make_devices_groups(dice, made.problem.profile);
    Question question(std::move(made));
    question.options.family = ScheduleFamily::ListScheduled;
    question.options.optimizer = question.topology.description().shards_optimizer || are_groups
                                     ? OptimizerTiming::AtEnd
                                     : OptimizerTiming::PerBucket;
    question.options.bucket_size = Bytes{dice.roll(1, 200) * 1'000'000};
    const Made answer = question.answer();
    const PlanDocument* document = small::document_of(answer);
    const OracleAnswer fastest = question.fastest();
    if (document == nullptr || !fastest.plan) continue;
    ++compared;
    REQUIRE(document->prediction.lower_bound.value() <= fastest.iteration);
  }
  CHECK(compared >= small::scaled(150));
}

TEST_CASE("with a micro-batch size, a family or unlimited memory asked for it is the fastest too") {
  ProblemMaker maker(2005);
  small::Dice dice(2006);
  for (int round = 0; round < small::scaled(400); ++round) {
    CAPTURE(round);
    Question question(maker.next());
    const std::int64_t batch = question.made.problem.global_batch;
    const std::int64_t size = dice.roll(1, batch);
    if (batch % size == 0 && dice.chance(60)) question.options.micro_batch_size = size;
    if (dice.chance(40)) question.options.family = ScheduleFamily::GPipe;
    question.options.ignore_memory = dice.chance(40);
    small::require_fastest(question, question.answer());
  }
}
