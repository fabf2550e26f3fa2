#include <catch2/catch.hpp>

#include "documents_under_test.h"

namespace dapple::test {
namespace {

using Faults = std::vector<std::string>;

TEST_CASE("a repeated entry becomes numbered layers, each fed by the one before") {
  const ModelProfile profile = io::read_profile(kProfileText, "f.json");
  REQUIRE(profile.layers.size() == 3);
  CHECK(profile.layers[0].name == "a");
  CHECK(profile.layers[1].name == "b.0");
  CHECK(profile.layers[2].name == "b.1");
  CHECK(profile.layers[0].inputs.empty());
  CHECK(profile.layers[1].inputs == std::vector{LayerIndex{0}});
  CHECK(profile.layers[2].inputs == std::vector{LayerIndex{1}});
  CHECK(profile.layers[2].parameters == Bytes{200});
  const Measurement& measurement = profile.layers[2].measurements.front();
  CHECK(measurement.forward == Duration{30});
  CHECK(measurement.backward == Duration{40});
  CHECK(measurement.output == Bytes{8});
  CHECK(measurement.stash == Bytes{8});
  CHECK(profile.batch_scaling == BatchScaling::Proportional);
  CHECK(profile.optimizer.gradient_bytes_per_parameter_byte == kOne);
  CHECK_FALSE(profile.optimizer.step_ns_per_parameter_byte);
  CHECK_FALSE(profile.global_batch_size);
}

TEST_CASE("a profile in canonical form is written byte by byte as it was") {
  CHECK(io::write_profile(io::read_profile(kProfileText, "f.json")) == kProfileText);
}

TEST_CASE("what a sample is may be said, and is kept") {
  const std::string text =
      replaced(kProfileText, R"(  "device":)",
               "  \"sample\": {\"tokens\": 512, \"gflop\": 90, \"peak_gflop_per_second\": 1000},\n"
               "  \"device\":");
  const ModelProfile profile = io::read_profile(text, "f.json");
  REQUIRE(profile.sample.has_value());
  CHECK(*profile.sample == SampleWork{.tokens = 512, .gflop = 90, .peak_gflop_per_second = 1000});
  CHECK(io::write_profile(profile) == text);
  CHECK(profile_faults(replaced(text, "\"tokens\": 512", "\"tokens\": 0")) ==
        Faults{"/sample/tokens: expected an integer from 1 to 1000000000000000, got 0"});
}

TEST_CASE("what ranks divide in blocks may be said, and is kept") {
  const std::string text =
      replaced(kProfileText, R"(  "device":)",
               "  \"blocks\": [\n"
               "    {\"attention_heads\": 32, \"key_value_heads\": 8},\n"
               "    {\"attention_heads\": 32, \"key_value_heads\": 8, \"experts\": 64}\n"
               "  ],\n"
               "  \"device\":");
  const ModelProfile profile = io::read_profile(text, "f.json");
  REQUIRE(profile.blocks.size() == 2);
  CHECK(profile.blocks[0] == DividedBlocks{.attention_heads = 32, .key_value_heads = 8});
  CHECK(profile.blocks[1].experts == 64);
  CHECK(io::write_profile(profile) == text);
  CHECK(profile_faults(replaced(text, "\"experts\": 64", "\"experts\": 0")) ==
        Faults{"/blocks/1/experts: expected an integer from 1 to 1000000000000000, got 0"});
}

TEST_CASE("layers may have times on other kinds of device, all on the same") {
  const std::string on_e = R"(
      "other_times": [
        {
          "device": "E",
          "fixed_overhead_ns": 2,
          "measurements": [{"batch_size": 2, "forward_ns": 5, "backward_ns": 7}]
        },
        {
          "device": "F",
          "measurements": [
            {"batch_size": 1, "forward_ns": 5, "backward_ns": 7, "input_gradient_ns": 3, "weight_gradient_ns": 4},
            {"batch_size": 4, "forward_ns": 9, "backward_ns": 12}
          ]
        }
      ])";
  std::string text = kProfileText;
  for (const char* sizes :
       {R"("output_bytes": 8, "stash_bytes": 4}])", R"("output_bytes": 8, "stash_bytes": 8}])"}) {
    text = replaced(text, sizes, std::string(sizes) + "," + on_e);
  }
  const ModelProfile profile = io::read_profile(text, "f.json");
  CHECK(profile.other_devices == std::vector<std::string>{"E", "F"});
  REQUIRE(profile.layers.size() == 3);
  for (const Layer& layer : profile.layers) {
    REQUIRE(layer.other_times.size() == 2);
    CHECK(measurements_on(layer, 0).size() == 1);
    CHECK(measurements_on(layer, 2).size() == 2);
    CHECK(fixed_overhead_on(layer, 1) == Duration{2});
    const TimeSource on_first(1, kOne);
    CHECK(forward_time(layer, 4, BatchScaling::Proportional, on_first) == Duration{2 + 3 * 2});
    const TimeSource twice_second(2, Factor{2'000'000'000});
    CHECK(backward_time(layer, 4, std::nullopt, twice_second) == Duration{24});
  }
  // One of the measurements there has no parts.
  CHECK(input_gradient_time(profile, {1}, 1, TimeSource(2, kOne)) == Duration{4});
  CHECK(io::write_profile(profile) == text);
  const auto faults_of = [&](const char* before, const char* after) {
    return profile_faults(replaced(text, before, after));
  };
  CHECK(faults_of(R"("device": "D")", R"("device": "E")") ==
        Faults{"/device: expected a kind of device that is not among the other_times of layers, "
               "got \"E\""});
  CHECK(faults_of(R"("device": "D")", R"("device": "")") ==
        Faults{"/device: expected the kind of device of the layers' own times, as they have times "
               "on others, got \"\""});
  CHECK(faults_of(R"("device": "F")", R"("device": "E")") ==
        Faults{"/layers/0/other_times/1/device: expected a kind of device that was not named "
               "before, got \"E\"",
               "/layers/1: expected times on \"E\", as layer \"a\" has, got times on \"E\" and "
               "\"F\""});
  CHECK(faults_of(R"("fixed_overhead_ns": 2)", R"("fixed_overhead_ns": 8)") ==
        Faults{"/layers/0/other_times/0/fixed_overhead_ns: expected at most the layer's shorter "
               "time, 5 ns, got 8"});
  CHECK(
      faults_of(R"("forward_ns": 9, "backward_ns": 12)",
                R"("forward_ns": 9, "backward_ns": 12, "stash_bytes": 4)") ==
      Faults{"/layers/0/other_times/1/measurements/1/stash_bytes: expected one of the keys "
             "\"batch_size\", \"forward_ns\", \"backward_ns\", \"input_gradient_ns\", "
             "\"weight_gradient_ns\", \"forward_core_ns\" or \"backward_core_ns\", got an unknown "
             "key"});
  CHECK(faults_of("  \"batch_scaling\": \"proportional\",\n", "") ==
        Faults{"/batch_scaling: expected \"proportional\" or \"floor\", as layer \"a\" has a "
               "single measurement, but the key is missing"});
}

TEST_CASE("the hash is the SHA-256 of the canonical form") {
  // printf of kProfileText through sha256sum.
  CHECK(io::hash_of(io::read_profile(kProfileText, "f.json")) ==
        "67bcc4b4e91c1a1161e3fb7ef66b837feebf3416e18e100ff5b173134aad269f");
}

TEST_CASE("order of keys, blanks and spelling of numbers change nothing") {
  std::string text = R"({"layers":[{"measurements":[{"stash_bytes":4,"output_bytes":8,
    "backward_ns":20,"forward_ns":10,"batch_size":1}],"parameter_bytes":100,"name":"a"},
    {"repeat":2,"name":"b","measurements":[{"batch_size":1,"forward_ns":30,"backward_ns":40,
    "output_bytes":8,"stash_bytes":8}],"parameter_bytes":200}],"optimizer":
    {"gradient_bytes_per_parameter_byte":10e-1,"state_bytes_per_parameter_byte":0.0,"name":"\u0073gd"},
    "batch_scaling":"proportional","device":"D","source":"made up","name":"m",
    "schema":"dapple-profile/1"})";
  CHECK(io::write_profile(io::read_profile(text, "f.json")) == kProfileText);
}

TEST_CASE("layers that stand before their inputs are put behind them") {
  std::string text =
      replaced(kProfileText, R"("name": "a",)", R"("name": "a", "inputs": ["b.1"],)");
  text = replaced(text, R"("name": "b",)", R"("name": "b", "inputs": [],)");
  const ModelProfile profile = io::read_profile(text, "f.json");
  REQUIRE(profile.layers.size() == 3);
  CHECK(profile.layers[0].name == "b.0");
  CHECK(profile.layers[0].inputs.empty());
  CHECK(profile.layers[1].name == "b.1");
  CHECK(profile.layers[1].inputs == std::vector{LayerIndex{0}});
  CHECK(profile.layers[2].name == "a");
  CHECK(profile.layers[2].inputs == std::vector{LayerIndex{1}});
}

TEST_CASE("writing a profile and reading it gives the same profile and the same bytes") {
  Dice dice(20240517);
  for (int i = 0; i < 500; ++i) {
    const ModelProfile profile = random_profile(dice);
    const std::string text = io::write_profile(profile);
    INFO("profile " << i << "\n" << text);
    const ModelProfile again = io::read_profile(text, "f.json");
    REQUIRE(same(profile, again));
    REQUIRE(io::write_profile(again) == text);
  }
}

TEST_CASE("a run of copies is written as one entry, and one that differs ends it") {
  ModelProfile profile = io::read_profile(kProfileText, "f.json");
  Layer layer = profile.layers[2];
  for (int copy = 2; copy < 5; ++copy) {
    layer.name = "b." + std::to_string(copy);
    layer.inputs = {index_at<LayerIndex>(profile.layers.size() - 1)};
    profile.layers.push_back(layer);
  }
  profile.layers[4].parameters = Bytes{7};  // b.3
  const std::string text = io::write_profile(profile);
  CHECK(text.find(R"("repeat": 3)") != std::string::npos);
  CHECK(text.find(R"("name": "b.3")") != std::string::npos);
  CHECK(text.find(R"("name": "b.4")") != std::string::npos);
  CHECK(same(io::read_profile(text, "f.json"), profile));
}

TEST_CASE("decimals of an optimizer are exact to nine places, and more are refused") {
  const auto step = [](const std::string& number) {
    return replaced(kProfileText, R"(_byte": 0})",
                    R"(_byte": 0, "step_ns_per_parameter_byte": )" + number + "}");
  };
  const auto read = [&step](const std::string& number) {
    return io::read_profile(step(number), "f.json")
        .optimizer.step_ns_per_parameter_byte->billionths;
  };
  CHECK(read("0.004") == 4'000'000);
  CHECK(read("0.123456789") == 123'456'789);
  CHECK(read("1e-9") == 1);
  CHECK(read("0.1") == 100'000'000);
  CHECK(read("1000") == 1'000'000'000'000);
  CHECK(read("2.50000000000000000000000") == 2'500'000'000);
  for (const char* number : {"0.1234567891", "1e-10", "-1", "1000.000000001", "1e300", "1e-300"}) {
    CHECK(profile_faults(step(number)) ==
          Faults{std::string("/optimizer/step_ns_per_parameter_byte: expected a number from 0 to "
                             "1000 with at most nine decimal places, got ") +
                 number});
  }
}

TEST_CASE("a profile may state the number format that it is computed in") {
  CHECK(io::read_profile(kProfileText, "f.json").precision.empty());
  const std::string text = replaced(kProfileText, R"("device": "D")", R"("precision": "bf16",
  "device": "D")");
  const ModelProfile profile = io::read_profile(text, "f.json");
  CHECK(profile.precision == "bf16");
  CHECK(io::write_profile(profile) == text);
  CHECK(profile_faults(replaced(text, R"("bf16")", R"("int8")")) ==
        Faults{R"(/precision: expected "fp32", "tf32", "bf16" or "fp16", got "int8")"});
}

TEST_CASE("a profile may state how far off the calibration of its times is") {
  CHECK_FALSE(io::read_profile(kProfileText, "f.json").calibration_error);
  const std::string text =
      replaced(kProfileText, R"("device": "D")", R"("calibration_error": 0.051939653,
  "device": "D")");
  const ModelProfile profile = io::read_profile(text, "f.json");
  CHECK(profile.calibration_error == Factor{51'939'653});
  CHECK(io::write_profile(profile) == text);
  for (const char* number : {"-0.1", "1000.000000001"}) {
    CHECK(
        profile_faults(replaced(text, "0.051939653", number)) ==
        Faults{std::string("/calibration_error: expected a number from 0 to 1000 with at most nine "
                           "decimal places, got ") +
               number});
  }
}

TEST_CASE("an operation is kept as JSON text in one form") {
  const std::string text = replaced(
      kProfileText, R"("name": "a",)",
      R"("name": "a", "op": {"kind":"block",  "hidden": 1024, "causal":false, "p": 0.50},)");
  CHECK(io::read_profile(text, "f.json").layers[0].operation ==
        R"({"causal": false, "hidden": 1024, "kind": "block", "p": 0.5})");
}

TEST_CASE("every fault of a profile is told with its place, in the order of the document") {
  std::string text = replaced(kProfileText, R"("forward_ns": 10)", R"("forward_ns": -3)");
  text = replaced(text, R"("parameter_bytes": 200,)", "");
  text = replaced(text, R"("device": "D")", R"("device": 7, "color": "red")");
  text = replaced(text, R"("stash_bytes": 8)", R"("stash_bytes": 8.5)");
  CHECK(profile_faults(text) ==
        Faults{"/device: expected a name of 1 to 200 characters, none of them a control character, "
               "got 7",
               "/color: expected one of the keys \"schema\", \"name\", \"source\", \"notes\", "
               "\"warnings\", "
               "\"global_batch_size\", \"sample\", \"blocks\", \"precision\", "
               "\"calibration_error\", \"device\", "
               "\"tensor_parallel\", "
               "\"batch_scaling\", "
               "\"optimizer\" or \"layers\", got an unknown key",
               "/layers/0/measurements/0/forward_ns: expected an integer from 0 to "
               "1000000000000000, got -3",
               "/layers/1/parameter_bytes: expected an integer from 0 to 1000000000000000, but the "
               "key is missing",
               "/layers/1/measurements/0/stash_bytes: expected an integer from 0 to "
               "1000000000000000, got 8.5"});
}

struct BadProfile {
  const char* from;
  const char* to;
  const char* fault;
};

TEST_CASE("a profile that is wrong is refused with what was expected") {
  const std::string number = " expected an integer from 0 to 1000000000000000, got ";
  const std::vector<BadProfile> cases{
      {"dapple-profile/1", "dapple-plan/1",
       "/schema: expected \"dapple-profile/1\", got \"dapple-plan/1\", another kind of document"},
      {"dapple-profile/1", "dapple-profile/2",
       "/schema: expected \"dapple-profile/1\", got \"dapple-profile/2\", a version that this "
       "program does not read"},
      {R"("dapple-profile/1")", "1", "/schema: expected \"dapple-profile/1\", got 1"},
      {R"("schema": "dapple-profile/1",)", "",
       "/schema: expected \"dapple-profile/1\", but the key is missing"},
      {R"("name": "m")", R"("name": "")",
       "/name: expected a name of 1 to 200 characters, none of them a control character, got \"\""},
      {R"("name": "m")", R"("name": "a\u001bb")",
       "/name: expected a name of 1 to 200 characters, none of them a control character, got "
       "\"a\\u001bb\""},
      {R"("name": "m",)", R"("name": "m", "name": "n",)",
       "/name: expected each key once, got this key again"},
      {R"("parameter_bytes": 100)", R"("parameter_bytes": 9223372036854775808)",
       "/layers/0/parameter_bytes: expected an integer from 0 to 1000000000000000, got "
       "9223372036854775808"},
      {R"("parameter_bytes": 100)", R"("parameter_bytes": 1e3)",
       "/layers/0/parameter_bytes: expected an integer from 0 to 1000000000000000, got 1e3"},
      {R"("parameter_bytes": 100)", R"("parameter_bytes": "100")",
       "/layers/0/parameter_bytes: expected an integer from 0 to 1000000000000000, got \"100\""},
      {R"("batch_size": 1,)", R"("batch_size": 0,)",
       "/layers/0/measurements/0/batch_size: expected an integer from 1 to 2147483647, got 0"},
      {R"("name": "b")", R"("name": "a.1", "inputs": ["nobody"])",
       "/layers/1/inputs/0: expected the name of a layer (after repeat), got \"nobody\""},
      {R"("name": "b")", R"("name": "b", "inputs": ["a", "a"])",
       "/layers/1/inputs/1: expected each input once, got \"a\""},
      {R"("name": "b")", R"("name": "b", "inputs": ["b.1"])",
       "/layers/1/inputs: expected inputs without a cycle, got \"b.0\" -> \"b.1\" -> \"b.0\""},
      {R"("name": "a",)", R"("name": "a", "inputs": ["a"],)",
       "/layers/0/inputs: expected inputs without a cycle, got \"a\" -> \"a\""},
      {R"("name": "a",)", R"("name": "b.1",)",
       "/layers/1/name: expected a layer name of its own, got \"b.1\", which /layers/0 has"},
      {R"("repeat": 2)", R"("repeat": 1000000000)",
       "/layers/1/repeat: expected an integer from 1 to 100000, got 1000000000"},
      {R"("repeat": 2)", R"("repeat": 100000)",
       "/layers: expected at most 100000 layers, got 100001"},
      {R"("repeat": 2)", R"("repeat": 0)",
       "/layers/1/repeat: expected an integer from 1 to 100000, got 0"},
      {R"("name": "a",)", R"("name": "a", "tied_to": "b.0",)",
       "/layers/0/tied_to: expected a layer that runs before it, got \"b.0\""},
      {R"("name": "a",)", R"("name": "a", "tied_to": "a",)",
       "/layers/0/tied_to: expected a layer that is not tied itself, got \"a\""},
      {R"("name": "b")", R"("name": "b", "tied_to": "c")",
       "/layers/1/tied_to: expected the name of a layer (after repeat), got \"c\""},
      {R"("name": "b")", R"("name": "b", "tied_to": 1)",
       "/layers/1/tied_to: expected a name of 1 to 200 characters, none of them a control "
       "character, got 1"},
      {R"("name": "a",)", R"("name": "a", "slices": [],)",
       "/layers/0/slices: \"slices\" is not supported by this version"},
      {R"("name": "m",)", R"("name": "m", "frozen_prefix": 3,)",
       "/frozen_prefix: \"frozen_prefix\" is not supported by this version"},
      {R"("batch_scaling": "proportional",)", "",
       "/batch_scaling: expected \"proportional\" or \"floor\", as layer \"a\" has a single "
       "measurement, but the key is missing"},
      {R"("proportional")", R"("linear")",
       "/batch_scaling: expected \"proportional\" or \"floor\", got \"linear\""},
      {R"("backward_ns": 20,)",
       R"("backward_ns": 20, "input_gradient_ns": 9, "weight_gradient_ns": 10,)",
       "/layers/0/measurements/0/input_gradient_ns: expected input_gradient_ns and "
       "weight_gradient_ns to add up to backward_ns 20, got 9 + 10"},
      {R"("backward_ns": 20,)", R"("backward_ns": 20, "input_gradient_ns": 20,)",
       "/layers/0/measurements/0/weight_gradient_ns: expected an integer from 0 to "
       "1000000000000000, but the key is missing"},
      {R"("name": "a",)", R"("name": "a", "fixed_overhead_ns": 11,)",
       "/layers/0/fixed_overhead_ns: expected at most the layer's shorter time, 10 ns, got 11"},
      {R"("name": "a",)", R"("name": "a", "op": "linear",)",
       "/layers/0/op: expected an object, got \"linear\""},
      {R"("name": "a",)", R"("name": "a", "op": {"x": [{"y": 1, "y": 2}]},)",
       "/layers/0/op/x/0/y: expected each key once, got this key again"},
      {R"({"name": "sgd", "state_bytes_per_parameter_byte": 0})", "[]",
       "/optimizer: expected an object, got an empty array"},
  };
  for (const BadProfile& bad : cases) {
    INFO(bad.to);
    CHECK(profile_faults(replaced(kProfileText, bad.from, bad.to)) == Faults{bad.fault});
  }
}

TEST_CASE("measurements stand by rising batch size, and a fixed part needs a single one") {
  const std::string second =
      R"({"batch_size": 1, "forward_ns": 30, "backward_ns": 40, "output_bytes": 8, "stash_bytes": 8}, )";
  const std::string text = replaced(kProfileText, R"({"batch_size": 1, "forward_ns": 30)",
                                    second + R"({"batch_size": 1, "forward_ns": 30)");
  CHECK(profile_faults(text) ==
        Faults{"/layers/1/measurements/1: expected a batch_size above that of the measurement "
               "before, 1, got 1"});
  const std::string fixed = replaced(replaced(text, R"({"batch_size": 1, "forward_ns": 30)",
                                              R"({"batch_size": 2, "forward_ns": 30)"),
                                     R"("repeat": 2)", R"("fixed_overhead_ns": 1)");
  CHECK(profile_faults(replaced(fixed, R"({"batch_size": 1, "forward_ns": 30)",
                                R"({"batch_size": 3, "forward_ns": 30)")) ==
        Faults{"/layers/1/fixed_overhead_ns: expected no fixed_overhead_ns with 2 measurements, "
               "got one"});
}

TEST_CASE("a profile without layers or without any measurement is told apart") {
  const std::size_t begin = kProfileText.find("\"layers\": [");
  const std::string head = kProfileText.substr(0, begin);
  CHECK(profile_faults(head + "\"layers\": []}") ==
        Faults{"/layers: expected at least one layer, got an empty array"});
  CHECK(
      profile_faults(head + R"("layers": [{"name": "a", "parameter_bytes": 1}]})") ==
      Faults{"/layers: expected measurements, got a specification: no layer has any, so the model "
             "has to be profiled before it can be planned"});
  CHECK(profile_faults(head +
                       R"("layers": [{"name": "a", "parameter_bytes": 1, "measurements": []}]})") ==
        Faults{"/layers/0/measurements: expected at least one measurement, got an empty array"});
  CHECK(profile_faults(head + R"("layers": [7]})") ==
        Faults{"/layers/0: expected an object, got 7"});
}

TEST_CASE("a cycle of many layers is told by its first names") {
  std::string layers;
  for (int i = 0; i < 20; ++i) {
    layers +=
        R"({"name": "l)" + std::to_string(i) + R"(", "inputs": ["l)" +
        std::to_string((i + 19) % 20) + R"("], "parameter_bytes": 1, "measurements": )" +
        R"([{"batch_size": 1, "forward_ns": 1, "backward_ns": 1, "output_bytes": 1, "stash_bytes": 1}]},)";
  }
  layers.pop_back();
  const std::string head = kProfileText.substr(0, kProfileText.find("\"layers\": ["));
  CHECK(
      profile_faults(head + "\"layers\": [" + layers + "]}") ==
      Faults{"/layers/0/inputs: expected inputs without a cycle, got \"l0\" -> \"l1\" -> \"l2\" -> "
             "\"l3\" -> \"l4\" -> \"l5\" -> \"l6\" -> \"l7\" -> ... -> \"l0\""});
}

TEST_CASE("of thousands of faults the first hundred are told, and how many more there are") {
  std::string layers;
  for (int i = 0; i < 3'000; ++i) layers += "0,";
  layers.pop_back();
  const std::string head = kProfileText.substr(0, kProfileText.find("\"layers\": ["));
  const Faults found = profile_faults(head + "\"layers\": [" + layers + "]}");
  REQUIRE(found.size() == 101);
  CHECK(found[99] == "/layers/99: expected an object, got 0");
  CHECK(found[100] == "and 2900 more faults, not shown");
}

TEST_CASE("a profile of a hundred thousand layers is read, and no longer one") {
  const std::string text = replaced(kProfileText, R"("repeat": 2)", R"("repeat": 99999)");
  CHECK(io::read_profile(text, "f.json").layers.size() == 100'000);
  CHECK(profile_faults(replaced(text, "99999", "100000")) ==
        Faults{"/layers: expected at most 100000 layers, got 100001"});
}

TEST_CASE("a document's kind is that of its schema, wherever the key stands") {
  CHECK(io::document_kind(kProfileText) == "profile");
  CHECK(io::document_kind(kTopologyText) == "topology");
  CHECK(io::document_kind(
            R"({"a": {"schema": "dapple-plan/1"}, "b": [1], "schema": "dapple-timeline/1"})") ==
        "timeline");
  CHECK(io::document_kind(R"({"schema": "dapple-profile/1", "then": broken)") == "profile");
  for (const char* text :
       {"", "[]", "[{\"schema\": \"dapple-plan/1\"}]", "{\"schema\": 3}",
        "{\"schema\": ", "node1 -- Input0 -- forward_compute_time=0", "{\"schema\": \"other/1\"}",
        "{\"schema\": [\"dapple-plan/1\"]}", "\xff\xfe"})
    CHECK(io::document_kind(text).empty());
}

}  // namespace
}  // namespace dapple::test
