// Which of the plans that take equally long is made. All plans of these tests are compared by
// evaluating every micro-batch size, which the search does not do.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <variant>
#include <vector>

#include "../../../support/clusters.h"
#include "../../../support/models.h"

#include "dapple/planner/candidates/evaluate.h"
#include "dapple/planner/make_plan.h"
#include "dapple/planner/request/planner_options.h"
#include "dapple/planner/result/made_plan.h"

namespace dapple {
namespace {

using planner::MadePlan;
using small::bytes_per_ns;

MadePlan made_with(const ModelProfile& profile, const Topology& topology,
                   const planner::PlannerOptions& options) {
  auto made = planner::make_plan({profile, topology, options});
  REQUIRE(std::holds_alternative<MadePlan>(made));
  return std::get<MadePlan>(std::move(made));
}

/// The profile as if each layer had been measured at one batch only.
void measure_at(ModelProfile& profile, std::size_t layer, std::int64_t batch) {
  Measurement& measured = profile.layers[layer].measurements.front();
  measured.batch_size = batch;
  measured.forward = batch * measured.forward;
  measured.backward = batch * measured.backward;
  measured.output = batch * measured.output;
  measured.stash = batch * measured.stash;
}

TEST_CASE("of equally fast plans that with measured batches and the least memory is made") {
  // On one device every micro-batch size takes 16 * 4 * 30 ns. Batches of 4 are measured, so that
  // smaller ones are not chosen, although they take less memory, and larger ones take more.
  const small::LayerFigures figures{.forward = 10, .backward = 20, .parameters = 50, .stash = 100};
  ModelProfile profile = small::model_of(std::vector<small::LayerFigures>(4, figures));
  for (std::size_t layer = 0; layer < 4; ++layer) measure_at(profile, layer, 4);
  const Topology topology{small::cluster({.servers = 1, .devices = 1})};
  planner::PlannerOptions options;
  options.global_batch_size = 16;
  const MadePlan made = made_with(profile, topology, options);
  CHECK(made.document.prediction.iteration == Duration{16 * 4 * 30});
  CHECK(made.document.plan.micro_batch_size == 4);
  REQUIRE(made.frugal);
  CHECK(made.frugal->micro_batch_size == 1);
  const Bytes stash_of_three_samples{3 * 4 * 100};
  CHECK(made.frugal->peak_memory + stash_of_three_samples ==
        made.document.prediction.most_memory());

  options.micro_batch_size = 8;
  const MadePlan pinned = made_with(profile, topology, options);
  CHECK(pinned.document.plan.micro_batch_size == 8);
  CHECK_FALSE(pinned.frugal);
}

TEST_CASE("replicas that would deal micro-batches in turn are compared too") {
  // Two devices, no gradients: a micro-batch of one sample that they deal, or of two that they
  // share, takes as long, and both have one sample on a device at a time. Only the measured batch
  // of two samples a device decides: shared, that is a micro-batch of four, dealt, of two.
  const small::LayerFigures figures{.forward = 10, .backward = 20, .stash = 100};
  ModelProfile profile = small::model_of(std::vector<small::LayerFigures>(2, figures));
  for (std::size_t layer = 0; layer < 2; ++layer) measure_at(profile, layer, 2);
  const Topology topology{small::cluster({.servers = 1, .devices = 2})};
  planner::PlannerOptions options;
  options.global_batch_size = 8;
  options.replications = Replications::Any;
  const MadePlan made = made_with(profile, topology, options);
  const Plan& plan = made.document.plan;
  REQUIRE(plan.stages.size() == 1);
  CHECK(made.document.prediction.iteration == Duration{8 / 2 * 2 * 30});
  CHECK(samples_of(plan, plan.stages.front(), 0).size() == 2);
}

/// How far below measurements a plan of one stage on one device is, rounded to millionths.
std::int64_t extrapolation_of(const ModelProfile& profile, std::int64_t micro_batch) {
  std::int64_t furthest = 1'000'000;
  for (const Layer& layer : profile.layers) {
    furthest = std::max(furthest, layer.measurements.front().batch_size * 1'000'000 / micro_batch);
  }
  return furthest;
}

TEST_CASE("no other micro-batches are as fast, as far from measurements, and need less memory") {
  std::mt19937_64 random(5);
  const auto below = [&](std::uint64_t most) { return static_cast<std::int64_t>(random() % most); };
  int others = 0;
  for (int i = 0; i < 200; ++i) {
    std::vector<small::LayerFigures> figures;
    for (std::int64_t layer = 0; layer < 1 + below(4); ++layer) {
      figures.push_back({.forward = 1 + below(20),
                         .backward = 1 + below(40),
                         .parameters = below(50),
                         .stash = below(100)});
    }
    ModelProfile profile = small::model_of(figures);
    for (std::size_t layer = 0; layer < figures.size(); ++layer) {
      measure_at(profile, layer, 1 + below(12));
    }
    const Topology topology{small::cluster({.servers = 1, .devices = 1})};
    planner::PlannerOptions options;
    options.global_batch_size = 12 * (1 + below(4));
    const MadePlan made = made_with(profile, topology, options);
    const PlanDocument& document = made.document;
    const std::int64_t chosen = extrapolation_of(profile, document.plan.micro_batch_size);
    Bytes least = document.prediction.most_memory();
    for (std::int64_t size = 1; size <= options.global_batch_size; ++size) {
      if (options.global_batch_size % size != 0) continue;
      Plan plan = document.plan;
      plan.micro_batch_size = size;
      plan.num_micro_batches = options.global_batch_size / size;
      const Prediction other =
          planner::evaluate(plan, profile, topology, options.mode()).prediction;
      CHECK(other.iteration >= document.prediction.iteration);
      if (other.iteration > document.prediction.iteration) continue;
      ++others;
      const std::int64_t its = extrapolation_of(profile, size);
      CHECK(its >= chosen);
      if (its == chosen) CHECK(other.most_memory() >= document.prediction.most_memory());
      least = std::min(least, other.most_memory());
    }
    if (made.frugal) CHECK(made.frugal->peak_memory == least);
    CHECK((made.frugal.has_value() ||
           20 * least.count >= 19 * document.prediction.most_memory().count));
  }
  CHECK(others > 500);
}

TEST_CASE("the fullest stage keeps no micro-batch in flight that makes the plan no faster") {
  // Each stage takes 20 ns forward and 40 ns backward. With two micro-batches in flight the first
  // one hands the second stage its next one in time; policy B has three.
  ModelProfile profile = small::model_of(std::vector<small::LayerFigures>(
      4, {.forward = 10, .backward = 20, .parameters = 10, .stash = 100}));
  const Topology topology{
      small::cluster({.servers = 2, .devices = 1, .nics = {Link{bytes_per_ns(1), {}}}})};
  planner::PlannerOptions options;
  options.global_batch_size = 8;
  options.micro_batch_size = 1;
  options.pins.stages = 2;
  const MadePlan made = made_with(profile, topology, options);
  REQUIRE(made.document.plan.stages.size() == 2);
  CHECK(made.document.plan.warmup_depths == std::vector<std::int64_t>{2, 1});
  Plan shallower = made.document.plan;
  shallower.warmup_depths = {1, 1};
  CHECK(planner::evaluate(shallower, profile, topology, options.mode()).prediction.iteration >
        made.document.prediction.iteration);
}

}  // namespace
}  // namespace dapple
