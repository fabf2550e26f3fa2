// The search for large problems, decision diagrams and then the exact search of what they leave
// open, forced on small ones, and the diagrams by themselves: both are compared with the exact
// search of the same space, whose plans property/exact_planner compares with every plan.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <string>
#include <utility>

#include "../support/impatient.h"
#include "dapple/plan/record_text.h"
#include "exact_planner_checks.h"

using namespace dapple;

namespace {

using small::Dice;
using small::Impatient;
using small::Made;
using small::ProblemMaker;
using small::Question;

/// How often a search may ask whether to stop before it is: about once every 20,000 steps.
constexpr int kQuestions = 2000;

/// Makes all servers alike, with a switch each, as those of large clusters are.
void make_alike(TopologyDescription& topology) {
  topology.servers.resize(1);
  ServerGroup& group = topology.servers.front();
  group.device = topology.devices.front().name;
  for (Nic& nic : group.nics) nic.link = group.nics.front().link;
  if (group.links.kind == ServerLinks::Kind::Switch) return;
  const Link link = group.links.kinds.front().link;
  group.links = {};
  group.links.port = link;
}

/// Returns a problem of up to 16 devices; on servers that are alike, or of several sizes, kinds and
/// links.
Question next_question(ProblemMaker& maker, bool are_alike, Dice& dice) {
  small::PlanningProblem made = maker.next();
  TopologyDescription& topology = made.problem.topology;
  if (are_alike) make_alike(topology);
  const std::int64_t times = dice.roll(1, 16 / Topology(topology).device_count());
  for (ServerGroup& group : topology.servers) group.count *= static_cast<std::int32_t>(times);
  Question question(std::move(made));
  question.options.ignore_memory = dice.chance(20);
  if (dice.chance(30)) question.options.shares = Shares::Any;
  if (dice.chance(15)) question.options.family = ScheduleFamily::GPipe;
  return question;
}

/// How an answer compares with that of the exact search.
struct Agreement {
  bool is_proven = false;
  bool is_equal = false;
};

/// The answers of all searches to one question.
struct Compared {
  // Whether there is a plan that the exact search has proven.
  bool is_known = false;
  bool has_stages = false;
  Agreement scaled = {};
  Agreement diagrams = {};
};

/// Answers the question by `diagrams`. Fails where one search claims what the plan of the other
/// refutes, or both prove plans that differ in their iterations.
Agreement agreement(Question question, planner::Diagrams diagrams, const Made& exact) {
  question.diagrams = diagrams;
  // Two searches follow one another where diagrams come first.
  Impatient patience(diagrams == planner::Diagrams::First ? 3 * kQuestions : kQuestions);
  const Made other = question.answer(&patience);
  INFO(small::text_of(exact) << "\nwith diagrams " << small::text_of(other) << "\n"
                             << small::text_of(question));
  const PlanDocument* of_exact = small::document_of(exact);
  const PlanDocument* of_other = small::document_of(other);
  REQUIRE((of_exact == nullptr) == (of_other == nullptr));
  if (of_exact == nullptr) return {};
  REQUIRE(small::fault_of(*of_other, question) == "");
  const Prediction& ours = of_other->prediction;
  const Prediction& theirs = of_exact->prediction;
  REQUIRE(ours.lower_bound->ns <= ours.iteration.ns);
  REQUIRE(ours.lower_bound->ns <= theirs.iteration.ns);
  REQUIRE(theirs.lower_bound->ns <= ours.iteration.ns);
  return {.is_proven = *ours.lower_bound == ours.iteration,
          .is_equal = ours.iteration == theirs.iteration};
}

Compared compare(const Question& question) {
  Impatient patience(kQuestions);
  const Made exact = question.answer(&patience);
  const PlanDocument* document = small::document_of(exact);
  Compared compared;
  compared.scaled = agreement(question, planner::Diagrams::First, exact);
  compared.diagrams = agreement(question, planner::Diagrams::Only, exact);
  if (document == nullptr) return compared;
  compared.is_known = *document->prediction.lower_bound == document->prediction.iteration;
  compared.has_stages = document->plan.stages.size() > 1;
  return compared;
}

/// How many problems are of which kind.
struct Counts {
  int known = 0;
  int equal = 0;
  int equal_by_diagrams = 0;
  int proven_by_diagrams = 0;
  int pipelines = 0;

  void add(const Compared& compared) {
    if (!compared.is_known) return;
    ++known;
    equal += compared.scaled.is_equal ? 1 : 0;
    equal_by_diagrams += compared.diagrams.is_equal ? 1 : 0;
    proven_by_diagrams += compared.diagrams.is_proven ? 1 : 0;
    pipelines += compared.has_stages && compared.scaled.is_equal ? 1 : 0;
  }
};

/// Compares the searches on 250 problems, or as many as the scale says.
Counts compare_some(std::uint64_t seed, bool are_alike) {
  ProblemMaker maker(seed, {.layers = 5, .devices = 6, .global_batch = 8});
  Dice dice(seed + 1);
  Counts counts;
  for (int round = 0; round < small::scaled(250); ++round) {
    CAPTURE(round);
    counts.add(compare(next_question(maker, are_alike, dice)));
  }
  return counts;
}

}  // namespace

TEST_CASE("on servers that are alike the scaled search finds the exact search's plans") {
  const Counts counts = compare_some(2301, true);
  CHECK(counts.equal == counts.known);
  // The plans that diagrams miss have stages whose devices are consecutive in no order that is
  // tried, or not the least bound of all with as many stages.
  CHECK(counts.known - counts.equal_by_diagrams <= 1 + counts.known / 10);
  CHECK(counts.known - counts.proven_by_diagrams <= 1 + counts.known / 2);
  CHECK(counts.known >= small::scaled(100));
  CHECK(counts.pipelines >= small::scaled(50));
}

TEST_CASE("on any servers the scaled search finds the exact search's plans") {
  const Counts counts = compare_some(2303, false);
  CHECK(counts.equal == counts.known);
  // Links that differ within a server, and servers of several kinds, decide which devices a stage
  // has, which no order of all devices can say of all stages.
  CHECK(counts.known - counts.equal_by_diagrams <= 1 + counts.known / 4);
  CHECK(counts.known - counts.proven_by_diagrams <= 3 + 2 * counts.known / 3);
  CHECK(counts.known >= small::scaled(50));
  CHECK(counts.pipelines >= small::scaled(40));
}
