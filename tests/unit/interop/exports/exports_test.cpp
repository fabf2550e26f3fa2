// A plan as other runtimes take it, and what they cannot take.

#include <catch2/catch.hpp>

#include <algorithm>
#include <string>
#include <string_view>
#include <variant>

#include "../../../support/exported_plan.h"
#include "dapple/cost/buckets.h"
#include "dapple/schedule/schedule.h"

namespace dapple::interop {
namespace {

using namespace small;

/// From now on the plan's two stages follow these orders.
void give_orders(PlanDocument& document, std::string_view first, std::string_view second) {
  document.plan.family = ScheduleFamily::Given;
  document.plan.order = {parse_actions(first), parse_actions(second)};
}

TEST_CASE("Megatron-LM gets the blocks of each stage and a replica's samples") {
  CHECK(exported(document_of(two_by_two()), "megatron").text ==
        "# tiny on 2x2 for Megatron-LM: 4 processes, rank = pipeline rank * 2 + replica\n"
        "# ranks 0 to 1: node0:0 node0:1\n"
        "# ranks 2 to 3: node1:0 node1:1\n"
        "PIPELINE_ARGS=(\n"
        "  --tensor-model-parallel-size 1\n"
        "  --pipeline-model-parallel-size 2\n"
        "  --pipeline-model-parallel-layout \"Et*2|t*2L\"\n"
        "  --num-layers 4\n"
        "  --micro-batch-size 1\n"
        "  --global-batch-size 6\n"
        "  --overlap-grad-reduce\n"
        ")\n"
        "# OTHER_ARGS are what a plan does not decide, of model, data and optimizer.\n"
        "# To start it on node0 and 1 more, with the number of each from 0 in NODE_RANK and the "
        "address of node0 in MASTER_ADDR:\n"
        "#   torchrun --nnodes 2 --node-rank \"$NODE_RANK\" --master-addr \"$MASTER_ADDR\" "
        "--nproc-per-node 2 \\\n"
        "#     pretrain_gpt.py \"${PIPELINE_ARGS[@]}\" \"${OTHER_ARGS[@]}\"\n");
}

TEST_CASE("a stage of an embedding, of one block, or of a head alone has its letter") {
  PlanShape shape{.micro_batch_size = 1,
                  .num_micro_batches = 4,
                  .depths = {4, 3, 2, 1},
                  .stages = {{.layers = 1, .devices = {0}},
                             {.layers = 1, .devices = {1}},
                             {.layers = 3, .devices = {2}},
                             {.layers = 1, .devices = {3}}}};
  CHECK_THAT(exported(document_of(shape), "megatron").text,
             Catch::Contains("layout \"E|t|t*3|L\"\n"));
}

/// The plan of document_of(), whose stages have two blocks each, with such parameters that nanotron
/// cuts it so.
PlanDocument nanotron_document() {
  PlanDocument document = document_of(two_by_two());
  for (Layer& layer : document.profile.layers) layer.parameters = Bytes{10};
  document.plan.stages[0].layers = {0, 4};
  document.plan.stages[1].layers = {4, 6};
  document.profile.layers.back().parameters = Bytes{9};
  return document;
}

TEST_CASE("nanotron gets degrees, batches and what its ranks shard") {
  CHECK(exported(nanotron_document(), "nanotron").text ==
        "# tiny on 2x2 for nanotron: 4 processes, rank = pipeline rank * 2 + replica\n"
        "# ranks 0 to 1: node0:0 node0:1\n"
        "# ranks 2 to 3: node1:0 node1:1\n"
        "parallelism:\n"
        "  dp: 2\n"
        "  pp: 2\n"
        "  tp: 1\n"
        "  context_parallel_size: 1\n"
        "  pp_engine: 1f1b\n"
        "  tp_mode: ALL_REDUCE\n"
        "  recompute_layer: false\n"
        "tokens:\n"
        "  micro_batch_size: 1\n"
        "  batch_accumulation_per_replica: 3\n"
        "optimizer:\n"
        "  zero_stage: 0\n");
  PlanDocument document = nanotron_document();
  document.plan.stages[0].layers = {0, 3};
  document.plan.stages[1].layers = {3, 6};
  CHECK(refusal(document, "nanotron") ==
        "/stages: expected stages of 3, 1 blocks, as nanotron cuts the model itself, got 2, "
        "2");
}

/// The plan of document_of(), its layers called so.
PlanDocument named_document(const std::vector<std::string>& names) {
  PlanDocument document = document_of(two_by_two());
  for (std::size_t i = 0; i < names.size(); ++i) document.profile.layers[i].name = names[i];
  return document;
}

TEST_CASE("every block is exported, whatever its number") {
  // Another file's nodes are numbered with what stands between them: an attention mask is 4.
  PlanDocument document =
      named_document({"Embedding.1", "Block.3", "Block.5", "Block.6", "Block.8", "Pooler.9"});
  CHECK_THAT(exported(document, "megatron").text, Catch::Contains("--num-layers 4\n"));
  CHECK_THAT(exported(document, "colossalai").text,
             Catch::Contains("num_layers_per_stage=[2, 2],"));
  document = named_document({"mask.0", "mask.1", "Block.2", "Block.5", "Block.3", "head"});
  for (const std::size_t l : {std::size_t{0}, std::size_t{1}})
    document.profile.layers[l].parameters = Bytes{0};
  document.plan.stages[0].layers = {0, 4};
  document.plan.stages[1].layers = {4, 6};
  CHECK_THAT(exported(document, "megatron").text, Catch::Contains("--num-layers 3\n"));
}

TEST_CASE("an embedding and a head that are numbered with the blocks are none of them") {
  const std::vector<std::string> numbered{"layer.0", "layer.1", "layer.2",
                                          "layer.3", "layer.4", "layer.5"};
  PlanDocument document = named_document(numbered);
  // All have the same parameters: who knows better?
  CHECK_THAT(exported(document, "megatron").text, Catch::Contains("--num-layers 6\n"));
  document.profile.layers.front().parameters = Bytes{9};
  document.profile.layers.back().parameters = Bytes{8};
  const Export made = exported(document, "megatron");
  CHECK_THAT(made.text, Catch::Contains("--num-layers 4\n"));
  REQUIRE(made.warnings.size() == 3);
  CHECK(made.warnings[0] ==
        "layer.0 counts as the embedding and not as a block: its parameters are not those of the "
        "others");
  CHECK_THAT(made.warnings[1], Catch::Contains("layer.5 counts as the head"));
  CHECK(exported(document, "colossalai").warnings.size() == 3);
  // One in the middle is a block of another size.
  document = named_document(numbered);
  document.profile.layers[2].parameters = Bytes{9};
  CHECK_THAT(exported(document, "megatron").text, Catch::Contains("--num-layers 6\n"));
}

TEST_CASE("blocks that cannot be told are refused and not counted short") {
  CHECK(refusal(named_document(
                    {"embedding", "encoder.0", "encoder.1", "decoder.0", "decoder.1", "head"}),
                "megatron") ==
        "/model/profile/layers: expected transformer blocks, numbered under one name, got two "
        "names of numbered layers, decoder and encoder");
  CHECK(refusal(named_document({"embedding", "block.0", "block.1", "norm", "block.2", "head"}),
                "colossalai") ==
        "/model/profile/layers: expected transformer blocks side by side, got norm between block.1 "
        "and block.2");
  CHECK_THAT(refusal(named_document({"a", "b", "c", "d", "e.1", "f"}), "megatron"),
             Catch::Contains("encoder.0, encoder.1, got none"));
}

TEST_CASE("devices of several GPUs have as many ranks") {
  PlanDocument document = document_of(two_by_two());
  document.profile.tensor_parallel = 4;
  const std::string megatron = exported(document, "megatron").text;
  CHECK_THAT(megatron, Catch::StartsWith("# tiny on 2x2 for Megatron-LM: 16 processes, rank = "
                                         "(pipeline rank * 2 + replica) * 4 + tensor rank\n"
                                         "# ranks 0 to 7, 4 a device: node0:0 node0:1\n"
                                         "# ranks 8 to 15, 4 a device: node1:0 node1:1\n"));
  CHECK_THAT(megatron, Catch::Contains("--tensor-model-parallel-size 4\n"));
  const Export deepspeed = exported(document, "deepspeed");
  CHECK_THAT(deepspeed.text,
             Catch::Contains("topology import PipeModelDataParallelTopology\n") &&
                 Catch::Contains("PipeModelDataParallelTopology(num_pp=2, num_mp=4, num_dp=2)"));
  CHECK_THAT(deepspeed.warnings.front(), Catch::Contains("over the 4 GPUs"));
  CHECK_THAT(exported(document, "torchtitan").text,
             Catch::Contains("--parallelism.tensor_parallel_degree 4\n"));
  CHECK_THAT(exported(document, "colossalai").text, Catch::Contains("tp_size=4,"));
  CHECK_THAT(exported(document, "sailor").text, Catch::Contains("[[[\"gpu\",8,\"2x2\"]],4]"));
  CHECK_THAT(exported(document, "rankfile").text,
             Catch::Contains("rank 7=node0 slot=7\nrank 8=node1 slot=0\n"));
  CHECK(exported(document, "hostfile").text == "node0 slots=8\nnode1 slots=8\n");
  CHECK_THAT(exported(document, "visible-devices").text,
             Catch::Contains("  6) CUDA_VISIBLE_DEVICES=6 ;;  # node0:1\n"));
  CHECK_THAT(exported(document, "chakra").warnings[1], Catch::Contains("a device of 4 GPUs"));
  for (const char* name : {"torch-python", "pipedream"}) {
    CHECK_THAT(refusal(document, name),
               Catch::Contains("/model/profile/tensor_parallel: expected 1, as ") &&
                   Catch::Contains("has no place for devices of several GPUs, got 4"));
  }
}

TEST_CASE("what a runtime cannot express is named with its place") {
  SECTION("stages with different numbers of replicas") {
    PlanShape shape = two_by_two();
    shape.stages[0].devices = {0};
    for (const char* name : {"megatron", "deepspeed", "torch-csv", "torchtitan"}) {
      CAPTURE(name);
      CHECK_THAT(refusal(document_of(shape), name),
                 Catch::Contains("/stages/1/devices: expected as many replicas as stage 0 has, 1"));
    }
  }
  SECTION("shares that are not equal") {
    PlanShape shape = two_by_two();
    shape.micro_batch_size = 3;
    CHECK_THAT(refusal(document_of(shape), "megatron"),
               Catch::Contains("/micro_batch_size: expected a multiple of the 2 replicas, so that "
                               "their shares are equal, got 3"));
  }
  SECTION("other depths") {
    PlanShape shape = two_by_two();
    shape.depths = {3, 1};
    CHECK_THAT(refusal(document_of(shape), "deepspeed"),
               Catch::Contains("/schedule/warmup_depths/0: expected 2, which DeepSpeed keeps in "
                               "flight there, got 3"));
    CHECK(refusal(document_of(shape), "torch-csv").empty());
  }
  SECTION("GPipe") {
    PlanShape shape = two_by_two();
    shape.gpipe = true;
    CHECK_THAT(refusal(document_of(shape), "megatron"),
               Catch::Contains("/schedule/family: expected 1f1b or interleaved"));
  }
  SECTION("one stage that recomputes") {
    PlanShape shape = two_by_two();
    shape.stages[1].recompute = true;
    CHECK_THAT(refusal(document_of(shape), "deepspeed"),
               Catch::Contains("/stages/1/recompute: expected what stage 0 does"));
  }
  SECTION("weights that stages share") {
    PlanDocument document = document_of(two_by_two());
    document.profile.ties = {{{0}, {{5}}}};
    document.plan.tied_gradients = tied_gradients(document.profile, document.plan.stages);
    CHECK(refusal(document, "torch-python") ==
          "/stages/1/layers: expected layers that share no weights with other stages, as PyTorch's "
          "runtime adds up no gradients over stages, got weights of embedding");
    CHECK(refusal(document, "megatron").empty());
    CHECK(refusal(document, "deepspeed").empty());
  }
  SECTION("forwards that pass each other, which PyTorch tells apart by their place") {
    PlanDocument document = document_of(two_by_two());
    give_orders(document, "0F0 0F1 0B0 0B1 0F2 0B2", "1F1 1F0 1B0 1B1 1F2 1B2");
    CHECK(refusal(document, "torch-csv") ==
          "/schedule/order/1: expected 1F0, as PyTorch's runtime counts the outputs of a stage and "
          "takes their numbers for those of micro-batches, got 1F1");
  }
  SECTION("weights that layers of a stage share, in a backward of two parts") {
    PlanDocument document = document_of(two_by_two());
    document.profile.ties = {{{4}, {{5}}}};
    CHECK(refusal(document, "torch-python").empty());
    give_orders(document, "0F0 0B0 0F1 0B1 0F2 0B2", "1F0 1I0 1W0 1F1 1B1 1F2 1B2");
    CHECK(refusal(document, "torch-python") ==
          "/stages/1/layers: expected layers that share no weights, as PyTorch's runtime does not "
          "make their gradients in a second part of the backward, got weights of block.3");
  }
  SECTION("a tensor that skips a stage's last layer") {
    PlanDocument document = document_of(two_by_two());
    document.profile.layers[4].inputs = {LayerIndex{1}, LayerIndex{3}};
    CHECK_THAT(
        refusal(document, "torch-csv"),
        Catch::Contains("/stages/1/layers: expected one tensor from the stage before, which "
                        "is all that PyTorch's runtime hands on, got block.3 that also takes "
                        "block.0"));
  }
  SECTION("an embedding in two stages, and a model without blocks") {
    PlanDocument document = document_of(two_by_two());
    document.profile.layers[1].name = "norm";
    document.profile.layers[2].name = "dropout";
    document.profile.layers[3].name = "block.1";
    document.profile.layers[4].name = "block.2";
    CHECK(refusal(document, "megatron").empty());
    document.profile.layers[3].name = "position";
    CHECK_THAT(refusal(document, "megatron"),
               Catch::Contains("/model/profile/layers: expected transformer blocks"));
    document.profile.layers[5].name = "block.3";
    CHECK_THAT(
        refusal(document, "megatron"),
        Catch::Contains("/stages/0/layers/1: expected a boundary next to a transformer block, "
                        "between 4 and 6"));
  }
  SECTION("dealt micro-batches") {
    PlanShape shape = two_by_two();
    shape.num_micro_batches = 4;
    for (StageShape& stage : shape.stages) stage.dealt = true;
    CHECK_THAT(refusal(document_of(shape), "torchtitan"),
               Catch::Contains("/stages/0/replication: expected split"));
    // To Megatron-LM they are micro-batches of each replica's own: two of two samples.
    CHECK_THAT(exported(document_of(shape), "megatron").text,
               Catch::Contains("--micro-batch-size 2\n"));
  }
}

TEST_CASE("DeepSpeed gets the boundaries, and the batch in its own terms") {
  PlanShape shape = two_by_two();
  for (StageShape& stage : shape.stages) stage.recompute = true;
  const std::string text = exported(document_of(shape), "deepspeed").text;
  CHECK_THAT(text, Catch::Contains("PARTS = [0, 3, 6]"));
  CHECK_THAT(text, Catch::Contains("\"train_batch_size\": 6,"));
  CHECK_THAT(text, Catch::Contains("\"train_micro_batch_size_per_gpu\": 1,"));
  CHECK_THAT(text, Catch::Contains("\"gradient_accumulation_steps\": 3,"));
  CHECK_THAT(text, Catch::Contains("num_pp=2, num_dp=2"));
  CHECK_THAT(text, Catch::Contains("\"activation_checkpoint_interval\", 6)"));
}

TEST_CASE("PyTorch's order stands in columns, each behind what it needs") {
  // Stage 1 waits a column for its first input, stage 0 one for its first gradient.
  CHECK(exported(document_of(two_by_two()), "torch-csv").text ==
        "0F0,0F1,,0B0,0F2,0B1,,0B2\n"
        ",1F0,1B0,1F1,1B1,1F2,1B2,\n");
}

TEST_CASE("what PyTorch makes of a backward in two parts is a warning") {
  PlanShape shape = two_by_two();
  for (StageShape& stage : shape.stages) stage.recompute = true;
  PlanDocument document = document_of(shape);
  CHECK(exported(document, "torch-python").warnings.empty());
  give_orders(document, "0F0 0I0 0W0 0F1 0B1 0F2 0B2", "1F0 1B0 1F1 1B1 1F2 1B2");
  const std::vector<std::string> built = exported(document, "torch-python").warnings;
  REQUIRE(built.size() == 1);
  CHECK_THAT(built[0], Catch::Contains("runs a forward again for each part of its backward"));
  const std::vector<std::string> ordered = exported(document, "torch-csv").warnings;
  REQUIRE(ordered.size() == 3);
  CHECK_THAT(ordered[1], Catch::Contains("DistributedDataParallel averages no gradients"));
}

TEST_CASE("torchtitan gets the names of each stage's layers") {
  const Export made = exported(document_of(two_by_two()), "torchtitan");
  CHECK_THAT(made.text,
             Catch::Contains("'[[\"embedding\", \"block.0\", \"block.1\"], [\"block.2\", "
                             "\"block.3\", \"head\"]]'"));
  CHECK_THAT(made.text, Catch::Contains("--training.local_batch_size 3\n"));
  REQUIRE(made.warnings.size() == 2);
  CHECK(made.warnings[1] ==
        "not in the files of torchtitan: the order of actions (torch-csv has it); gradient "
        "buckets of 25 MiB");
}

TEST_CASE("torchtitan gets the names of its own modules for an estimated decoder") {
  PlanDocument document = document_of(two_by_two());
  CHECK_THAT(exported(document, "torchtitan").text,
             Catch::Contains("# The names of modules are those of the profile's layers"));
  // Only estimates state a precision.
  document.profile.precision = "bf16";
  const Export made = exported(document, "torchtitan");
  CHECK_THAT(made.text, Catch::Contains("'[[\"tok_embeddings\", \"layers.0\", \"layers.1\"], "
                                        "[\"layers.2\", \"layers.3\", \"norm\", \"output\"]]'"));
  CHECK_THAT(made.text,
             Catch::Contains("# The names of modules are those of torchtitan's decoders"));
  // Layers of other names are the profile's.
  document.profile.layers.front().name = "patches";
  CHECK_THAT(exported(document, "torchtitan").text,
             Catch::Contains("'[[\"patches\", \"block.0\", \"block.1\"], [\"block.2\""));
}

TEST_CASE("the precision is written where the profile states it") {
  PlanDocument document = document_of(two_by_two());
  const auto text = [&](const char* target) { return exported(document, target).text; };
  for (const char* target : {"megatron", "deepspeed", "colossalai"}) {
    for (const char* word : {"bf16", "fp16", "precision"}) {
      CHECK_THAT(text(target), !Catch::Contains(word));
    }
  }
  document.profile.precision = "fp16";
  CHECK_THAT(text("megatron"), Catch::Contains("  --fp16\n"));
  CHECK_THAT(text("deepspeed"), Catch::Contains("    \"fp16\": {\"enabled\": True},\n"));
  CHECK_THAT(text("colossalai"), Catch::Contains("        precision=\"fp16\",\n"));
  // Megatron-LM and DeepSpeed compute in single precision unless told otherwise; TF32 is of that.
  document.profile.precision = "tf32";
  for (const char* target : {"megatron", "deepspeed"}) {
    CHECK_THAT(text(target), !Catch::Contains("tf32") && !Catch::Contains("16\n"));
  }
  CHECK_THAT(text("colossalai"), Catch::Contains("        precision=\"fp32\",\n"));
}

TEST_CASE("Megatron-LM counts the parameters of a bucket where their size is known") {
  PlanDocument document = document_of(two_by_two());
  document.plan.gradients.bucket_size = Bytes{25 << 20};
  const auto warns = [&] {
    const std::vector<std::string> warnings = exported(document, "megatron").warnings;
    return std::any_of(warnings.begin(), warnings.end(), [](const std::string& warning) {
      return warning.find("gradient buckets of 25 MiB") != std::string::npos;
    });
  };
  CHECK_THAT(exported(document, "megatron").text, !Catch::Contains("bucket"));
  CHECK(warns());
  const auto option = [&](const char* precision, Factor gradient) {
    document.profile.precision = precision;
    document.profile.optimizer.gradient_bytes_per_parameter_byte = gradient;
    CHECK_FALSE(warns());
    const std::string text = exported(document, "megatron").text;
    const std::string name = "  --overlap-grad-reduce\n  --ddp-bucket-size ";
    const std::size_t begin = text.find(name) + name.size();
    return text.substr(begin, text.find('\n', begin) - begin);
  };
  // 26,214,400 bytes: gradients of two bytes, of four beside parameters of two, and of four.
  CHECK(option("bf16", kOne) == "13107200");
  CHECK(option("bf16", Factor{2 * kOne.billionths}) == "6553600");
  CHECK(option("fp32", kOne) == "6553600");
  // A bucket is closed once it holds as much, so that parts of parameters count whole.
  document.plan.gradients.bucket_size = Bytes{(25 << 20) + 1};
  CHECK(option("fp16", kOne) == "13107201");
  document.plan.gradients.overlaps = false;
  CHECK_THAT(exported(document, "megatron").text, !Catch::Contains("bucket"));
}

TEST_CASE("torchtitan is named where it refuses a plan") {
  PlanShape shape = two_by_two();
  shape.stages[0].dealt = true;
  shape.stages[1].dealt = true;
  shape.num_micro_batches = 4;
  CHECK_THAT(refusal(document_of(shape), "torchtitan"),
             Catch::Contains("all replicas of torchtitan run one order"));
  CHECK_THAT(refusal(document_of(shape), "torch-csv"),
             Catch::Contains("all replicas of PyTorch's runtime run one order"));
}

TEST_CASE("a launcher's processes get the plan's ranks, from the server of rank 0 on") {
  // Ranks: stage 0 on node1:1 and node0:0, stage 1 on node0:1 and node1:0.
  PlanShape shape = two_by_two();
  shape.stages[0].devices = {3, 0};
  shape.stages[1].devices = {1, 2};
  const std::string text = exported(document_of(shape), "ranks").text;
  CHECK_THAT(text, Catch::Contains("  # server 0: node1, 2 processes\n"
                                   "  0:0) RANK=3 CUDA_VISIBLE_DEVICES=0,1 ;;\n"
                                   "  0:1) RANK=0 CUDA_VISIBLE_DEVICES=0,1 ;;\n"
                                   "  # server 1: node0, 2 processes\n"
                                   "  1:0) RANK=1 CUDA_VISIBLE_DEVICES=0,1 ;;\n"
                                   "  1:1) RANK=2 CUDA_VISIBLE_DEVICES=0,1 ;;\n"));
  CHECK_THAT(text, Catch::Contains("WORLD_SIZE=4\n"));
}

TEST_CASE("launchers put each rank on its device") {
  // Ranks: stage 0 on node1:1 and node0:0, stage 1 on node0:1 and node1:0.
  PlanShape shape = two_by_two();
  shape.stages[0].devices = {3, 0};
  shape.stages[1].devices = {1, 2};
  const PlanDocument document = document_of(shape);
  CHECK(exported(document, "rankfile").text ==
        "rank 0=node1 slot=0\nrank 1=node0 slot=0\nrank 2=node0 slot=1\nrank 3=node1 slot=1\n");
  const Export hosts = exported(document, "hostfile");
  CHECK(hosts.text == "node1 slots=1\nnode0 slots=2\nnode1 slots=1\n");
  REQUIRE(hosts.warnings.size() == 2);
  CHECK_THAT(hosts.warnings[0], Catch::Contains("node1 stands in several lines"));
  const std::string wrapper = exported(document, "visible-devices").text;
  CHECK_THAT(wrapper, Catch::Contains("  0) CUDA_VISIBLE_DEVICES=1 ;;  # node1:1\n"));
  CHECK_THAT(wrapper, Catch::Contains("  3) CUDA_VISIBLE_DEVICES=0 ;;  # node1:0\n"));
  CHECK_THAT(wrapper, Catch::Contains("expected a rank from 0 to 3"));
}

TEST_CASE("PipeDream deals to other numbers of replicas, and splits among the same") {
  PlanShape shape = two_by_two();
  shape.stages[0].devices = {0};
  CHECK_THAT(refusal(document_of(shape), "pipedream"),
             Catch::Contains("/stages/1/devices: expected as many replicas as stage 0 has, 1"));
  PlanDocument dealt = document_of(shape);
  dealt.plan.stages[1].replication = Replication::Deal;
  CHECK(
      exported(dealt, "pipedream").text ==
      "{\"module_to_stage_map\":[0,0,0,1,1,1,1],\"stage_to_rank_map\":{\"0\":[0],\"1\":[1,2]},"
      "\"stage_to_depth_map\":{\"0\":1,\"1\":0},"
      "\"global_batch_size\":6,\"micro_batch_size\":2,\"replication\":\"deal\",\"recompute\":false,"
      "\"rank_to_device_map\":[\"node0:0\",\"node1:0\",\"node1:1\"]}\n");
  CHECK_THAT(refusal(dealt, "deepspeed"), Catch::Contains("/stages/1/devices"));
}

void set_buckets(PlanDocument& document, Bytes size) {
  document.plan.gradients.bucket_size = size;
  for (StagePlan& stage : document.plan.stages) stage.gradient_buckets.clear();
  fill_gradient_buckets(document.plan, document.profile);
}

/// Another plan than two_by_two(), in one of the things that a plan chooses.
struct OtherChoice {
  const char* words;  // by which it is called where a file leaves it out
  void (*choose)(PlanShape& shape);
  void (*change)(PlanDocument& document) = [](PlanDocument&) {};
};

TEST_CASE("what a plan chooses is in a target's files, or refused, or named as left out") {
  const OtherChoice choices[] = {
      {"layers and devices",
       [](PlanShape& shape) { shape.stages[0].layers = 2, shape.stages[1].layers = 4; }},
      {"device",
       [](PlanShape& shape) { std::swap(shape.stages[0].devices, shape.stages[1].devices); }},
      {"device",
       [](PlanShape& shape) {
         shape.stages[0].devices = {1, 0};
       }},
      {"micro-batches of", [](PlanShape& shape) { shape.micro_batch_size = 4; }},
      {"micro-batches", [](PlanShape& shape) { shape.num_micro_batches = 4; }},
      {"order of actions", [](PlanShape& shape) { shape.gpipe = true; }},
      {"order of actions",
       [](PlanShape& shape) {
         shape.depths = {3, 1};
       }},
      {"recompute",
       [](PlanShape& shape) {
         for (StageShape& stage : shape.stages) stage.recompute = true;
       }},
      {"replicas",
       [](PlanShape& shape) {
         shape.num_micro_batches = 4;
         for (StageShape& stage : shape.stages) stage.dealt = true;
       }},
      {"gradient buckets", [](PlanShape&) {},
       [](PlanDocument& document) { set_buckets(document, Bytes{4}); }},
      {"bucket by bucket", [](PlanShape&) {},
       [](PlanDocument& document) {
         document.plan.gradients.optimizer = OptimizerTiming::PerBucket;
       }}};
  const auto files_of = [](const Export& made) {
    std::string text = made.text;
    for (const io::FileText& file : made.files) text += file.name + file.text;
    return text;
  };
  const std::vector<std::string> launchers{"rankfile", "hostfile", "visible-devices", "ranks"};
  for (const ExportTarget& each : export_targets()) {
    const bool is_launcher =
        std::find(launchers.begin(), launchers.end(), each.name) != launchers.end();
    for (const OtherChoice& choice : choices) {
      const std::string words = choice.words;
      if (is_launcher && words != "device") continue;
      CAPTURE(each.name, words);
      PlanShape shape = two_by_two();
      PlanDocument usual = document_of(shape);
      set_buckets(usual, Bytes{8});
      choice.choose(shape);
      PlanDocument other = document_of(shape);
      set_buckets(other, Bytes{8});
      choice.change(other);
      if (!refusal(other, each.name).empty()) continue;
      const Export made = exported(other, each.name);
      const bool is_in_files = files_of(made) != files_of(exported(usual, each.name));
      const bool is_told = !made.warnings.empty() &&
                           made.warnings.back().find("not in the files of") == 0 &&
                           made.warnings.back().find(words) != std::string::npos;
      CHECK((is_in_files || is_told));
    }
  }
}

TEST_CASE("nothing is said to be left out of a plan whose choices are all there") {
  // One replica, so no buckets; ranks in the order of the devices.
  const PlanDocument document =
      document_of({.micro_batch_size = 1,
                   .num_micro_batches = 4,
                   .depths = {2, 1},
                   .stages = {{.layers = 3, .devices = {0}}, {.layers = 3, .devices = {1}}}});
  const Topology topology(document.topology);
  for (const ExportTarget& each : export_targets()) {
    CAPTURE(each.name);
    const bool has_gaps = each.gaps.stages || each.gaps.order || each.gaps.devices;
    CHECK(left_out(each, {document, topology}).empty() == !has_gaps);
  }
}

TEST_CASE("what ColossalAI and Sailor lack is named") {
  PlanShape recomputing = two_by_two();
  for (StageShape& stage : recomputing.stages) stage.recompute = true;
  CHECK_THAT(
      refusal(document_of(recomputing), "sailor"),
      Catch::Contains("/stages/0/recompute: expected no recomputation, which Sailor does not "
                      "have, got some"));
  PlanShape headless{.micro_batch_size = 1,
                     .num_micro_batches = 4,
                     .depths = {2, 1},
                     .stages = {{.layers = 5, .devices = {0}}, {.layers = 1, .devices = {1}}}};
  CHECK_THAT(refusal(document_of(headless), "colossalai"),
             Catch::Contains("/stages/1/layers: expected a transformer block, as ColossalAI has "
                             "some in every stage, got none"));
  CHECK(refusal(document_of(headless), "megatron").empty());
}

TEST_CASE("layers that begin no stage are those at which an export would be refused") {
  const PlanDocument document = document_of(two_by_two());
  const auto cuts = [&](std::string_view name, const ModelProfile& profile) {
    return inexpressible_cuts(*target(name).limits, profile);
  };
  CHECK(cuts("megatron", document.profile).empty());
  CHECK(cuts("colossalai", document.profile) == std::vector<std::int32_t>{1, 5});
  ModelProfile skipping = document.profile;
  skipping.layers[4].inputs.push_back({1});  // block.3 also takes block.0's output
  CHECK(cuts("deepspeed", skipping) == std::vector<std::int32_t>{3, 4});
  CHECK(cuts("pipedream", skipping).empty());
  ModelProfile tied = document.profile;
  tied.ties = {{{1}, {{3}}}};  // block.2 uses weights of block.0
  CHECK(cuts("torch-csv", tied) == std::vector<std::int32_t>{2, 3});
  CHECK(cuts("megatron", tied) == cuts("megatron", document.profile));
}

TEST_CASE("execution traces have a file for each rank, and groups where gradients are reduced") {
  const Export made = exported(document_of(two_by_two()), "chakra");
  CHECK(made.files.size() == 5);
  CHECK(made.files[0].name == "groups.json");
  CHECK(made.files[4].name == "trace.3.et");
  // The metadata: 7 bytes, of which field 1, a text of 5.
  CHECK(made.files[1].text.substr(0, 8) ==
        "\x07\x0a\x05"
        "0.0.4");
  PlanShape endless = two_by_two();
  endless.num_micro_batches = 1'000'000;
  CHECK(refusal(document_of(endless), "chakra") ==
        "/num_micro_batches: expected traces of at most 2000000 passes of a micro-batch through a "
        "stage's replica, got 4000000");
}

}  // namespace
}  // namespace dapple::interop
