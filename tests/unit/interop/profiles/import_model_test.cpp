// Profiles of other planners: figures worked out by hand, and what is refused, by place.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <functional>
#include <string>
#include <vector>

#include "../../../support/refusals.h"
#include "dapple/interop/exports/exports.h"
#include "dapple/interop/profiles/foreign_profile.h"
#include "dapple/io/documents/documents.h"
#include "dapple/profile/parallelism.h"
#include "dapple/profile/recomputation.h"
#include "dapple/profile/variants.h"
#include "graph_text.h"

namespace dapple::interop {
namespace {

using namespace test;

ForeignProfileOptions options_for(ModelFormat format) {
  ForeignProfileOptions options;
  options.optimizer = "adam";
  options.batch_scaling = BatchScaling::Proportional;
  if (format == ModelFormat::Piper) return options;
  options.global_batch = 32;
  if (format == ModelFormat::Sailor) {
    options.device = "GH-96";
    return options;
  }
  options.backward_ratio = Factor{2'000'000'000};
  options.output = Bytes{100};
  if (format == ModelFormat::Galvatron) options.layers = 2;
  return options;
}

ImportedProfile import(const std::string& text, ModelFormat format) {
  return import_model({{text, "models/small.json", format}}, options_for(format));
}

/// Two files of a Metis folder, the second as it is in the golden.
ImportedProfile import_pair_of_metis(const std::string& first) {
  return import_model({{first, "a/DeviceType.card_tp1_bs1.json", ModelFormat::Metis},
                       {sample("DeviceType.card_tp1_bs4.json"), "a/DeviceType.card_tp1_bs4.json",
                        ModelFormat::Metis}},
                      options_for(ModelFormat::Metis));
}

ImportedProfile import_galvatron_files(const std::string& computation, const std::string& memory) {
  return import_model({{computation, "small.computation.json", ModelFormat::Galvatron},
                       {memory, "small.memory.json", ModelFormat::Galvatron}},
                      options_for(ModelFormat::Galvatron));
}

TEST_CASE("every sample is told from the others by what it holds") {
  CHECK(detect_model_format(sample("pair.gpus=4.txt")) == ModelFormat::PipedreamGraph);
  CHECK(detect_model_format(sample("small.piper.json")) == ModelFormat::Piper);
  CHECK(detect_model_format(sample("DeviceType.card_tp1_bs1.json")) == ModelFormat::Metis);
  CHECK(detect_model_format(sample("small.sailor.json")) == ModelFormat::Sailor);
  CHECK(detect_model_format(sample("small.computation.json")) == ModelFormat::Galvatron);
  CHECK(detect_model_format(sample("small.memory.json")) == ModelFormat::Galvatron);
  for (const char* other : {"", "{}", "[]", "{\"nodes\": 1", "node", "{\"schema\": \"a\"}"}) {
    CAPTURE(other);
    CHECK_FALSE(detect_model_format(other));
  }
}

TEST_CASE("layers that keep nothing by their memory in a Metis folder are named") {
  // As much memory at both batch sizes, so that none of it is for a sample.
  const ImportedProfile imported = import_pair_of_metis(
      changed(sample("DeviceType.card_tp1_bs1.json"), "[11, 48, 13]", "[14, 48, 22]"));
  CHECK(
      warns(imported.warnings, "2 of 3 layers, layer.0 the first, keep nothing by these figures"));
  CHECK_FALSE(
      warns(import_pair_of_metis(sample("DeviceType.card_tp1_bs1.json")).warnings, "keep nothing"));
}

TEST_CASE("a batch that is asked for beside the file's own is named") {
  ForeignProfileOptions options = options_for(ModelFormat::Piper);
  options.global_batch = 32;
  const ImportedProfile imported =
      import_model({{sample("small.piper.json"), "small.json", ModelFormat::Piper}}, options);
  CHECK(imported.profile.global_batch_size == 32);
  CHECK(warns(imported.warnings, "the file says 64 samples (mbsInBatch), --global-batch 32"));
  options.global_batch = 64;
  CHECK_FALSE(
      warns(import_model({{sample("small.piper.json"), "small.json", ModelFormat::Piper}}, options)
                .warnings,
            "mbsInBatch"));
}

TEST_CASE("Piper's forward is what recomputation takes longer, its stash memoryUsageA") {
  const ImportedProfile imported = import(sample("small.piper.json"), ModelFormat::Piper);
  const ModelProfile& profile = imported.profile;
  // What has no inputs stands right before what takes it first.
  REQUIRE(names_of(profile) ==
          std::vector<std::string>{"tensor", "Embedding", "Block.3", "Block.4"});
  CHECK(profile.name == "small");
  CHECK(profile.global_batch_size == 64);  // mbsInBatch
  CHECK(profile.device.empty());
  const Layer& block = profile.layers[2];
  CHECK(block.parameters == Bytes{6'000});
  CHECK(block.inputs == std::vector<LayerIndex>{LayerIndex{0}, LayerIndex{1}});
  REQUIRE(block.measurements.size() == 1);
  const Measurement& figures = block.measurements.front();
  CHECK(figures.batch_size == 1);
  // 12 ms with recomputation and 9.000000000000001 ms without, which is rounded up.
  CHECK(figures.forward == Duration{2'999'999});
  CHECK(figures.backward == Duration{6'000'002});
  CHECK(figures.stash == Bytes{8'192});
  CHECK(figures.output == Bytes{1'024});
  CHECK(profile.layers[0].measurements.front().output == Bytes{768});  // 512 and 768
  CHECK(profile.layers[3].measurements.front().output == Bytes{0});
  for (const char* words : {"those of 2 are left out", "variants that recompute are left out",
                            "the first is node 2: the largest counts", "the 32000 bytes"}) {
    CAPTURE(words);
    CHECK(warns(imported.warnings, words));
  }
}

TEST_CASE("Piper's other degrees need a ratio where nothing there recomputes") {
  ForeignProfileOptions options = options_for(ModelFormat::Piper);
  options.tensor_parallel = 2;
  const auto import_degree = [&] {
    return import_model({{sample("small.piper.json"), "p.json", ModelFormat::Piper}}, options);
  };
  CHECK_THAT(refusal_of([&] { import_degree(); }),
             Catch::Contains("--backward-ratio: the backward's time as a multiple of the "
                             "forward's is required, as node 1 (Embedding)"));
  options.backward_ratio = Factor{1'500'000'000};
  const ImportedProfile imported = import_degree();
  // 5 ms as 1 : 1.5.
  const Measurement& block = imported.profile.layers[2].measurements.front();
  CHECK(block.forward == Duration{2'000'000});
  CHECK(block.backward == Duration{3'000'000});
  CHECK(imported.profile.layers[2].parameters == Bytes{3'000});
  // 256 + 1024 + 2 * 1024 + 1024.
  CHECK(warns(imported.warnings, "a group of 2 GPUs, and the 4352 bytes"));
}

/// The sample with figures of recomputing at degree 2 too, of both blocks.
std::string recomputing_at_both_degrees(const std::string& parameters) {
  std::string text = sample("small.piper.json");
  const std::string way = fmt::format(
      R"({{"id": "activation recomp", "timePerSample": 0.007, "parameterSize": {},
          "memoryUsageA": 1536.0, "memoryUsageB": 9500.0, "syncTimeFw": {{"1": 2048.0}},
          "syncTimeBw": {{"4": 1024.0}}}}])",
      parameters);
  for (const char* const last : {R"("syncTimeFw": {"1": 1024.0}, "syncTimeBw": {"4": 1024.0}}])",
                                 R"("syncTimeFw": {"3": 1024.0}, "syncTimeBw": {}}])"}) {
    const std::string before = std::string(last).substr(0, std::string(last).size() - 1);
    text = changed(text, last, before + ", " + way);
  }
  const std::string embedding = R"("memoryUsageB": 4000.0, "syncTimeFw": {}, "syncTimeBw": )"
                                R"({"3": 1024.0}})";
  return changed(text, embedding,
                 embedding + R"(, {"id": "activation recomp", "timePerSample": 0.0002,
                     "parameterSize": 2000.0, "memoryUsageA": 1024.0, "memoryUsageB": 3000.0,
                     "syncTimeFw": {}, "syncTimeBw": {"3": 1024.0}})");
}

ImportedProfile import_every_degree(const std::string& text) {
  ForeignProfileOptions options = options_for(ModelFormat::Piper);
  options.every_degree = true;
  return import_model({{text, "small.json", ModelFormat::Piper}}, options);
}

TEST_CASE("Piper's ways to recompute are variants with the file's times, stash and working set") {
  const ImportedProfile imported = import_every_degree(recomputing_at_both_degrees("3000.0"));
  const ModelProfile& profile = imported.profile;
  const Parallelism whole{.recomputes = kWholeLayer};
  const Parallelism pair{.tensor = 2};
  const Parallelism whole_pair{.tensor = 2, .recomputes = kWholeLayer};
  CHECK(parallelisms_of(profile) == std::vector<Parallelism>{{}, whole, pair, whole_pair});
  // Recomputing a tensor that is handed on changes nothing: there is no such variant.
  REQUIRE(profile.layers[0].variants.size() == 1);
  CHECK(profile.layers[0].variants[0].parallelism == pair);
  const std::vector<LayerVariant>& block = profile.layers[2].variants;
  REQUIRE(block.size() == 3);
  const Measurement& alone = block[0].measurements.front();
  // 12 ms with recomputation, of which the forward takes 2.999999 ms.
  CHECK(alone.forward == Duration{2'999'999});
  CHECK(alone.backward == Duration{9'000'001});
  CHECK(alone.stash == Bytes{1'536});
  CHECK(alone.workspace == Bytes{20'000 - 12'000});
  CHECK(alone.output == Bytes{1'024});
  CHECK(block[0].parameters == Bytes{6'000});
  CHECK(block[0].forward_collectives.empty());
  // At degree 2 the forward is 7 ms - 5 ms, and twice the bytes of an all-gather are its size.
  const Measurement& shared = block[2].measurements.front();
  CHECK(shared.forward == Duration{2'000'000});
  CHECK(shared.backward == Duration{5'000'000});
  CHECK(shared.workspace == Bytes{9'500 - 6'000});
  REQUIRE(block[2].forward_collectives.size() == 1);
  CHECK(block[2].forward_collectives[0].size_per_sample == Bytes{2 * 2'048});
  CHECK(block[2].backward_collectives[0].size_per_sample == Bytes{2 * 1'024});
  CHECK(block[1].forward_collectives[0].size_per_sample == Bytes{2 * 1'024});
  // Less fixed memory than without recomputation is no working set.
  CHECK(profile.layers[1].variants[2].measurements.front().workspace == Bytes{0});
  CHECK(warns(imported.warnings, "beyond them of a layer that recomputes is the layer's working"));
  CHECK_FALSE(warns(imported.warnings, "left out at tensor-parallel degree"));
  CHECK_FALSE(warns(imported.warnings, "variants that recompute are left out"));
}

TEST_CASE("degrees at which Piper's file does not say what recomputing takes are named") {
  const std::vector<Parallelism> without{{}, {.recomputes = kWholeLayer}, {.tensor = 2}};
  // The sample recomputes without parallelism only; other parameters are another layer's.
  for (const std::string& text :
       {sample("small.piper.json"), recomputing_at_both_degrees("3001.0")}) {
    const ImportedProfile imported = import_every_degree(text);
    CHECK(parallelisms_of(imported.profile) == without);
    CHECK(warns(imported.warnings,
                "layers that recompute are left out at tensor-parallel degree 2, as not all"));
  }
}

TEST_CASE("what is wrong with a Piper graph is named with its place") {
  check_refusals(
      sample("small.piper.json"),
      {{"", "{", "expected"},
       {"", "[]", "expected an object, got an empty array"},
       {"\"nodes\": [", "\"knots\": [", "/nodes: expected an array of nodes, but the key"},
       {"\"mbsInBatch\": 64", "\"mbsInBatch\": 0", "/mbsInBatch: expected a number of samples"},
       {"\"mbsInBatch\": 64", "\"mbs\": 64", "--global-batch: the global batch size is required"},
       {"\"id\": 2", "\"id\": -2", "/nodes/0/id: expected an integer from 0"},
       {"\"id\": 2", "\"id\": 1", "/nodes/1/id: expected every node once, got 1 again"},
       {"\"TMPCs\"", "\"tmpcs\"", "/nodes/0/TMPCs: expected an object, but the key is missing"},
       {"\"1\": [{", "\"3\": [{",
        "/nodes/0/TMPCs: expected figures for tensor-parallel degree 1, "
        "got those of 3, 2"},
       {"\"vanilla\"", "\"recomputed\"",
        "/nodes/0/TMPCs: expected a variant that does not "
        "recompute"},
       {"\"timePerSample\": 0.0,", "\"timePerSample\": -1,",
        "timePerSample: expected a number of seconds, 0 or more"},
       {"\"timePerSample\": 0.0,", "\"timePerSample\": 1e99,", "timePerSample: expected a number"},
       {"\"parameterSize\": 4000.0", "\"parameterSize\": \"4000\"",
        "/nodes/1/TMPCs/1/0/parameterSize: expected a number of bytes, 0 or more and not beyond "
        "measure, got \"4000\""},
       {"\"memoryUsageA\": 1024.0, ", "",
        "/nodes/1/TMPCs/1/0/memoryUsageA: expected a number of "
        "bytes"},
       {"\"syncTimeFw\": {\"1\": 0.0}", "\"syncTimeFw\": [1]", "syncTimeFw: expected an object"},
       {"\"sourceId\": 1", "\"sourceId\": 7",
        "/edges/0/sourceId: expected the id of a node, got 7"},
       {"\"destId\": 3", "\"to\": 3", "/edges/0/destId: expected an integer"},
       {"\"sourceId\": 1, \"destId\": 3", "\"sourceId\": 4, \"destId\": 3",
        "/edges: expected a graph without cycles, got node3 -> node4 -> node3"},
       {"\"communicationCost\": 1024.0", "\"communicationCost\": null",
        "/edges/0/communicationCost: expected a number of bytes"},
       {"\"edges\": [", "\"edge\": [", "/edges: expected an array of edges"}},
      [](const std::string& text) { import(text, ModelFormat::Piper); });
}

TEST_CASE("Sailor's stash is what stays allocated, less the output, with the input") {
  const ImportedProfile imported = import(sample("small.sailor.json"), ModelFormat::Sailor);
  const ModelProfile& profile = imported.profile;
  REQUIRE(names_of(profile) == std::vector<std::string>{"embedding", "transformer.0",
                                                        "transformer.1", "lm_head_and_loss"});
  CHECK(profile.name == "OPT-small");
  const Layer& second = profile.layers[2];
  REQUIRE(second.measurements.size() == 2);  // by rising micro-batch
  CHECK(second.measurements[0].batch_size == 1);
  CHECK(second.measurements[0].forward == Duration{1'200'000});
  CHECK(second.measurements[1].batch_size == 4);
  CHECK(second.measurements[1].stash == Bytes{4 * (9'000 - 800 + 800)});
  CHECK(second.measurements[1].output == Bytes{3'200});
  CHECK(profile.layers[0].measurements[0].stash == Bytes{400});  // 800 - 800 + 400
  CHECK(warns(imported.warnings, "embedding has a backward of 2000 ns and a forward of 800000"));
  CHECK(profile.device == "GH-96");
  REQUIRE(profile.other_devices == std::vector<std::string>{"V100-16"});
  REQUIRE(second.other_times.size() == 1);
  REQUIRE(second.other_times[0].measurements.size() == 1);
  CHECK(second.other_times[0].measurements[0].forward == Duration{5'000'000});
  CHECK(second.other_times[0].measurements[0].backward == Duration{10'000'000});
  CHECK(warns(imported.warnings, "the optimizer's time (update_s) is left out"));
}

TEST_CASE("what is wrong with a Sailor profile is named with its place") {
  check_refusals(
      sample("small.sailor.json"),
      {{"", "7", "expected an object, got 7"},
       {"\"model\": \"OPT-small\"", "\"model\": 7", "/model: expected a name"},
       {"\"layer_kinds\"", "\"kinds\"", "/layer_kinds: expected an array with the kind"},
       {"[\"embedding\", \"transformer\", \"transformer\", \"lm_head_and_loss\"]", "[]",
        "/layer_kinds: expected 1 to 100000 layers, got 0"},
       {"\"embedding\"", "7", "/layer_kinds/0: expected a name"},
       {"\"sizes_per_tp\"", "\"sizes\"", "/sizes_per_tp: expected an object"},
       {"\"1\": {", "\"3\": {", "/sizes_per_tp: expected sizes for tensor-parallel degree 1"},
       {"\"parameter_bytes\": [4000, 12000, 12000, 4000]", "\"parameter_bytes\": [4000]",
        "/sizes_per_tp/1/parameter_bytes: expected 4 figures, one for each layer, got 1"},
       {"\"activation_input_bytes\"", "\"inputs\"",
        "/sizes_per_tp/1/activation_input_bytes: expected an array"},
       {"[800, 9000, 9000, 12000]", "[800, -9000, 9000, 12000]",
        "/sizes_per_tp/1/activation_stored_bytes/1: expected a number of bytes"},
       {"[800, 9000, 9000, 12000]", "[800, 999999999999999, 9000, 12000]",
        "expected at most 10^15 bytes of layer 1 at micro-batch 4"},
       {"\"times\"", "\"time\"", "expected"},
       {"\"gpu_type\": \"GH-96\"", "\"gpu_type\": 96", "/times/0/gpu_type: expected a name"},
       {"\"micro_batch_size\": 4", "\"micro_batch_size\": 0",
        "/times/0/micro_batch_size: expected an integer from 1"},
       {"\"micro_batch_size\": 4", "\"micro_batch_size\": 1",
        "/times/1: expected one measurement of GH-96 at micro-batch 1 and degree 1, got another"},
       {"\"tp\": 1", "\"tp\": \"1\"", "/times/0/tp: expected an integer"},
       {"\"forward_s\": [0.0008, 0.004, 0.004, 0.002]", "\"forward_s\": [0.0008, 0.004, 0.004]",
        "/times/0/forward_s: expected 4 figures, one for each layer, got 3"},
       {"\"backward_s\": [0.000002", "\"backward_s\": [null",
        "/times/0/backward_s/0: expected a number of seconds, 0 or more"}},
      [](const std::string& text) { import(text, ModelFormat::Sailor); });
}

TEST_CASE("Sailor's kinds of GPU are all taken, the first by name for the profile") {
  ForeignProfileOptions options = options_for(ModelFormat::Sailor);
  const ForeignModelFile file{sample("small.sailor.json"), "s.json", ModelFormat::Sailor};
  options.device.reset();
  CHECK(import_model({file}, options).profile.device == "GH-96");
  options.device = "V100-16";
  const ModelProfile other = import_model({file}, options).profile;
  CHECK(other.device == "V100-16");
  CHECK(other.other_devices == std::vector<std::string>{"GH-96"});
  CHECK(other.layers[1].measurements.size() == 1);
  CHECK(other.layers[1].other_times[0].measurements.size() == 2);
  options.device = "A100";
  CHECK_THAT(refusal_of([&] { import_model({file}, options); }),
             Catch::Contains("--profile-device: expected one of the kinds that were measured at "
                             "tensor-parallel degree 1, GH-96, V100-16, got 'A100'"));
  // At degree 2 there is one; the option then is a name for it.
  options.tensor_parallel = 2;
  options.device = "V100-16";  // of which there are times at degree 1
  CHECK_THAT(refusal_of([&] { import_model({file}, options); }),
             Catch::Contains("measured at tensor-parallel degree 2, GH-96, got 'V100-16'"));
  options.device = "pair of GH";
  const ImportedProfile imported = import_model({file}, options);
  CHECK(imported.profile.device == "pair of GH");
  CHECK(imported.profile.other_devices.empty());
  CHECK(imported.profile.layers[1].measurements.front().forward == Duration{600'000});
  options.tensor_parallel = 4;
  CHECK_THAT(refusal_of([&] { import_model({file}, options); }),
             Catch::Contains("/sizes_per_tp: expected sizes for tensor-parallel degree 4"));
}

ImportedProfile import_sailor_files(const std::string& times, const std::string& sizes,
                                    const ForeignProfileOptions& options) {
  return import_model({{sizes, "llm_info.json", ModelFormat::Sailor},
                       {times, "profiles_tmp.json", ModelFormat::Sailor}},
                      options);
}

TEST_CASE("the two files of Sailor's planner say the same as one document") {
  const std::string times = sample("small.sailor-times.json");
  const std::string sizes = sample("small.sailor-sizes.json");
  CHECK(detect_model_format(times) == ModelFormat::Sailor);
  CHECK(detect_model_format(sizes) == ModelFormat::Sailor);
  ForeignProfileOptions options = options_for(ModelFormat::Sailor);
  for (const std::int64_t degree : {1, 2}) {
    options.tensor_parallel = degree;
    const ModelProfile one =
        import_model({{sample("small.sailor.json"), "s.json", ModelFormat::Sailor}}, options)
            .profile;
    const ModelProfile two = import_sailor_files(times, sizes, options).profile;
    CHECK(two.name == one.name);
    CHECK(two.device == one.device);
    CHECK(two.other_devices == one.other_devices);
    REQUIRE(two.layers.size() == one.layers.size());
    for (std::size_t l = 0; l < one.layers.size(); ++l) {
      CHECK(two.layers[l].parameters == one.layers[l].parameters);
      CHECK(two.layers[l].measurements == one.layers[l].measurements);
      CHECK(two.layers[l].other_times == one.layers[l].other_times);
    }
  }
  options.tensor_parallel.reset();
  // The option chooses the model where both files have several.
  const std::string two_times = changed(times, "{\n \"OPT-small\"", "{\n \"a\": {}, \"OPT-small\"");
  const std::string two_sizes = changed(sizes, "{\n \"OPT-small\"", "{\n \"a\": {}, \"OPT-small\"");
  CHECK(import_sailor_files(two_times, sizes, options).profile.name == "OPT-small");
  CHECK_THAT(refusal_of([&] { import_sailor_files(two_times, two_sizes, options); }),
             Catch::Contains("--of-model: expected one of the models, OPT-small, a"));
  options.model = "OPT-small";
  CHECK(import_sailor_files(two_times, two_sizes, options).profile.layers.size() == 4);
  // What stands for no measurement is left out, and sizes may be numbers of 4 bytes.
  const ImportedProfile failed =
      import_sailor_files(changed(times, "0.0022", "1073741824"), sizes, options);
  CHECK(failed.profile.layers[0].measurements.size() == 1);
  CHECK(warns(failed.warnings, "1 measurement on GH-96 left out"));
  const std::string floats =
      changed(changed(sizes, "\"params_bytes\"", "\"other\""), "\"act_mem_bytes\"", "\"another\"");
  const ImportedProfile of_floats = import_sailor_files(times, floats, options);
  CHECK(of_floats.profile.layers[1].parameters == Bytes{12'000});
  CHECK(warns(of_floats.warnings, "each number counts as 4 bytes"));
}

TEST_CASE("what is wrong with the files of Sailor's planner is named with its place") {
  const std::string times = sample("small.sailor-times.json");
  const std::string sizes = sample("small.sailor-sizes.json");
  const ForeignProfileOptions options = options_for(ModelFormat::Sailor);
  const auto refusal_of_files = [&](const std::string& of_times, const std::string& of_sizes) {
    return refusal_of([&] { import_sailor_files(of_times, of_sizes, options); });
  };
  const std::pair<std::pair<const char*, const char*>, const char*> of_times[] = {
      {{"\"0\": [", "\"9\": ["}, "expected the layers 0, 1 and so on, got 1 in place of 0"},
      {{"\"0\": [", "\"zero\": ["}, "expected the number of a layer as key, from 0 on"},
      {{"\"1\": [", "\"0\": ["}, "expected each layer once, got 0 again"},
      {{"\"4\": {", "\"0\": {"}, "expected the number of a micro-batch size as key, from 1 on"},
      {{"0.0008,", "[],"}, "expected a number of seconds"},
      {{"0.0008,", "-1,"}, "expected a number of seconds, 0 or more"},
      {{"\"GH-96\"", "\"\""}, "expected"},
      {{"\"V100-16\"", "\"GH-96\""}, "/OPT-small/GH-96: expected"},
      {{"\"OPT-small\"", "\"OPT-large\""},
       "expected a model of profiles_tmp.json, got none of them"}};
  for (const auto& [change, expected] : of_times) {
    CAPTURE(change.first, change.second);
    CHECK_THAT(refusal_of_files(changed(times, change.first, change.second), sizes),
               Catch::Contains(expected));
  }
  const std::pair<std::pair<const char*, const char*>, const char*> of_sizes[] = {
      {{"\"0\": {", "\"zero\": {"}, "expected the number of a layer as key, from 0 on"},
      {{"\"params_bytes\": 4000", "\"params_bytes\": -4000"},
       "/OPT-small/1/0/params_bytes: expected a number of bytes"},
      {{"\"act_mem_bytes\": 9000", "\"act_mem_bytes\": 999999999999999"},
       "expected at most 10^15 bytes of layer 1 at micro-batch 4"},
      {{"  \"1\": {", "  \"3\": {"}, "expected sizes for tensor-parallel degree 1, got 2, 3"}};
  for (const auto& [change, expected] : of_sizes) {
    CAPTURE(change.first, change.second);
    CHECK_THAT(refusal_of_files(times, changed(sizes, change.first, change.second)),
               Catch::Contains(expected));
  }
  CHECK_THAT(refusal_of([&] {
               import_model({{times, "profiles_tmp.json", ModelFormat::Sailor}}, options);
             }),
             Catch::Contains("expected the sizes of layers in addition to their times"));
  CHECK_THAT(refusal_of_files(times, times),
             Catch::Contains("one file of times and one of sizes, got two of the same kind"));
  CHECK_THAT(refusal_of_files("[]", sizes), Catch::Contains("expected an object"));
}

TEST_CASE("Metis' memory that grows with the batch is the stash, its time both directions'") {
  const ImportedProfile imported = import_pair_of_metis(sample("DeviceType.card_tp1_bs1.json"));
  const ModelProfile& profile = imported.profile;
  REQUIRE(profile.layers.size() == 3);
  CHECK(profile.device == "card");
  CHECK(profile.layers[1].inputs == std::vector<LayerIndex>{LayerIndex{0}});
  REQUIRE(profile.layers[1].measurements.size() == 2);
  const Measurement& four = profile.layers[1].measurements[1];
  CHECK(four.batch_size == 4);
  CHECK(four.forward == Duration{10'000'000});  // 30 ms as 1 : 2
  CHECK(four.backward == Duration{20'000'000});
  CHECK(four.stash == Bytes{4 * (8 << 20)});  // 48 MB at 1 and 72 MB at 4
  CHECK(four.output == Bytes{400});
  // 5 ms for 5 MB of parameters.
  CHECK(profile.optimizer.step_ns_per_parameter_byte == kOne);
}

TEST_CASE("with one batch, Metis' stash is what is left beside weights, gradients and state") {
  const std::string text = sample("DeviceType.card_tp1_bs1.json");
  const auto import_one = [&](const std::string& what, const ForeignProfileOptions& options) {
    return import_model({{what, "DeviceType.card_tp1_bs1.json", ModelFormat::Metis}}, options);
  };
  ForeignProfileOptions options = options_for(ModelFormat::Metis);
  // 48 MB less 4 times 3,000,000 bytes.
  CHECK(import_one(text, options).profile.layers[1].measurements.front().stash ==
        Bytes{(48 << 20) - 12'000'000});
  // A published file has memory for one layer less than there are: it is of no use.
  const std::string short_list = changed(text, "[11, 48, 13]", "[11, 48]");
  CHECK_THAT(
      refusal_of([&] { import_one(short_list, options); }),
      Catch::Contains("--stash: what a layer keeps, as a multiple of its output, is required"));
  options.stash = Factor{1'500'000'000};
  CHECK(import_one(short_list, options).profile.layers[1].measurements.front().stash == Bytes{150});
}

TEST_CASE("what is wrong with a Metis folder is named with file and place") {
  check_refusals(
      sample("DeviceType.card_tp1_bs1.json"),
      {{"", "", "expected a JSON document"},
       {"", "[1]", "expected an object, got an array"},
       {"\"model\": {", "\"modell\": {", "/model: expected an object, but the key is missing"},
       {"\"model_name\": \"small\"", "\"model_name\": []", "/model/model_name: expected a name"},
       {"\"parameters\": {", "\"parameter\": {", "/model/parameters: expected an object"},
       {"[1000000, 3000000, 1000000]", "[1000000, 3000000]",
        "/model/parameters/parameters_per_layer_bytes: expected 3 figures, one for each layer that "
        "has a time, got 2"},
       {"[1000000, 3000000, 1000000]", "[1000000, 3000000, 2000000]",
        "parameters_per_layer_bytes: expected the layers of a/DeviceType.card_tp1_bs1.json"},
       {"[1000000, 3000000, 1000000]", "3000000", "expected an array with a figure for each layer"},
       {"\"execution_time\"", "\"time\"", "/execution_time: expected an object"},
       {"\"layer_compute_total_ms\"", "\"layers\"",
        "/execution_time/layer_compute_total_ms: expected an array"},
       {"[0.3, 7.5, 1.2]", "[0.3, -7.5, 1.2]",
        "/execution_time/layer_compute_total_ms/1: expected a number of milliseconds"},
       {"[0.3, 7.5, 1.2]", "[]", "/execution_time/layer_compute_total_ms: expected at least one"},
       {"\"optimizer_time_ms\": 5.0", "\"optimizer_time_ms\": \"5\"",
        "/execution_time/optimizer_time_ms: expected a number of milliseconds"},
       {"\"optimizer_time_ms\": 5.0", "\"optimizer_time_ms\": 100000000",
        "expected at most 1000 ns for each byte of parameters"},
       {"\"execution_memory\"", "\"memory\"", "/execution_memory: expected an object"},
       {"[11, 48, 13]", "[11, null, 13]",
        "/execution_memory/layer_memory_total_mb/1: expected a number of mebibytes"}},
      [](const std::string& text) { import_pair_of_metis(text); });
}

TEST_CASE("the names of Metis' files say what they are of") {
  const std::string text = sample("DeviceType.card_tp1_bs1.json");
  ForeignProfileOptions options = options_for(ModelFormat::Metis);
  const auto import_names = [&](const std::vector<std::string>& names) {
    std::vector<ForeignModelFile> files;
    for (const std::string& name : names) files.push_back({text, name, ModelFormat::Metis});
    return import_model(files, options);
  };
  for (const char* name : {"small.json", "DeviceType.card_bs1.json", "DeviceType.card_tp1.json",
                           "DeviceType._tp1_bs1.json", "DeviceType.card_tp0_bs1.json",
                           "DeviceType.card_tp1_bsx.json", "DeviceType.card_tp1_bs1.json.txt"}) {
    CAPTURE(name);
    CHECK_THAT(refusal_of([&] { import_names({name}); }), Catch::Contains("expected a name like"));
  }
  CHECK_THAT(refusal_of([&] {
               import_names({"DeviceType.card_tp1_bs1.json", "b/DeviceType.card_tp1_bs1.json"});
             }),
             Catch::Contains("expected another batch size than"));
  CHECK_THAT(refusal_of([&] {
               import_names({"DeviceType.card_tp1_bs1.json", "DeviceType.H100_tp1_bs1.json"});
             }),
             Catch::Contains("--profile-device: expected one of the kinds"));
  options.tensor_parallel = 8;
  CHECK_THAT(refusal_of([&] { import_names({"DeviceType.card_tp1_bs1.json"}); }),
             Catch::Contains("expected a file of tensor-parallel degree 8, got those of 1"));
}

TEST_CASE("Galvatron's layers stand between an embedding and a head with half of the rest each") {
  const ImportedProfile imported =
      import_galvatron_files(sample("small.computation.json"), sample("small.memory.json"));
  const ModelProfile& profile = imported.profile;
  REQUIRE(names_of(profile) == std::vector<std::string>{"embedding", "layer.0", "layer.1", "head"});
  const Layer& layer = profile.layers[1];
  CHECK(layer.parameters == Bytes{49 << 19});  // 24.5 MB
  REQUIRE(layer.measurements.size() == 2);
  CHECK(layer.measurements[1].batch_size == 4);
  CHECK(layer.measurements[1].forward == Duration{6'000'000});  // 1.5 ms a sample
  CHECK(layer.measurements[1].backward == Duration{12'000'000});
  CHECK(layer.measurements[1].stash == Bytes{161 << 20});  // 4 * 40.25 MB
  CHECK(layer.measurements[1].output == Bytes{400});
  const Layer& embedding = profile.layers[0];
  CHECK(embedding.parameters == Bytes{32 << 20});  // a quarter of 128 MB
  CHECK(embedding.measurements[0].forward == Duration{2'750'000});
  CHECK(embedding.measurements[0].stash == Bytes{6 << 20});
  CHECK(profile.layers[3].measurements[1].forward == Duration{7'000'000});
  CHECK(warns(imported.warnings, "half the embedding's and half the head's"));
}

TEST_CASE("Galvatron's older files have no sequence lengths, newer ones may have only _sp") {
  const std::string computation = R"({"layertype_0_bsz8": 3.0})";
  const std::string memory = R"({
    "layertype_0_sp": {"parameter_size": 2, "tp_activation_per_bsz_dict": {"1": 3}},
    "other_memory_pp_on_first_sp": {"model_states": {"1": 4}, "activation": {"1": 1}},
    "other_memory_pp_on_last_sp": {"model_states": {"1": 8}, "activation": {"1": 1}},
    "model_config": {"n_layers": 24}})";
  ForeignProfileOptions options = options_for(ModelFormat::Galvatron);
  options.layers.reset();
  const ImportedProfile imported = import_model(
      {{memory, "m.json", ModelFormat::Galvatron}, {computation, "c.json", ModelFormat::Galvatron}},
      options);
  CHECK(imported.profile.layers.size() == 26);
  CHECK(imported.profile.layers[25].parameters == Bytes{2 << 20});
  CHECK(imported.profile.layers[0].measurements.front().forward == Duration{0});
  CHECK(warns(imported.warnings, "embedding and head count as no time"));
  CHECK(warns(imported.warnings, "with sequence parallelism"));
}

TEST_CASE("Galvatron's suspicious sizes are doubted by the names that its file has") {
  const ImportedProfile imported = import_galvatron_files(
      sample("small.computation.json"),
      changed(sample("small.memory.json"), "\"parameter_size\": 24.5", "\"parameter_size\": 2e6"));
  CHECK(warns(imported.warnings,
              "layer layer.0 (layertype_0) states 2097 GB of parameters; is its unit right?"));
}

TEST_CASE("what is wrong with Galvatron's computation file is named with its place") {
  check_refusals(
      sample("small.computation.json"),
      {{"", "[]", "expected an object, got an empty array"},
       {"", "{}", "expected times of layers, as \"layertype_0_bsz8_seq4096\", got none"},
       {"", "{", "line 1"},
       {"\"layertype_0_bsz1_seq512\": 2.0", "\"layertype_0_bsz1_seq512\": -2.0",
        "/layertype_0_bsz1_seq512: expected a number of milliseconds"},
       {"\"layertype_0_bsz1_seq512\": 2.0", "\"layertype_0_bsz1_seq512\": \"2\"",
        "/layertype_0_bsz1_seq512: expected a number of milliseconds"},
       {"\"layertype_0_bsz1_seq512\": 2.0", "\"layertype_0_bsz1_seq512\": null",
        "expected a number of milliseconds"},
       {"\"layertype_0_bsz1_seq512\": 2.0", "\"layertype_0_bsz1_seq512\": 1e30",
        "expected a number of milliseconds"},
       {"layertype_0_bsz1_seq512", "layertype_0_bsz1_seq1024",
        "expected times of one sequence length, got those of 1024, 512"},
       {"layertype_0_bsz1_seq512", "layertype_0_bsz2_seq512",
        "expected the same batch sizes for every kind of layer"},
       {"layertype_0_bsz1_seq512", "layertype_2_bsz1_seq512", "expected times of layertype_1"},
       {"layertype_0_bsz4_seq512", "layertype_0_bsz4_seq512_mlp",
        "expected the same batch sizes for every kind of layer"},
       {"layertype_0_bsz4_seq512", "layertype_0_bsz0_seq512",
        "expected the same batch sizes for every kind of layer"},
       {"layertype_0_bsz4_seq512", "layertype_0_bsz1_seq512",
        "expected each batch size once, got it again"},
       {"\"layertype_0_bsz4_seq512\": 1.5", "\"layertype_0_bsz4_seq512\": 999999999",
        "expected at most 10^15 ns for a whole batch"},
       {"\"layertype_other_bsz4_seq512\": 3.5", "\"layertype_other_bsz4_seq512\": []",
        "/layertype_other_bsz4_seq512: expected a number of milliseconds"},
       {"\"layernum[2]_bsz1_seq512\": 9.5,", "\"layernum[2]_bsz1_seq512\": ,", "line 2"}},
      [](const std::string& text) { import_galvatron_files(text, sample("small.memory.json")); });
}

TEST_CASE("what is wrong with Galvatron's memory file is named with its place") {
  check_refusals(
      sample("small.memory.json"),
      {{"", "{}", "expected two files, of computation and of memory, got two of one kind"},
       {"\"512\": {", "\"1024\": {",
        "/layertype_0: expected figures of sequence length 512, which the times have, got none"},
       {"\"layertype_0\"", "\"layertype_1\"", "/layertype_0_sp: expected an object"},
       {"\"parameter_size\": 24.5", "\"parameter_size\": -1",
        "/layertype_0/512/parameter_size: expected a number of mebibytes"},
       {"\"parameter_size\": 24.5,", "",
        "/layertype_0/512/parameter_size: expected a number of mebibytes"},
       {"\"tp_activation_per_bsz_dict\": {", "\"activation\": {",
        "tp_activation_per_bsz_dict: expected an object"},
       {"{\"1\": 40.25", "{\"3\": 40.25",
        "/layertype_0/512/tp_activation_per_bsz_dict/1: expected a number of mebibytes"},
       {"{\"1\": 40.25", "{\"1\": {}", "tp_activation_per_bsz_dict/1: expected a number"},
       {"\"other_memory_pp_on_first\": {", "\"first\": {",
        "/other_memory_pp_on_first: expected an object"},
       {"\"other_memory_pp_on_last\": {", "\"last\": {",
        "/other_memory_pp_on_last: expected an object"},
       {"\"model_states\": {\"1\": 128.0", "\"model_states\": {\"4\": 128.0",
        "/other_memory_pp_on_first/512/model_states/1: expected a number of mebibytes"},
       {"\"model_states\": {\"1\": 128.0, \"2\": 65.0}", "\"model_states\": 128",
        "/other_memory_pp_on_first/512/model_states: expected an object, got 128"},
       {"\"activation\": {\"1\": 6.0, \"2\": 3.0}", "\"activation\": [6]",
        "/other_memory_pp_on_first/512/activation: expected an object"},
       {"\"activation\": {\"1\": 24.0", "\"activation\": {\"1\": true",
        "/other_memory_pp_on_last/512/activation/1: expected a number of mebibytes"},
       {"{\"1\": 40.25", "{\"1\": 900000000", "expected at most 10^15 ns and bytes of layer.0"}},
      [](const std::string& text) {
        import_galvatron_files(sample("small.computation.json"), text);
      });
}

TEST_CASE(
    "every option that is missing is asked for at once, every one that does nothing refused") {
  const auto refusal = [](ModelFormat format, const std::string& file,
                          const ForeignProfileOptions& options) {
    return refusal_of([&] { import_model({{sample(file), file, format}}, options); });
  };
  const std::string metis =
      refusal(ModelFormat::Metis, "DeviceType.card_tp1_bs1.json", ForeignProfileOptions{});
  for (const char* option :
       {"--optimizer", "--global-batch", "--backward-ratio", "--output-size"}) {
    CAPTURE(option);
    CHECK_THAT(metis, Catch::Contains(std::string(option) + ": expected"));
  }
  ForeignProfileOptions piper = options_for(ModelFormat::Piper);
  piper.profile_batch = 4;
  piper.stash = kOne;
  piper.output = Bytes{4};
  piper.layers = 4;
  const std::string useless = refusal(ModelFormat::Piper, "small.piper.json", piper);
  for (const char* option : {"--profile-batch", "--stash", "--output-size", "--layers"}) {
    CAPTURE(option);
    CHECK_THAT(useless, Catch::Contains(std::string(option) + ": expected none for a Piper graph"));
  }
  ForeignProfileOptions ratio = options_for(ModelFormat::Piper);
  ratio.backward_ratio = Factor{2'000'000'000'000};
  CHECK_THAT(
      refusal(ModelFormat::Piper, "small.piper.json", ratio),
      Catch::Contains("--backward-ratio: expected a factor above 0 and up to 1000, got 2000"));
}

TEST_CASE("files of several kinds, or too many of one, are refused") {
  const ForeignModelFile piper{sample("small.piper.json"), "a.json", ModelFormat::Piper};
  const ForeignModelFile sailor{sample("small.sailor.json"), "b.json", ModelFormat::Sailor};
  CHECK_THAT(refusal_of([&] {
               import_model({piper, sailor}, options_for(ModelFormat::Piper));
             }),
             Catch::Contains("b.json: expected files of one kind, piper as a.json is, got sailor"));
  CHECK_THAT(refusal_of([&] {
               import_model({piper, piper}, options_for(ModelFormat::Piper));
             }),
             Catch::Contains("expected one file of piper, got 2"));
}

TEST_CASE("a unit of times that a file does not tell may be another") {
  ForeignProfileOptions options = options_for(ModelFormat::Piper);
  const auto import_piper = [&] {
    return import_model({{sample("small.piper.json"), "f", ModelFormat::Piper}}, options);
  };
  const Duration in_seconds = import_piper().profile.layers[1].measurements[0].forward;
  options.time_unit = time_unit("ms");
  const ImportedProfile in_milliseconds = import_piper();
  CHECK(in_milliseconds.profile.layers[1].measurements[0].forward.ns * 1000 == in_seconds.ns);
  // 9 as seconds is above one.
  const std::string times_1000 =
      changed(sample("small.piper.json"), "0.0090000000000000011", "9.0000000000000011");
  options.time_unit.reset();
  options.backward_ratio = kOne;
  const auto doubted = import_model({{times_1000, "f", ModelFormat::Piper}}, options);
  CHECK(warns(doubted.warnings, "layers above a second a sample: Block.3 takes 9 s"));
  // Keys that tell it allow no other.
  for (const ModelFormat format : {ModelFormat::Sailor, ModelFormat::Metis}) {
    ForeignProfileOptions told = options_for(format);
    told.time_unit = time_unit("us");
    const std::string name = format == ModelFormat::Metis ? "DeviceType.card_tp1_bs1.json" : "f";
    const std::string text =
        sample(format == ModelFormat::Metis ? "DeviceType.card_tp1_bs1.json" : "small.sailor.json");
    CHECK_THAT(refusal_of([&] {
                 import_model({{text, name, format}}, told);
               }),
               Catch::Contains("--time-unit: expected none for "));
  }
  ForeignProfileOptions galvatron = options_for(ModelFormat::Galvatron);
  const auto import_pair = [&] {
    return import_model(
        {{sample("small.computation.json"), "small.computation.json", ModelFormat::Galvatron},
         {sample("small.memory.json"), "small.memory.json", ModelFormat::Galvatron}},
        galvatron);
  };
  const Duration usual = import_pair().profile.layers[0].measurements[0].forward;
  galvatron.time_unit = time_unit("ms");
  CHECK(import_pair().profile.layers[0].measurements[0].forward == usual);
  galvatron.time_unit = time_unit("s");
  CHECK(import_pair().profile.layers[0].measurements[0].forward.ns == usual.ns * 1000);
}

TEST_CASE("a language model without an output layer is named, and in the plan") {
  const ImportedProfile headless = import(sample("small.piper.json"), ModelFormat::Piper);
  CHECK(warns(headless.warnings,
              "an embedding and transformer blocks, and behind them nothing like an output layer "
              "(Block.4 is the last one)"));
  REQUIRE(headless.profile.warnings.size() == 1);
  const ModelProfile again = io::read_profile(io::write_profile(headless.profile), "again");
  CHECK(again.warnings == headless.profile.warnings);
  // Blocks without an embedding are no language model.
  const std::string other =
      changed(sample("small.piper.json"), "\"parameterSize\": 4000.0", "\"parameterSize\": 40.0");
  CHECK(import(other, ModelFormat::Piper).profile.warnings.empty());
}

TEST_CASE("published files of others are imported") {
  if (const auto text = shared_file("piper/bert32a100.json")) {
    const ImportedProfile imported = import(*text, ModelFormat::Piper);
    CHECK(imported.profile.layers.size() == 37);
    CHECK(imported.profile.global_batch_size == 1920);
    CHECK(warns(imported.warnings, "the first is node 4"));
    const std::vector<Parallelism> forms = parallelisms_of(import_every_degree(*text).profile);
    CHECK(forms.size() == 8);  // 1, 2, 4 and 8 GPUs, with and without recomputation
    // 32 blocks, numbered 3 and 5 to 35.
    CHECK(inexpressible_cuts(RuntimeLimits{.name = "any", .any_graph = true, .counts_blocks = true},
                             imported.profile)
              .size() == 36 - 33);
  }
  if (const auto text = shared_file("truth/sailor_profile_opt350.json")) {
    const ImportedProfile imported = import(*text, ModelFormat::Sailor);
    CHECK(imported.profile.layers.size() == 26);
    CHECK(imported.profile.layers[1].measurements.size() == 6);
    CHECK(imported.profile.layers[1].parameters == Bytes{50'384'896});
  }
}

}  // namespace
}  // namespace dapple::interop
