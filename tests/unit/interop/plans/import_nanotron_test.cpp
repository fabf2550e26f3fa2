// Configurations of nanotron: what they say of a plan, where nanotron cuts stages, and what is
// refused where.
#include <catch2/catch.hpp>
#include <optional>
#include <string>
#include <vector>

#include "../../../support/plans.h"
#include "../../../support/refusals.h"
#include "dapple/interop/plans/foreign_plan.h"
#include "dapple/interop/plans/nanotron_cut.h"
#include "dapple/interop/plans/stated_parallelism.h"
#include "dapple/io/documents/documents.h"

namespace dapple::interop {
namespace {

using namespace test;

/// An embedding, so many blocks and a head, of these parameters.
ModelProfile model_of(std::int32_t blocks, Bytes of_block, Bytes of_head) {
  std::vector<small::LayerFigures> figures(static_cast<std::size_t>(blocks) + 2,
                                           {.forward = 1, .backward = 2});
  ModelProfile profile = small::model_of(figures);
  for (std::int32_t i = 0; i < blocks + 2; ++i) {
    Layer& layer = profile.layers[static_cast<std::size_t>(i)];
    const bool is_block = i > 0 && i <= blocks;
    layer.name = is_block ? "block." + std::to_string(i) : i == 0 ? "embedding" : "head";
    layer.parameters = is_block ? of_block : of_head;
  }
  return profile;
}

/// A Llama of 32 blocks of 4,096, with a feed-forward layer of 14,336 and 131,072 tokens.
ModelProfile llama() {
  constexpr std::int64_t kWidth = 4096;
  constexpr std::int64_t kBlock = 4 * kWidth * kWidth + 3 * 14336 * kWidth;
  return model_of(32, {2 * kBlock}, {2 * 131072 * kWidth});
}

/// The sample with two stages.
std::string configuration() {
  return changed(sample("pair.nanotron.yaml"), "pp: 1", "pp: 2");
}

ImportedPlan imported(const std::string& text) {
  static const ModelProfile profile = model_of(8, {10}, {20});
  static const Topology topology{
      io::read_topology(source_file("tests/golden/pair.topology.json"), "topology")};
  return import_plan({{text, "c.yaml", PlanFormat::Nanotron}}, {profile, topology}, {});
}

std::string refusal_of_change(const std::string& part, const std::string& instead) {
  return refusal_of([&] { imported(changed(configuration(), part, instead)); });
}

TEST_CASE("nanotron's stages end with the first block above their share of the parameters") {
  // As it has cut this model in published runs. The head has as many parameters as 2.2 blocks.
  CHECK(nanotron_cut(llama(), 4).blocks == std::vector<std::int32_t>{9, 9, 8, 6});
  CHECK(nanotron_cut(llama(), 2).blocks == std::vector<std::int32_t>{18, 14});
  CHECK(nanotron_cut(llama(), 1).blocks == std::vector<std::int32_t>{32});
  CHECK(nanotron_cut(llama(), 8).blocks == std::vector<std::int32_t>{5, 4, 4, 5, 4, 4, 4, 2});
  // The last one would have nothing but the loss.
  CHECK(nanotron_cut(llama(), 16).fault ==
        "expected at most 15 stages, on which nanotron has some of these 32 blocks, got 16");
}

TEST_CASE("the stages of nanotron begin at these layers") {
  // The embedding is in front of the blocks.
  CHECK(nanotron_boundaries(llama(), 4) == std::vector<std::int32_t>{10, 19, 27});
  CHECK(nanotron_boundaries(llama(), 1) == std::vector<std::int32_t>{});
  CHECK(nanotron_boundaries(llama(), 8) == std::vector<std::int32_t>{6, 10, 14, 19, 23, 27, 31});
  CHECK(nanotron_boundaries(llama(), 16) == std::nullopt);
}

TEST_CASE("a block that just fills a share does not end the stage") {
  // The share of two stages is 4 of 8: the fourth block reaches it, the fifth exceeds it.
  CHECK(nanotron_cut(model_of(8, {10}, {0}), 2).blocks == std::vector<std::int32_t>{5, 3});
  CHECK(nanotron_cut(model_of(8, {10}, {20}), 2).blocks == std::vector<std::int32_t>{6, 2});
}

TEST_CASE("weights that the head shares with the embedding count") {
  ModelProfile profile = model_of(8, {10}, {20});
  profile.layers.back().parameters = {};
  profile.ties = {{LayerIndex{0}, {LayerIndex{9}}}};
  CHECK(nanotron_cut(profile, 2).blocks == std::vector<std::int32_t>{6, 2});
}

TEST_CASE("every stage has a block") {
  CHECK(nanotron_cut(model_of(4, {10}, {0}), 8).fault ==
        "expected at most 4 stages, on which nanotron has some of these 4 blocks, got 8");
  CHECK(nanotron_cut(model_of(4, {10}, {100}), 2).fault ==
        "expected at most 1 stages, on which nanotron has some of these 4 blocks, got 2");
}

TEST_CASE("a configuration of nanotron is a plan") {
  CHECK(detect_plan_format(sample("pair.nanotron.yaml")) == PlanFormat::Nanotron);
  const ImportedPlan made = imported(configuration());
  CHECK(made.plan.global_batch_size == 16);
  CHECK(made.plan.micro_batch_size == 4);
  CHECK(made.plan.num_micro_batches == 4);
  CHECK(made.plan.family == ScheduleFamily::OneFOneB);
  REQUIRE(made.plan.stages.size() == 2);
  CHECK(made.plan.stages[0].devices.size() == 2);
  CHECK(made.plan.stages[0].recompute);
  CHECK(made.warnings.size() == 1);
}

TEST_CASE("what a configuration leaves out is nanotron's default") {
  const ImportedPlan made = imported(changed(configuration(), "  pp_engine: 1f1b\n", ""));
  CHECK(made.plan.family == ScheduleFamily::GPipe);
  const ImportedPlan kept = imported(changed(configuration(), "  recompute_layer: true\n", ""));
  CHECK_FALSE(kept.plan.stages[0].recompute);
}

TEST_CASE("faults of a configuration are named with their lines") {
  CHECK(refusal_of_change("dp: 2", "dp: two") ==
        "c.yaml: line 11: parallelism.dp: expected a number from 1 on, got \"two\"");
  CHECK(refusal_of_change("dp: 2", "dp: 0") ==
        "c.yaml: line 11: parallelism.dp: expected a number from 1 on, got \"0\"");
  CHECK(refusal_of_change("  dp: 2\n", "") ==
        "c.yaml: parallelism.dp: expected a number from 1 on, but the key is missing");
  CHECK(refusal_of_change("dp: 2", "dp: [2]") ==
        "c.yaml: line 11: parallelism.dp: expected a value, got a list or a map");
  CHECK(refusal_of_change("pp_engine: 1f1b", "pp_engine: zb") ==
        "c.yaml: line 14: parallelism.pp_engine: expected 1f1b or afab, got \"zb\"");
  CHECK(refusal_of_change("tp_mode: REDUCE_SCATTER", "tp_mode: rows") ==
        "c.yaml: line 17: parallelism.tp_mode: expected ALL_REDUCE or REDUCE_SCATTER, got "
        "\"ROWS\"");
  CHECK(refusal_of_change("recompute_layer: true", "recompute_layer: some") ==
        "c.yaml: line 15: parallelism.recompute_layer: expected true or false, got \"some\"");
  CHECK(refusal_of_change("tp: 1", "tp: 1\n  expert_parallel_size: 2")
            .find("expected 1, as nanotron's experts are not planned, got more") !=
        std::string::npos);
  CHECK(refusal_of_change("  dp: 2", "  dp: {a").find("c.yaml: line ") == 0);
  CHECK(refusal_of_change("pp: 2", "pp: 9").find("has some of these 8 blocks, got 9") !=
        std::string::npos);
}

}  // namespace
}  // namespace dapple::interop
