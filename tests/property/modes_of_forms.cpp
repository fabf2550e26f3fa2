// Forms of parallelism together with what else may be asked for: dealt micro-batches, independent
// replicas, blocking transfers, GPipe, bucket sizes, steps per bucket, pins and tight memory. The
// plan is the fastest of every plan of every form, and what its records claim of other forms is
// true.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <variant>

#include "parallel_problems.h"

using namespace dapple;

namespace {

using namespace dapple::small;

/// Asks for a mode of the simulation, for what stages may do, and for how gradients are reduced.
void ask_for_modes(Dice& dice, planner::PlannerOptions& options) {
  if (dice.chance(40)) options.replications = Replications::Any;
  if (dice.chance(20)) {
    options.replicas = Replicas::Independent;
  } else if (dice.chance(25)) {
    options.transfers = dice.chance(50) ? Transfers::Blocking : Transfers::Serial;
  }
  if (dice.chance(20)) options.family = ScheduleFamily::GPipe;
  if (dice.chance(30)) options.overlaps_gradients = false;
  if (dice.chance(20)) options.ignore_memory = true;
  if (dice.chance(20)) options.bucket_size.reset();
  if (dice.chance(20)) options.bucket_size = Bytes{dice.roll(1, 100'000'000)};
  if (dice.chance(25) && options.sharding == Sharding::None) {
    options.optimizer = OptimizerTiming::PerBucket;
  }
}

/// Pins parts of the plan.
void pin_some(Dice& dice, std::int32_t layers, planner::PlannerOptions& options) {
  Pins& pins = options.pins;
  if (dice.chance(15)) pins.recompute = dice.chance(50);
  if (dice.chance(15)) pins.replicas = static_cast<std::int32_t>(dice.roll(1, 2));
  if (dice.chance(10)) pins.stages = static_cast<std::int32_t>(dice.roll(1, 2));
  pins.least_depths = dice.chance(15) && options.transfers == Transfers::Overlapped &&
                      options.family != ScheduleFamily::GPipe;
  for (std::int32_t layer = 1; layer < layers; ++layer) {
    if (dice.chance(10)) {
      pins.cuts.push_back(layer);
    } else if (dice.chance(10)) {
      pins.joints.push_back(layer);
    }
  }
  if (!dice.chance(20)) return;
  std::int64_t size = dice.roll(1, options.global_batch_size);
  while (options.global_batch_size % size != 0) --size;
  options.micro_batch_size = size;
}

/// Whether devices of a group hold the same parameters, which they update all at the end.
bool has_copies(const Parallelism& form) {
  const Group group(form);
  return group.copies.count > 1 || group.expert_copies.count > 1;
}

/// The least iteration of every form that is asked for, infinite where no plan of it fits.
std::map<Parallelism, Duration> fastest_as_asked(const ParallelProblem& problem) {
  const planner::PlannerOptions& options = problem.question.options;
  std::map<Parallelism, Duration> fastest;
  for (const Parallelism& form :
       all_forms(problem.question.made.problem.profile, options.recomputed_layers)) {
    if (!problem.is_asked(form)) continue;
    if (options.optimizer == OptimizerTiming::PerBucket && has_copies(form)) continue;
    auto grouped = grouped_by_hand(problem.question.made.problem, form);
    if (!grouped) continue;
    Question question = question_of(problem, *std::move(grouped));
    question.options = options;
    question.options.pins.tensor.reset();
    question.options.pins.shards.reset();
    const OracleAnswer found = question.fastest();
    fastest[form] = found.plan ? found.iteration : Duration::infinite();
  }
  return fastest;
}

/// Checks what is claimed of each form.
void check_records(const PlanDocument& document, const std::map<Parallelism, Duration>& fastest) {
  for (const ParallelismRecord& record : document.parallelisms) {
    const auto form = fastest.find(record.parallelism);
    if (form == fastest.end()) continue;
    INFO(short_text(record.parallelism));
    if (record.lower_bound) REQUIRE(*record.lower_bound <= form->second);
    if (record.iteration) REQUIRE(*record.iteration >= form->second);
    const bool is_none = record.reason == "no plan of it fits memory";
    REQUIRE((!is_none || form->second.is_infinite()));
  }
}

}  // namespace

TEST_CASE("whatever else is asked for, the plan is the fastest of all forms, and claims are true") {
  const std::uint64_t seed = seeded(4131);
  ProblemMaker maker(seed, {.layers = 3, .devices = 4, .global_batch = 6, .own_times = false});
  Dice dice(seed + 1);
  Counts seen;
  for (int round = 0; round < scaled(250); ++round) {
    CAPTURE(round);
    ParallelProblem problem(maker, dice);
    problem.pin_some_shards(round, 4);
    Question& question = problem.question;
    ask_for_modes(dice, question.options);
    pin_some(dice, static_cast<std::int32_t>(question.made.problem.profile.layers.size()),
             question.options);
    if (fastest_as_asked(problem).empty()) continue;
    if (dice.chance(50)) tighten_memory(dice, question);
    const std::map<Parallelism, Duration> fastest = fastest_as_asked(problem);
    Duration least = Duration::infinite();
    for (const auto& [form, iteration] : fastest) least = std::min(least, iteration);
    const Made made = planner::make_plan_of_any_parallelism(
        {question.made.problem.profile, question.topology, question.options}, {});
    INFO(text_of(problem));
    const PlanDocument* const document = document_of(made);
    if (document == nullptr) {
      REQUIRE(least.is_infinite());
      ++seen["none fits"];
      continue;
    }
    REQUIRE(document->prediction.iteration == least);
    REQUIRE(document->prediction.lower_bound == least);
    check_records(*document, fastest);
    ++seen["plans"];
    if (fastest.size() > 1) ++seen["several forms"];
    if (planner::may_deal(question.options)) ++seen["micro-batches may be dealt"];
    if (document->plan.parallelism.optimizer_shards > 0) ++seen["some shards"];
    PlanDocument written = *document;
    written.tool = "test";
    require_verified(written);
  }
  if (scaled(250) < 250) return;  // Too few for every subject.
  const std::pair<const char*, int> subjects[] = {{"plans", 80},
                                                  {"none fits", 10},
                                                  {"several forms", 60},
                                                  {"micro-batches may be dealt", 10},
                                                  {"some shards", 8}};
  for (const auto& [what, count] : subjects) {
    CAPTURE(what);
    CHECK(seen[what] >= scaled(250) * count / 250);
  }
}
