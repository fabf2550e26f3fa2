// Decision diagrams against plans of small problems: no plan is faster than the bound of a relaxed
// diagram, however narrow it is, narrower ones prove no more, and what a restricted diagram returns
// are plans with valid bounds.

#include <algorithm>
#include <catch2/catch.hpp>
#include <optional>
#include <vector>

#include "../support/dice.h"
#include "../support/scaled.h"
#include "dapple/cost/buckets.h"
#include "dapple/search/bounds/bound.h"
#include "dapple/search/decision_diagram/decision_diagram.h"
#include "exact_planner_checks.h"

using namespace dapple;

namespace {

using search::DecisionDiagram;
using search::SearchProblem;
using small::Made;
using small::ProblemMaker;
using small::Question;

/// Asks for anything that the planner can be asked for.
void ask_at_random(Question& question, small::Dice& dice) {
  planner::PlannerOptions& options = question.options;
  options.ignore_memory = dice.chance(20);
  if (dice.chance(25)) options.replicas = Replicas::Independent;
  if (options.replicas == Replicas::Together && dice.chance(30)) {
    options.transfers = dice.chance(50) ? Transfers::Blocking : Transfers::Serial;
  }
  if (dice.chance(50)) options.shares = Shares::Any;
  if (dice.chance(20)) options.overlaps_gradients = false;
  if (dice.chance(20)) options.family = ScheduleFamily::GPipe;
  if (dice.chance(25)) options.optimizer = OptimizerTiming::PerBucket;
  options.bucket_size = Bytes{dice.roll(1, 40) * 1'000'000};
  Pins& pins = options.pins;
  pins.least_depths = !options.family && dice.chance(30);
  if (dice.chance(15)) pins.recompute = dice.chance(60);
  if (dice.chance(15)) pins.replicas = static_cast<std::int32_t>(dice.roll(1, 2));
  const auto layers = static_cast<std::int32_t>(question.made.problem.profile.layers.size());
  if (dice.chance(15)) pins.stages = static_cast<std::int32_t>(dice.roll(1, layers));
  for (std::int32_t layer = 1; layer < layers; ++layer) {
    if (dice.chance(8)) {
      pins.cuts.push_back(layer);
    } else if (dice.chance(8)) {
      pins.joints.push_back(layer);
    }
  }
}

/// One problem for each micro-batch size.
std::vector<SearchProblem> problems_of(const Question& question) {
  const planner::PlannerOptions& options = question.options;
  std::vector<SearchProblem> problems;
  for (std::int64_t size = 1; size <= options.global_batch_size; ++size) {
    if (options.global_batch_size % size != 0) continue;
    problems.push_back(
        {.global_batch_size = options.global_batch_size,
         .micro_batch_size = size,
         .gradients = question.gradients().front(),
         .ignore_memory = options.ignore_memory,
         .gpipe = options.family == ScheduleFamily::GPipe,
         .links_are_shared = options.contention == Contention::Shared,
         .replicas = options.replicas,
         .transfers = options.transfers,
         .pins = options.pins,
         .shares_by_speed = planner::has_shares_by_speed(options, question.topology)});
  }
  return problems;
}

/// The plan of a candidate at the depths that its diagram assumed, with none at depths that do not
/// fit or, where transfers block, at which two stages may wait for each other.
std::optional<Plan> plan_of(const search::Candidate& candidate, const Question& question) {
  Plan plan{.global_batch_size = question.options.global_batch_size,
            .micro_batch_size = candidate.micro_batch_size,
            .num_micro_batches = question.options.global_batch_size / candidate.micro_batch_size,
            .gradients = candidate.gradients,
            .family = question.options.family.value_or(ScheduleFamily::OneFOneB),
            .warmup_depths = candidate.depths,
            .stages = candidate.stages};
  fill_gradient_buckets(plan, question.made.problem.profile);
  const CostModel costs(question.made.problem.profile, question.topology);
  const bool fits =
      question.options.ignore_memory || memory_shortages(costs.plan_cost(plan)).empty();
  const bool runs = mode_faults(plan, question.options.mode()).empty();
  return fits && runs ? std::optional(plan) : std::nullopt;
}

Duration simulated(const Plan& plan, const Question& question) {
  const CostModel costs(question.made.problem.profile, question.topology);
  return simulate::simulate(generate(plan, question.options.replicas), costs.plan_cost(plan),
                            question.topology,
                            {.contention = question.options.contention,
                             .transfers = question.options.transfers,
                             .record = false})
      .iteration;
}

}  // namespace

TEST_CASE("no plan is faster than the bound of a relaxed diagram") {
  ProblemMaker maker(2107, {.layers = 5, .devices = 4, .global_batch = 6});
  small::Dice dice(2108);
  double nearness = 0;
  int answered = 0;
  for (int round = 0; round < small::scaled(1500); ++round) {
    Question question(maker.next());
    ask_at_random(question, dice);
    CAPTURE(round, small::text_of(question));
    const Made made = question.answer();
    const PlanDocument* document = small::document_of(made);
    if (document == nullptr) continue;
    const Duration fastest = document->prediction.iteration;
    const std::size_t width = static_cast<std::size_t>(dice.roll(1, 3) * dice.roll(1, 3));
    for (const Duration threshold : {fastest + Duration{1}, 3 * fastest}) {
      Duration bound = Duration::infinite();
      for (const SearchProblem& problem : problems_of(question)) {
        DecisionDiagram diagram(question.made.problem.profile, question.topology, problem,
                                threshold, {});
        const Duration of_problem = diagram.relaxed_bound(width);
        CHECK(diagram.root_bound() <= of_problem);
        CHECK(of_problem <= threshold);
        bound = std::min(bound, of_problem);
      }
      REQUIRE(bound <= fastest);
      if (threshold < 2 * fastest) {
        nearness += static_cast<double>(bound.ns) / static_cast<double>(fastest.ns);
      }
    }
    ++answered;
  }
  CHECK(answered >= small::scaled(800));
  // On the average the bound is within a tenth of the fastest plan.
  CHECK(nearness >= 0.9 * answered);
}

namespace {

/// Returns some order of the devices that restricted diagrams use.
search::DeviceOrder some_order(const Question& question, small::Dice& dice) {
  std::vector<search::DeviceOrder> orders = search::orders_by_kind(question.topology);
  for (search::DeviceOrder& order : search::orders_in_turn(question.topology)) {
    orders.push_back(std::move(order));
  }
  orders.push_back(search::order_by_number(question.topology));
  return orders[static_cast<std::size_t>(dice.roll(0, std::ssize(orders) - 1))];
}

}  // namespace

TEST_CASE("restricted diagrams return plans that are no faster than their bounds") {
  ProblemMaker maker(2109, {.layers = 6, .devices = 6, .global_batch = 12});
  small::Dice dice(2110);
  int simulations = 0;
  int by_kind = 0;
  for (int round = 0; round < small::scaled(800); ++round) {
    Question question(maker.next());
    ask_at_random(question, dice);
    CAPTURE(round, small::text_of(question));
    const auto layers = static_cast<std::int32_t>(question.made.problem.profile.layers.size());
    for (const SearchProblem& problem : problems_of(question)) {
      DecisionDiagram diagram(question.made.problem.profile, question.topology, problem,
                              Duration{std::int64_t{1} << 50}, {});
      const Duration relaxed = diagram.relaxed_bound(64);
      // Merging nodes only lowers bounds.
      CHECK(diagram.relaxed_bound(1) <= relaxed);
      const auto width = static_cast<std::size_t>(dice.roll(1, 4));
      const search::DeviceOrder order = some_order(question, dice);
      by_kind +=
          order.interleaved == 1 && !std::is_sorted(order.devices.begin(), order.devices.end()) ? 1
                                                                                                : 0;
      Duration before;
      for (const search::Candidate& candidate : diagram.restricted_plans(width, order)) {
        CHECK(before <= candidate.bound);
        before = candidate.bound;
        CHECK(relaxed <= candidate.bound);
        REQUIRE(candidate.depths.size() == candidate.stages.size());
        const auto stages = static_cast<std::int32_t>(candidate.stages.size());
        CHECK(stages == problem.pins.stages.value_or(stages));
        for (const StagePlan& stage : candidate.stages) {
          CHECK(question.options.pins.allow(
              stage.layers, static_cast<std::int64_t>(stage.devices.size()), stage.recompute));
        }
        const std::optional<Plan> plan = plan_of(candidate, question);
        if (!plan) continue;
        REQUIRE(validate(*plan, layers, question.topology).empty());
        CHECK(simulated(*plan, question) >= candidate.bound);
        ++simulations;
      }
    }
  }
  CHECK(simulations >= small::scaled(2000));
  CHECK(by_kind >= small::scaled(50));
}

namespace {

using search::DiagramFault;

/// Changes one figure of one node by `change`, unless it would be negative.
void change_a_figure(std::vector<ProofNode>& nodes, std::int64_t change, small::Dice& dice) {
  const auto last = static_cast<std::int64_t>(nodes.size()) - 1;
  ProofNode& node = nodes[static_cast<std::size_t>(dice.roll(0, last))];
  const std::vector<std::int64_t*> figures{
      &node.depth,   &node.both.ns, &node.round_trip.ns, &node.last_trip.ns,
      &node.span.ns, &node.end.ns,  &node.tail.ns,       &node.occupied.ns};
  std::int64_t& figure = *figures[static_cast<std::size_t>(dice.roll(0, std::ssize(figures) - 1))];
  figure = std::max<std::int64_t>(0, figure + change);
}

}  // namespace

TEST_CASE("the nodes of a relaxed diagram prove its bound, and others prove nothing") {
  ProblemMaker maker(2111, {.layers = 6, .devices = 8, .global_batch = 8});
  small::Dice dice(2112);
  int proofs = 0;
  int by_chance = 0;
  int not_needed = 0;
  int below = 0;
  for (int round = 0; round < small::scaled(1500); ++round) {
    Question question(maker.next());
    ask_at_random(question, dice);
    CAPTURE(round, small::text_of(question));
    const ModelProfile& profile = question.made.problem.profile;
    for (const SearchProblem& problem : problems_of(question)) {
      const Duration most{std::int64_t{1} << 50};
      DecisionDiagram wide(profile, question.topology, problem, most, {});
      const Duration bound = wide.relaxed_bound(static_cast<std::size_t>(dice.roll(1, 3)));
      if (bound == most || bound <= wide.root_bound()) continue;
      std::vector<ProofNode> nodes;
      DecisionDiagram diagram(profile, question.topology, problem, bound, {});
      const bool is_proven =
          diagram.relaxed_bound(static_cast<std::size_t>(dice.roll(1, 9)), &nodes) == bound;
      CHECK(diagram.check(nodes).is_proof() == is_proven);
      if (!is_proven || nodes.empty()) continue;
      ++proofs;
      std::vector<ProofNode> others = nodes;
      others.erase(others.begin() + dice.roll(0, std::ssize(others) - 1));
      // A node is not needed where, by chance, others of its state stand for all that it stands
      // for.
      if (diagram.check(others).is_proof()) ++not_needed;
      others = nodes;
      change_a_figure(others, 1, dice);
      CHECK(!diagram.check(others).is_proof());
      // A lower figure proves as much, if it is by chance that of another plan of the state.
      others = nodes;
      change_a_figure(others, -1, dice);
      if (others != nodes && diagram.check(others).is_proof()) ++by_chance;
      others = nodes;
      others.push_back(nodes.front());
      CHECK((nodes.size() == 1 || !diagram.check(others).is_proof()));
      // The same nodes prove nothing above the bound, where some label covers all layers at it.
      std::vector<ProofNode> above;
      DecisionDiagram higher(profile, question.topology, problem, bound + Duration{1}, {});
      if (higher.relaxed_bound(4, &above) > bound) continue;
      const search::DiagramCheck check = higher.check(above);
      REQUIRE(check.fault.has_value());
      CHECK(check.fault->kind == DiagramFault::Kind::Below);
      CHECK(check.fault->end <= bound);
      ++below;
    }
  }
  CHECK(proofs >= small::scaled(800));
  CHECK(20 * by_chance <= proofs);
  CHECK(500 * not_needed <= proofs);
  CHECK(below >= small::scaled(400));
}
