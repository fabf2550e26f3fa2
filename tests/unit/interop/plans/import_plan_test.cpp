// Plans of other planners and runtimes: stages and devices as they say, and what is refused where.
#include <catch2/catch.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "../../../support/plans.h"
#include "../../../support/refusals.h"
#include "dapple/interop/plans/foreign_plan.h"
#include "dapple/interop/profiles/foreign_profile.h"
#include "dapple/io/documents/documents.h"
#include "dapple/schedule/schedule.h"

namespace dapple::interop {
namespace {

using namespace test;
using small::stages_of;

/// The golden pair: an embedding, two blocks and an output, on mesh0:0-1 and box0:0-1.
struct Pair {
  ModelProfile profile = io::read_profile(source_file("tests/golden/pair.profile.json"), "profile");
  Topology topology{io::read_topology(source_file("tests/golden/pair.topology.json"), "topology")};
};

struct NamedText {
  std::string name;
  std::string text;
};

ImportedPlan import_texts(const std::vector<NamedText>& texts, PlanFormat format,
                          const ForeignPlanOptions& options = {}) {
  static const Pair pair;
  std::vector<ForeignPlanFile> files;
  for (const NamedText& each : texts) files.push_back({each.text, each.name, format});
  return import_plan(files, {pair.profile, pair.topology}, options);
}

ForeignPlanOptions two_replicas() {
  ForeignPlanOptions options;
  options.replicas = {2};
  return options;
}

ForeignPlanOptions micro_batches_of(std::int64_t samples) {
  ForeignPlanOptions options;
  options.micro_batch = samples;
  return options;
}

TEST_CASE("every sample of a plan is told from the others by what it holds") {
  CHECK(detect_plan_format(sample("pair.gpus=4.txt")) == PlanFormat::Pipedream);
  CHECK(detect_plan_format(sample("pair.optimizer.txt")) == PlanFormat::Pipedream);
  CHECK(detect_plan_format(sample("pair.conf.json")) == PlanFormat::Pipedream);
  CHECK(detect_plan_format(sample("pair.megatron.sh")) == PlanFormat::Megatron);
  CHECK(detect_plan_format(sample("pair.deepspeed.py")) == PlanFormat::Deepspeed);
  CHECK(detect_plan_format(sample("pair.settings.json")) == PlanFormat::Deepspeed);
  CHECK(detect_plan_format("{\"parts\": [0, 4]}") == PlanFormat::Deepspeed);
  CHECK(detect_plan_format(sample("pair.torchtitan.sh")) == PlanFormat::Torch);
  CHECK(detect_plan_format(sample("pair.torch.csv")) == PlanFormat::Torch);
  CHECK(detect_plan_format(sample("pair.sailor.json")) == PlanFormat::Sailor);
  for (const char* other : {"", ",,", "{}", "[1]", "hello", "PARTS[1]"}) {
    CAPTURE(other);
    CHECK_FALSE(detect_plan_format(other));
  }
}

TEST_CASE("Megatron-LM's layout is cut at its blocks, E and L are what stands around them") {
  const ImportedPlan imported =
      import_texts({{"m.sh", sample("pair.megatron.sh")}}, PlanFormat::Megatron, two_replicas());
  CHECK(stages_of(imported.plan) == "0-2:0,1 2-4:2,3");
  CHECK(imported.plan.micro_batch_size == 2);  // one for each replica
  CHECK(imported.plan.num_micro_batches == 8);
  CHECK(imported.plan.warmup_depths == std::vector<std::int64_t>{2, 1});
  CHECK(imported.plan.stages[0].recompute);
  CHECK(warns(imported.warnings, "stages are recomputed as a whole"));
}

TEST_CASE("a layout may repeat letters and groups, and more stages than ranks take turns") {
  const auto stages = [](const std::string& layout, const std::string& ranks) {
    const std::string text = "--pipeline-model-parallel-layout=\"" + layout +
                             "\" --pipeline-model-parallel-size " + ranks + " --micro-batch-size 1";
    ForeignPlanOptions options;
    options.replicas = {1};
    return stages_of(import_texts({{"layout", text}}, PlanFormat::Megatron, options).plan);
  };
  CHECK(stages("Et*2|L", "2") == "0-3:0 3-4:1");
  CHECK(stages("E,t|t,L", "2") == "0-2:0 2-4:1");
  CHECK(stages("E(|t)*2|L", "4") == "0-1:0 1-2:1 2-3:2 3-4:3");
  CHECK(stages("E|t|t|L", "2") == "0-1:0 1-2:1 2-3:0 3-4:1");
  CHECK(stages("((E)t)*1 (t)*1L", "1") == "0-4:0");
}

TEST_CASE("what is wrong with a Megatron-LM script is named with its line") {
  check_refusals(
      sample("pair.megatron.sh"),
      {{"", "", "expected --pipeline-model-parallel-layout"},
       {"  --pipeline-model-parallel-size 2\n", "",
        "expected --pipeline-model-parallel-size, which says how many stages share devices"},
       {"--pipeline-model-parallel-size 2", "--pipeline-model-parallel-size two",
        "line 5: --pipeline-model-parallel-size: expected a whole number from 1 on, got 'two'"},
       {"--pipeline-model-parallel-size 2", "--pipeline-model-parallel-size 3",
        "line 5: --pipeline-model-parallel-size: expected a divisor of the layout's 2 stages"},
       {"--pipeline-model-parallel-size 2", "--pipeline-model-parallel-size",
        "line 5: --pipeline-model-parallel-size: expected a value behind it"},
       {"Et|tL", "t|tL", "line 6: --pipeline-model-parallel-layout: expected one E, at the"},
       {"Et|tL", "tE|tL", "expected one E, at the beginning"},
       {"Et|tL", "Et|t", "expected one L, at the end"},
       {"Et|tL", "Et|tLt", "expected one L, at the end"},
       {"Et|tL", "Et|tt*2L", "expected a t for each of the profile's 2 transformer blocks, got 4"},
       {"Et|tL", "Et||tL", "expected a divisor of the layout's 3 stages"},
       {"Et|tL", "Et|tmL", "expected E, t, L and |, got m"},
       {"Et|tL", "Et|xL", "expected E, t, L and |, got 'x'"},
       {"Et|tL", "E(t|tL", "expected a ) for every (, got none"},
       {"Et|tL", "Et)|tL", "expected no ) without its ("},
       {"Et|tL", "Et*|tL", "expected a number from 1 on behind *"},
       {"Et|tL", "Et*999999999|tL", "expected at most 100000 layers"},
       {"\"Et|tL\"", "\"Ett|L\" --pipeline-model-parallel-layout \"Et|tL\"",
        "line 6: --pipeline-model-parallel-layout: expected what line 6 says, 'Ett|L', got"},
       {"--num-layers=2", "--num-layers=3", "line 7: --num-layers: expected the layout's 2, got 3"},
       {"--num-layers=2", "--decoder-first-pipeline-num-layers 1",
        "line 7: --decoder-first-pipeline-num-layers: cannot be used with a layout"},
       {"--tensor-model-parallel-size 1", "--tensor-model-parallel-size 2",
        "--tensor-parallel: expected 2, the plan's degree"},
       {"--tensor-model-parallel-size 1", "--context-parallel-size 2",
        "--context-parallel-size: expected 1"},
       {"--micro-batch-size 1", "--micro-batch-size 3",
        "global batch size: expected 2 micro-batches of 6 samples, got 16 samples"},
       {"--micro-batch-size 1", "", "--micro-batch: the samples of a micro-batch"}},
      [](const std::string& text) {
        import_texts({{"m.sh", text}}, PlanFormat::Megatron, two_replicas());
      });
}

TEST_CASE("an empty stage, and one replica too many, are faults of the plan") {
  const auto refusal = [](const std::string& layout, std::int64_t replicas) {
    ForeignPlanOptions options;
    options.replicas = {replicas};
    const std::string text =
        "--pipeline-model-parallel-size 3 --micro-batch-size 1 "
        "--pipeline-model-parallel-layout \"" +
        layout + "\"";
    return refusal_of([&] { import_texts({{"m", text}}, PlanFormat::Megatron, options); });
  };
  CHECK_THAT(refusal("Et||tL", 1), Catch::Contains("stage 1, layers: expected at least one layer"));
  CHECK_THAT(refusal("Et|t|L", 2),
             Catch::Contains("expected a topology with 2 devices for each of 3 groups of stages"));
}

TEST_CASE("DeepSpeed's parts are boundaries, its comments the devices of ranks") {
  const ImportedPlan imported = import_texts(
      {{"d.py", sample("pair.deepspeed.py")}, {"d.json", sample("pair.settings.json")}},
      PlanFormat::Deepspeed);
  CHECK(stages_of(imported.plan) == "0-3:2,3 3-4:0,1");
  CHECK(imported.plan.micro_batch_size == 4);
  CHECK(imported.plan.num_micro_batches == 4);
  CHECK(imported.plan.global_batch_size == 16);
  CHECK_FALSE(imported.plan.stages[0].recompute);

  ForeignPlanOptions options = micro_batches_of(2);
  options.devices = {"box0:1", "mesh0:0"};
  const ImportedPlan bare =
      import_texts({{"d.json", "{\"parts\": [0,1,4], \"activation_checkpoint_interval\": 2}"}},
                   PlanFormat::Deepspeed, options);
  CHECK(stages_of(bare.plan) == "0-1:3 1-4:0");
  CHECK(bare.plan.num_micro_batches == 8);  // of the profile's 16
  CHECK(bare.plan.stages[1].recompute);
  CHECK(warns(bare.warnings, "DeepSpeed keeps the input of every 2 layers"));
}

TEST_CASE("what is wrong with a DeepSpeed program is named with its line") {
  check_refusals(
      sample("pair.deepspeed.py"),
      {{"", "", "expected the parts of a PipelineModule in this or another file, got none"},
       {"PARTS = [0, 3, 4]", "PARTS = []", "line 3: PARTS: expected whole numbers in the list"},
       {"PARTS = [0, 3, 4]", "PARTS = [0]", "parts: expected the boundaries of one stage or more"},
       {"PARTS = [0, 3, 4]", "PARTS = [0, 3, 4",
        "line 3: PARTS: expected whole numbers in the list"},
       {"PARTS = [0, 3, 4]", "PARTS = [0, x, 4]",
        "PARTS: expected whole numbers in the list, got 'x'"},
       {"PARTS = [0, 3, 4]", "PARTS = [0, -3, 4]", "expected whole numbers in the list, got '-3'"},
       {"PARTS = [0, 3, 4]", "PARTS = [1, 3, 4]", "parts: expected 0 as the first boundary, got 1"},
       {"PARTS = [0, 3, 4]", "PARTS = [0, 3, 3]", "stage 1, layers: expected at least one layer"},
       {"PARTS = [0, 3, 4]", "PARTS = [0, 2, 3]", "stages: layer 3 is in no stage"},
       {"PARTS = [0, 3, 4]", "PARTS = [0, 3, 5]",
        "stage 1, layers: expected layers of the model, 0 to 4, got [3, 5]"},
       {"PARTS = [0, 3, 4]", "PARTS = [0, 4, 3]", "stage 1, layers: expected at least one layer"},
       {"PARTS = [0, 3, 4]", "PARTS = [0, 3, 4]\nPARTS = [0, 2, 4]",
        "line 4: PARTS: expected one value in the file, got two"},
       {"num_pp=2", "num_pp=3", "num_pp: expected the 2 stages of parts, got 3"},
       {"num_dp=2", "num_dp=3", "expected a topology with 3 devices for each of 2 groups"},
       {"num_dp=2", "num_dp=dp", "--replicas: the replicas of each stage"},
       {"mesh0:1", "mesh0:0", "device mesh0:0 is used twice, first at stage 1, replica 0"},
       {"mesh0:1", "mesh9:1", "expected a device of the topology for rank 3, got \"mesh9:1\""},
       {" mesh0:1", "", "expected a device for rank 3, got 3 devices"}},
      [](const std::string& text) {
        import_texts({{"d.py", text}, {"d.json", sample("pair.settings.json")}},
                     PlanFormat::Deepspeed);
      });
}

TEST_CASE("PyTorch's rows are ranks, its cells the order, torchtitan's modules the stages") {
  ForeignPlanOptions options;
  options.devices = {"mesh0:1", "box0:0"};
  const ImportedPlan imported =
      import_texts({{"t.csv", sample("pair.torch.csv")}, {"t.sh", sample("pair.torchtitan.sh")}},
                   PlanFormat::Torch, options);
  CHECK(stages_of(imported.plan) == "0-1:1 1-2:2 2-3:1 3-4:2");
  CHECK(imported.plan.family == ScheduleFamily::Given);
  CHECK(imported.plan.num_micro_batches == 2);
  CHECK(imported.plan.micro_batch_size == 8);
  REQUIRE(imported.plan.order.size() == 2);
  CHECK(to_text(imported.plan.order[1]) == "1F0 1F1 3F0 3F1 3B0 3B1 1B0 1B1");
}

TEST_CASE("stages there and back again are on the ranks whose rows have them") {
  const std::string csv = "0F0,,,3F0,3B0,,,0B0\n,1F0,2F0,,,2B0,1B0,\n";
  const ImportedPlan imported =
      import_texts({{"t.csv", csv}, {"t.sh", sample("pair.torchtitan.sh")}}, PlanFormat::Torch);
  CHECK(stages_of(imported.plan) == "0-1:0 1-2:1 2-3:1 3-4:0");
}

TEST_CASE(
    "the first rank may have the last stage: rows are ranks, whatever stages they begin with") {
  const std::string options =
      "--parallelism.pipeline_parallel_degree 2 "
      "--parallelism.data_parallel_replicate_degree 1 "
      "--parallelism.module_fqns_per_model_part "
      "'[[\"embedding\", \"block.0\"], [\"block.1\", \"output\"]]'";
  const std::string csv = ",1F0,1F1,1B1,1B0\n0F0,0F1,,,0B1,0B0\n";
  const ImportedPlan imported =
      import_texts({{"t.csv", csv}, {"t.sh", options}}, PlanFormat::Torch);
  CHECK(stages_of(imported.plan) == "0-2:1 2-4:0");
  REQUIRE(imported.plan.order.size() == 2);
  CHECK(to_text(imported.plan.order[0]) == "0F0 0F1 0B1 0B0");
  CHECK(to_text(imported.plan.order[1]) == "1F0 1F1 1B1 1B0");
}

TEST_CASE("an order that a family has without looking at costs is that family's") {
  const auto import = [](const std::string& csv, const std::string& modules) {
    const std::string options =
        "--parallelism.pipeline_parallel_degree 2 "
        "--parallelism.data_parallel_replicate_degree 1 "
        "--parallelism.module_fqns_per_model_part '" +
        modules + "'";
    return import_texts({{"t.csv", csv}, {"t.sh", options}}, PlanFormat::Torch).plan;
  };
  const std::string two = "[[\"embedding\", \"block.0\"], [\"block.1\", \"output\"]]";
  const std::string four = "[[\"embedding\"], [\"block.0\"], [\"block.1\"], [\"output\"]]";
  const Plan one_f_one_b = import("0F0,0F1,,0B0,,0B1\n,1F0,1B0,1F1,1B1,\n", two);
  CHECK(one_f_one_b.family == ScheduleFamily::OneFOneB);
  CHECK(one_f_one_b.warmup_depths == std::vector<std::int64_t>{2, 1});
  CHECK(one_f_one_b.order.empty());
  CHECK(import("0F0,0F1,,,,0B0,0B1\n,1F0,1F1,1B0,1B1\n", two).family == ScheduleFamily::GPipe);
  CHECK(import("0F0,0B0\n1F0,1B0\n", two).family == ScheduleFamily::OneFOneB);
  CHECK(import("0F0,0F1,0B1,0B0\n1F0,1F1,1B1,1B0\n", two).family == ScheduleFamily::Given);
  CHECK(import("0F0,0I0,0W0\n1F0,1I0,1W0\n", two).family == ScheduleFamily::Given);
  CHECK(import("0F0,0F1,2F0,2F1,2B0,2B1,0B0,0B1\n1F0,1F1,3F0,3F1,3B0,3B1,1B0,1B1\n", four).family ==
        ScheduleFamily::BreadthFirst);
}

TEST_CASE("without a CSV, torchtitan's own schedules are taken by name") {
  const auto family = [](const std::string& stages, const std::string& schedule) {
    const std::string text =
        "--parallelism.pipeline_parallel_degree 2 "
        "--parallelism.pipeline_parallel_microbatch_size 1 "
        "--parallelism.data_parallel_replicate_degree 1 "
        "--parallelism.pipeline_parallel_schedule " +
        schedule + " --parallelism.module_fqns_per_model_part '" + stages + "'";
    return import_texts({{"t", text}}, PlanFormat::Torch).plan.family;
  };
  const std::string two = "[[\"embedding\", \"block.0\"], [\"block.1\", \"output\"]]";
  const std::string four = "[[\"embedding\"], [\"block.0\"], [\"block.1\"], [\"output\"]]";
  CHECK(family(two, "1F1B") == ScheduleFamily::OneFOneB);
  CHECK(family(two, "GPipe") == ScheduleFamily::GPipe);
  CHECK(family(four, "Interleaved1F1B") == ScheduleFamily::Interleaved);
  CHECK_THAT(refusal_of([&] { family(four, "1F1B"); }), Catch::Contains("got '1F1B'"));
  CHECK_THAT(refusal_of([&] { family(four, "ZBVZeroBubble"); }),
             Catch::Contains("expected the order as a CSV file next to this one"));
}

TEST_CASE(
    "torchtitan recomputes whole stages as ours do, or single operations, which ours do not") {
  const auto import = [](const std::string& mode) {
    const std::string options = changed(sample("pair.torchtitan.sh"), " \\\n",
                                        " --activation_checkpoint.mode " + mode + " ");
    return import_texts({{"t.csv", sample("pair.torch.csv")}, {"t.sh", options}},
                        PlanFormat::Torch);
  };
  CHECK(import("full").plan.stages[0].recompute);
  CHECK(warns(import("full").warnings, "torchtitan keeps the input of every block"));
  CHECK_FALSE(import("none").plan.stages[0].recompute);
  CHECK(import("none").warnings.empty());
  CHECK_FALSE(import("selective").plan.stages[0].recompute);
  CHECK(warns(import("selective").warnings, "recomputation of single operations is left out"));
  CHECK_THAT(refusal_of([&] { import("some"); }),
             Catch::Contains("expected none, selective or full, got 'some'"));
}

TEST_CASE("what is wrong with torchtitan's options is named with its place") {
  check_refusals(
      sample("pair.torchtitan.sh"),
      {{"", "", "expected torchtitan's options, which say the modules of each stage in this or"},
       {"--parallelism.module_fqns_per_model_part", "--parallelism.modules",
        "expected torchtitan's options, which say the modules of each stage"},
       {"--parallelism.pipeline_parallel_degree 2 \\\n", "\\\n",
        "expected --parallelism.pipeline_parallel_degree, the number of pipeline ranks"},
       {"pipeline_parallel_degree 2", "pipeline_parallel_degree 3",
        "line 2: --parallelism.pipeline_parallel_degree: expected a divisor of the 4 stages"},
       {"pipeline_parallel_degree 2", "pipeline_parallel_degree 0",
        "expected a whole number from 1 on, got '0'"},
       {"replicate_degree 1", "replicate_degree 3", "expected a topology with 3 devices for each"},
       {"replicate_degree 1", "replicate_degree 1 --parallelism.tensor_parallel_degree 2",
        "--tensor-parallel: expected 2"},
       {"[[\"embedding\"]", "[[\"embeddings\"]",
        "module_fqns_per_model_part: /0/0: expected a layer of the profile, got \"embeddings\""},
       {"[[\"embedding\"]", "[[7]", "/0/0: expected a text"},
       {"[[\"embedding\"]", "[7", "/0: expected an array of modules' names, got 7"},
       {"[[\"embedding\"]", "[[\"embedding\", \"block.1\"]",
        "/0/1: expected \"block.0\" behind \"embedding\", got \"block.1\""},
       {"[\"output\"]]", "[\"output\", \"embedding\"]]",
        "/3/1: expected nothing behind \"output\", got \"embedding\""},
       {"[\"block.0\"]", "[]", "stage 1, layers: expected at least one layer, got [1, 1]"},
       {"[\"block.0\"]", "[\"embedding\"]", "layer 0 is in stage 0 too"},
       {"[[\"embedding\"], ", "[", "expected a divisor of the 3 stages"},
       {"[[\"embedding\"]", "[[\"embedding\"", "expected"},
       {"'[[", "'{\"a\": 1}' '[[", "expected an array with the modules of each stage"}},
      [](const std::string& text) {
        import_texts({{"t.csv", sample("pair.torch.csv")}, {"t.sh", text}}, PlanFormat::Torch);
      });
}

TEST_CASE("what is wrong with a CSV schedule is named with its line") {
  check_refusals(
      sample("pair.torch.csv"),
      {{"", "0F0,0B0\n", "expected 2 rows, one for each pipeline rank, got 1"},
       {"", "0F0,0B0\n1F0,1B0\n2F0,2B0\n", "expected 2 rows, one for each pipeline rank, got 3"},
       {"", "0F0,0B0\n1F0,1B0\n", "expected actions of stage 2, got none"},
       {"0F0,", "0X0,", "line 1: expected an action such as 2F0, got \"0X0\""},
       {"0F0,", "F0,", "expected an action such as 2F0"},
       {"0F0,", "0F,", "expected an action such as 2F0"},
       {",1F0,", ",0F0,", "line 2: expected each stage on one rank, got stage 0 on ranks 0 and 1"},
       {"2F0,", "7F0,", "expected stages 0 to 3, got stage 7 too"},
       {"2F0,", "0F0,", "stage 0: 0F0 stands more than once"},
       {"2F1,", "2F9,", "samples cannot be split into 10 equal micro-batches"},
       {"3B0,", "3I0,", "stage 3: 3W0 is missing"},
       {"3F0,3F1,3B0,3B1,", "3B0,3F0,3F1,3B1,", "stage 3: 3B0 stands before 3F0"},
       {"2W0,", "", "stage 2: 2W0 is missing"},
       {",1B0,,1B1,", ",,,1B1,", "stage 1: 1B0 is missing"},
       {"0F0,0F1,2F0,2F1", "2F0,2F1,0F0,0F1", "deadlock"},
       {"1B1,", "1B1,1B1", "stage 1: 1B1 stands more than once"}},
      [](const std::string& text) {
        import_texts({{"t.csv", text}, {"t.sh", sample("pair.torchtitan.sh")}}, PlanFormat::Torch);
      });
}

TEST_CASE("Sailor's replicas are devices of their kind, each once") {
  const ImportedPlan imported =
      import_texts({{"s.json", sample("pair.sailor.json")}}, PlanFormat::Sailor);
  // B is the box, A the mesh; mbs is of one replica.
  CHECK(stages_of(imported.plan) == "0-2:2,3 2-4:0,1");
  CHECK(imported.plan.micro_batch_size == 4);
  CHECK(imported.plan.global_batch_size == 16);
}

TEST_CASE("what is wrong with a Sailor plan is named with its place") {
  check_refusals(
      sample("pair.sailor.json"),
      {{"", "[]", "expected an object, got an empty array"},
       {"\"pipeline_list\"", "\"pipelines\"", "/pipeline_list: expected an array of pipelines"},
       {"\"layers_per_stage\"", "\"layers\"",
        "/pipeline_list/0/layers_per_stage: expected an array with the layers of each stage"},
       {"[[0, 1], [2, 3]]", "[[0, 1], [3]]", "stage 1, layers: layer 2 is in no stage"},
       {"[[0, 1], [2, 3]]", "[[0, 1], [2]]", "stages: layer 3 is in no stage"},
       {"[[0, 1], [2, 3]]", "[[0, 2], [3]]",
        "/pipeline_list/0/layers_per_stage/0/1: expected layer 1 behind layer 0, got 2"},
       {"[[0, 1], [2, 3]]", "[[0, 1], [1, 2, 3]]", "stage 1, layers"},
       {"[[0, 1], [2, 3]]", "[[0, 1, 2, 3], []]", "stage 1, layers: expected at least one layer"},
       {"[[0, 1], [2, 3]]", "[[0, 1, 2, 3]]",
        "/pipeline_list/0/tmp_per_stage: expected the replicas of 1 stages, got those of 2"},
       {"\"num_stages\": 2", "\"num_stages\": 3", "/pipeline_list/0/num_stages: expected 2"},
       {"[[[[\"B\", 1, \"zone\"]], 1], ", "[[[[\"C\", 1, \"zone\"]], 1], ",
        "/pipeline_list/0/tmp_per_stage/0: expected another device of the kind C in the topology"},
       {"[[[[\"A\", 1, \"zone\"]], 1], ", "[[[[\"B\", 1, \"zone\"]], 1], ",
        "/pipeline_list/0/tmp_per_stage/1: expected another device of the kind B"},
       {"[[[[\"A\", 1, \"zone\"]], 1], ", "[[[[\"A\", 1, \"zone\"]], 2], ",
        "/pipeline_list/0/tmp_per_stage/1: expected one tensor-parallel degree, 1"},
       {"[[[[\"A\", 1, \"zone\"]], 1], ", "[[[], 1], ", "expected one node or more, got none"},
       {"[[[[\"A\", 1, \"zone\"]], 1], ", "[[[[\"A\"]]], ", "expected a replica as [[[GPU"},
       {"[[[[\"A\", 1, \"zone\"]], 1], ", "[[[[\"A\"], [\"B\"]], 1], ",
        "expected GPUs of one kind in a replica, A, got B"},
       {"[[[[\"A\", 1, \"zone\"]], 1], ", "[[[7], 1], ", "expected a node as [GPU"},
       {"\"mbs\": 2", "\"mbs\": 0", "/mbs: expected an integer from 1"},
       {"\"mbs\": 2", "\"mbs\": 3", "global batch size: expected 2 micro-batches of 6"},
       {"\"gbs\": 16", "\"gbs\": \"16\"", "/gbs: expected an integer"}},
      [](const std::string& text) {
        import_texts({{"s.json", text}}, PlanFormat::Sailor);
      });
}

TEST_CASE("PipeDream's stages are matched by the names of layers, replicas by what it printed") {
  const ImportedPlan imported = import_texts(
      {{"gpus=4.txt", sample("pair.gpus=4.txt")}, {"out.txt", sample("pair.optimizer.txt")}},
      PlanFormat::Pipedream, micro_batches_of(4));
  CHECK(stages_of(imported.plan) == "0-2:0,1,2 2-4:3");
  CHECK(imported.plan.stages[0].replication == Replication::Deal);
  // Four replicas from the first stage on, shared by three of them; one on the last.
  CHECK(imported.plan.warmup_depths == std::vector<std::int64_t>{2, 1});
  CHECK(warns(imported.warnings, "PipeDream expected 0.0093 s"));
  CHECK(warns(imported.warnings, "without flushes"));
}

TEST_CASE("replicas on several levels multiply") {
  const std::string nested = changed(
      changed(sample("pair.optimizer.txt"), "(0, 4) 0.020200 1", "(0, 2) 1.0 2\n(2, 4) 1.0 1"),
      "(0, 2) 0.008900 3", "(0, 2) 0.008900 1");
  const ImportedPlan imported =
      import_texts({{"gpus=4.txt", sample("pair.gpus=4.txt")}, {"out.txt", nested}},
                   PlanFormat::Pipedream, micro_batches_of(4));
  CHECK(stages_of(imported.plan) == "0-2:0,1 2-4:2");
}

TEST_CASE("a conf file has PipeDream's ranks and depths, in whatever order") {
  const ImportedPlan imported = import_texts(
      {{"gpus=4.txt", sample("pair.gpus=4.txt")}, {"conf.json", sample("pair.conf.json")}},
      PlanFormat::Pipedream, micro_batches_of(4));
  CHECK(stages_of(imported.plan) == "0-2:0,2 2-4:1,3");
  CHECK(imported.plan.warmup_depths == std::vector<std::int64_t>{2, 1});
}

TEST_CASE("a conf file may leave out the loss, or the stages of modules altogether") {
  for (const char* modules : {"\"module_to_stage_map\": [0, 1],", ""}) {
    const std::string conf =
        changed(sample("pair.conf.json"), "\"module_to_stage_map\": [0, 1, 1],", modules);
    const ImportedPlan imported =
        import_texts({{"gpus=4.txt", sample("pair.gpus=4.txt")}, {"conf.json", conf}},
                     PlanFormat::Pipedream, micro_batches_of(4));
    CHECK(stages_of(imported.plan) == "0-2:0,2 2-4:1,3");
    CHECK_FALSE(warns(imported.warnings, "makes"));
  }
}

TEST_CASE("a conf file alone is of the profile's layers") {
  const std::string conf =
      R"({"module_to_stage_map": [0, 1, 1, 1, 1], "stage_to_rank_map": {"0": [1, 0], "1": [2]},)"
      R"( "rank_to_device_map": ["box0:1", "box0:0", "mesh0:0"]})";
  const auto import = [](const std::string& text) {
    return import_texts({{"conf.json", text}}, PlanFormat::Pipedream, micro_batches_of(4));
  };
  CHECK(stages_of(import(conf).plan) == "0-1:2,3 1-4:0");
  const auto refusal = [&](const std::string& from, const std::string& to) {
    return refusal_of([&] { import(changed(conf, from, to)); });
  };
  CHECK_THAT(refusal("[0, 1, 1, 1, 1]", "[0, 1, 1]"),
             Catch::Contains("/module_to_stage_map: expected a graph with stages (gpus=N.txt) "
                             "next to it, or a stage for each of the 4 layers of the profile and "
                             "one for the loss, got 3"));
  CHECK_THAT(refusal("\"module_to_stage_map\": [0, 1, 1, 1, 1],", ""),
             Catch::Contains("/module_to_stage_map: expected an array of stages"));
  CHECK_THAT(refusal("\"box0:1\"", "7"), Catch::Contains("/rank_to_device_map/0: expected"));
  CHECK_THAT(refusal("\"box0:1\"", "\"box0:9\""),
             Catch::Contains("expected a device of the topology for rank 0"));
}

TEST_CASE("a conf file may make one stage of several of PipeDream's answer") {
  const std::string conf =
      R"({"module_to_stage_map": [0, 0, 0], "stage_to_rank_map": {"0": [0, 1, 2, 3]}})";
  ForeignPlanOptions options = micro_batches_of(4);
  const auto import = [&] {
    return import_texts({{"gpus=4.txt", sample("pair.gpus=4.txt")}, {"conf.json", conf}},
                        PlanFormat::Pipedream, options);
  };
  const ImportedPlan dealt = import();
  CHECK(stages_of(dealt.plan) == "0-4:0,1,2,3");
  CHECK(dealt.plan.stages[0].replication == Replication::Deal);
  CHECK(warns(dealt.warnings, "conf.json makes 1 stage of the 2 of gpus=4.txt"));
  options.replication = Replication::Split;
  CHECK(import().plan.stages[0].replication == Replication::Split);
}

TEST_CASE("stages of PipeDream that are no runs of layers change the layers' order") {
  // The second block is left to the first stage's device, beside the output.
  const Pair pair;
  ModelProfile branched = pair.profile;
  branched.layers[2].inputs = {LayerIndex{0}};  // both blocks read the embedding
  branched.layers[3].inputs = {LayerIndex{1}, LayerIndex{2}};
  std::string graph = changed(sample("pair.gpus=4.txt"), "\tnode0 -- node1", "\tnode7 -- node1");
  graph = changed(graph, "\tnode7 -- node9", "\tnode0 -- node9");
  // block.0 goes to the second stage, block.1 to the first.
  const std::string first = "activation_size=1000000.0, parameter_size=600000000.000 -- stage_id=";
  graph = changed(changed(graph, first + "0", first + "x"), first + "1", first + "0");
  graph = changed(graph, first + "x", first + "1");
  ForeignPlanOptions options = micro_batches_of(4);
  options.replicas = {2};
  const ImportedPlan imported = import_plan({{graph, "gpus=4.txt", PlanFormat::Pipedream}},
                                            {branched, pair.topology}, options);
  CHECK(stages_of(imported.plan) == "0-2:0,1 2-4:2,3");
  CHECK(imported.profile.layers[1].name == "block.1");
  CHECK(imported.profile.layers[2].name == "block.0");
  CHECK(imported.profile.layers[3].inputs == std::vector<LayerIndex>{LayerIndex{1}, LayerIndex{2}});
  CHECK(warns(imported.warnings, "another order than the profile's"));
}

TEST_CASE("what is wrong with PipeDream's answer is named with its line") {
  const std::string text = sample("pair.gpus=4.txt");
  check_refusals(
      text,
      {{"", "", "expected a conf file once, got gpus=4.txt before"},
       {"", "(Split start, split end)",
        "expected a graph with stages (gpus=N.txt) in this or another file, got none"},
       {"",
        "node1 -- Input -- forward_compute_time=0, backward_compute_time=0, activation_size=0, "
        "parameter_size=0 -- stage_id=0\n",
        "expected at least one layer, got input nodes only"},
       {" -- stage_id=1", "", "line 1: expected a stage_id= of node9 from 0 to 99999, got none"},
       {"stage_id=1", "stage_id=-1", "line 1: expected a stage_id= of node9"},
       {"stage_id=1", "stage_id=100000",
        "line 1: expected a stage_id= of node9 from 0 to 99999, "
        "got more"},
       {"stage_id=1", "stage_id=3", "line 1: expected layers in every stage, got none in stage 2"},
       {"stage_id=1", "stage_id=0",
        "expected node9 in the stage of its input node1, 1, or a later one, got stage 0"},
       {"output", "outputs",
        "line 1: expected layers of the profile, which is to be imported from "
        "the same graph, got outputs"},
       {"node0 -- block", "node3 -- block", "which has no line of its own"},
       {"node7 -- embedding", "node8 -- embedding", "which has no line of its own"},
       {"node1 -- block", "node0 -- block", "expected every node once, got node0 again"},
       {"forward_compute_time=1.200", "forward_compute_time=fast", "line 1: forward_compute_time"},
       {"parameter_size=400000000.000", "parameters=4", "line 1: expected forward_compute_time="},
       {"\tnode0 -- node1", "\tnode0 node1", "line 8: expected an edge"},
       {"\tnode7 -- node9", "\tnode7 -- node99", "line 10: expected an edge between nodes"}},
      [](const std::string& variant) {
        import_texts({{"gpus=4.txt", variant}, {"conf.json", sample("pair.conf.json")}},
                     PlanFormat::Pipedream, micro_batches_of(4));
      });
}

TEST_CASE("what is wrong with PipeDream's conf file is named with its place") {
  check_refusals(
      sample("pair.conf.json"),
      {{"", "{", "line 1"},
       {"", "[]", "expected an object, got an empty array"},
       {"stage_to_rank_map", "ranks", "/stage_to_rank_map: expected an object"},
       {"{\"0\": [0, 2], \"1\": [1, 3]}", "[]", "/stage_to_rank_map: expected an object"},
       {"{\"0\": [0, 2], \"1\": [1, 3]}", "{\"0\": [0, 2]}",
        "/stage_to_rank_map: expected the 2 stages of gpus=4.txt, got 1"},
       {"\"1\": [1, 3]", "\"2\": [1, 3]", "/stage_to_rank_map/1: expected an array of ranks"},
       {"\"1\": [1, 3]", "\"1\": [1, 3], \"2\": [4]", "expected the 2 stages of gpus=4.txt, got 3"},
       {"[0, 1, 1]", "[0]",
        "/module_to_stage_map: expected a stage for each of the 2 stages of gpus=4.txt, and one "
        "for the loss, got 1"},
       {"[0, 1, 1]", "[1, 1, 1]", "each as the one before it or the next, got 1 for module 0"},
       {"[0, 1, 1]", "[0, 2, 2]", "each as the one before it or the next, got 2 for module 1"},
       {"[0, 1, 1]", "[0, 0, 0]", "/stage_to_rank_map: expected the 1 stages of gpus=4.txt, got 2"},
       {"[0, 2]", "7", "/stage_to_rank_map/0: expected an array of ranks, got 7"},
       {"[0, 2]", "[-1, 2]", "/stage_to_rank_map/0/0: expected an integer from 0"},
       {"[0, 2]", "[\"0\", 2]", "/stage_to_rank_map/0/0: expected an integer"},
       {"[0, 2]", "[]", "stage 0, devices: expected at least one device, got none"},
       {"[0, 2]", "[0, 1]", "device mesh0:1 is used twice, first at stage 0, replica 1"},
       {"[0, 2]", "[0, 4]", "expected a topology with a device for rank 4, got 4 devices"},
       {"{\"0\": 1, \"1\": 0}", "7", "/stage_to_depth_map: expected an object, got 7"},
       {"{\"0\": 1, \"1\": 0}", "{\"0\": 1}", "/stage_to_depth_map: expected the 2 stages"},
       {"{\"0\": 1, \"1\": 0}", "{\"0\": 1, \"1\": -1}",
        "/stage_to_depth_map/1: expected an integer"},
       {"{\n", "{\"replication\": \"both\",", "/replication: expected \"split\" or \"deal\""},
       {"{\n", "{\"recompute\": 1,", "/recompute: expected"},
       {"{\n", "{\"micro_batch_size\": 0,", "/micro_batch_size: expected an integer"}},
      [](const std::string& text) {
        import_texts({{"gpus=4.txt", sample("pair.gpus=4.txt")}, {"conf.json", text}},
                     PlanFormat::Pipedream, micro_batches_of(4));
      });
}

TEST_CASE("replicas that PipeDream does not say are asked for, and how many, checked") {
  const auto refusal = [](const std::vector<NamedText>& beside, ForeignPlanOptions options) {
    std::vector<NamedText> texts{{"gpus=4.txt", sample("pair.gpus=4.txt")}};
    texts.insert(texts.end(), beside.begin(), beside.end());
    options.micro_batch = 4;
    return refusal_of([&] { import_texts(texts, PlanFormat::Pipedream, options); });
  };
  CHECK_THAT(refusal({}, {}), Catch::Contains("--replicas: expected the replicas of each of 2 "
                                              "stages, which the answer does not say"));
  ForeignPlanOptions options;
  options.replicas = {1, 1, 1};
  CHECK_THAT(refusal({}, options), Catch::Contains("got 3"));
  options.replicas = {3, 2};
  CHECK_THAT(refusal({}, options),
             Catch::Contains("expected a topology with as many devices as the plan, got 4"));
  options.replicas = {3, 1};
  CHECK(refusal({}, options) == "accepted");
  CHECK_THAT(refusal({{"conf.json", sample("pair.conf.json")}}, options),
             Catch::Contains("conf.json: --replicas: expected none with this file"));
  const std::string output = sample("pair.optimizer.txt");
  CHECK_THAT(refusal({{"out.txt", changed(output, "(2, 4) 0.009300 1\n", "")}}, {}),
             Catch::Contains("out.txt: expected 2 ranges"));
  CHECK_THAT(refusal({{"out.txt", changed(output, "(0, 2) 0.008900 3", "(0, 2) 0.008900 0")}}, {}),
             Catch::Contains("one for each stage of gpus=4.txt, got 1"));
  CHECK_THAT(refusal({{"out.txt", output}, {"again.txt", output}}, {}),
             Catch::Contains("again.txt: expected what the optimizer printed once, got out.txt"));
}

}  // namespace
}  // namespace dapple::interop
