// PipeDream's graph text: what the importer makes of it, and what it refuses, by line.
#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "dapple/core/error.h"
#include "dapple/core/random.h"
#include "dapple/interop/profiles/pipedream.h"
#include "graph_text.h"

using namespace dapple;
using namespace dapple::test;

namespace {

interop::ForeignProfileOptions all_options() {
  interop::ForeignProfileOptions options;
  options.profile_batch = 32;
  options.optimizer = "momentum";
  options.global_batch = 256;
  options.device = "V100-16GB";
  options.batch_scaling = BatchScaling::Proportional;
  options.stash = kOne;
  return options;
}

interop::ImportedProfile import(const std::string& text) {
  return interop::import_pipedream_graph(text, "models/tiny/graph.txt", all_options());
}

std::string node(int number, const std::string& description, const std::string& output = "100") {
  return "node" + std::to_string(number) + " -- " + description +
         " -- forward_compute_time=1.000, backward_compute_time=2.000, activation_size=" + output +
         ", parameter_size=8.000\n";
}

Error error_of(const std::string& text,
               const interop::ForeignProfileOptions& options = all_options()) {
  try {
    interop::import_pipedream_graph(text, "g.txt", options);
  } catch (const Error& error) { return error; }
  FAIL("expected an Error");
  throw Bug("not reached");
}

/// The only violation of a text.
std::string fault_of(const std::string& text) {
  const Error error = error_of(text);
  REQUIRE(error.violations().size() == 1);
  return error.what();
}

}  // namespace

TEST_CASE("a chain becomes layers with exact figures") {
  const std::string text =
      "node3 -- ReLU(inplace) -- forward_compute_time=0, backward_compute_time=0.056,"
      "activation_size=[10.0; 20;30], parameter_size=0\n"
      "node1 -- Input -- forward_compute_time=3.400, backward_compute_time=0.000, "
      "activation_size=77.0, parameter_size=0.000\n"
      "node2 -- Conv2d(3, 64, kernel_size=(7, 7)) -- forward_compute_time=9.706, "
      "backward_compute_time=4.551, activation_size=411041792.000, parameter_size=37632.000\n"
      "\tnode1 -- node2\n"
      "  node2 -- node3";  // two blanks, no final newline
  const interop::ImportedProfile imported = import(text);
  const ModelProfile& profile = imported.profile;

  CHECK(profile.name == "tiny");
  CHECK(profile.device == "V100-16GB");
  CHECK(profile.global_batch_size == 256);
  CHECK(profile.batch_scaling == BatchScaling::Proportional);
  CHECK(profile.optimizer.name == "momentum");
  CHECK(profile.optimizer.state_bytes_per_parameter_byte == kOne);
  CHECK(profile.optimizer.gradient_bytes_per_parameter_byte == kOne);
  CHECK_FALSE(profile.optimizer.step_ns_per_parameter_byte);

  REQUIRE(names_of(profile) == std::vector<std::string>{"Conv2d.2", "ReLU.3"});
  const Layer& conv = profile.layers[0];
  CHECK(conv.parameters == Bytes{37'632});
  CHECK(conv.inputs.empty());
  REQUIRE(conv.measurements.size() == 1);
  CHECK(conv.measurements[0].batch_size == 32);
  CHECK(conv.measurements[0].forward == Duration{9'706'000});
  CHECK(conv.measurements[0].backward == Duration{4'551'000});
  CHECK(conv.measurements[0].output == Bytes{411'041'792});
  CHECK(conv.measurements[0].stash == Bytes{411'041'792});
  const Layer& relu = profile.layers[1];
  CHECK(relu.inputs == std::vector<LayerIndex>{LayerIndex{0}});
  CHECK(relu.measurements[0].forward == Duration{0});
  CHECK(relu.measurements[0].backward == Duration{56'000});  // 0.056 ms
  CHECK(relu.measurements[0].output == Bytes{60});           // 10 + 20 + 30

  REQUIRE(imported.warnings.size() == 1);  // the input's 3.4 ms; everything else was said
  CHECK(imported.warnings[0].find("3400000 ns") != std::string::npos);
}

TEST_CASE("decimals become whole nanoseconds and bytes without a detour over binary fractions") {
  const auto forward_ns = [](const std::string& milliseconds) {
    return import("node1 -- A -- forward_compute_time=" + milliseconds +
                  ", backward_compute_time=0, activation_size=1, parameter_size=1\n")
        .profile.layers[0]
        .measurements[0]
        .forward.ns;
  };
  CHECK(forward_ns("0.000001") == 1);
  CHECK(forward_ns("1.005") == 1'005'000);         // 1.005 * 1e6 is 1004999.9999999999 in binary
  CHECK(forward_ns("0.0000001") == 1);             // a tenth of a nanosecond, rounded up
  CHECK(forward_ns("2.0000010000") == 2'000'001);  // zeros behind the nanosecond round nothing
  CHECK(forward_ns("1e-05") == 10);
  CHECK(forward_ns("1.5E+2") == 150'000'000);
  CHECK(forward_ns(".5") == 500'000);
  CHECK(forward_ns("5.") == 5'000'000);
  CHECK(forward_ns("-0.000") == 0);
  CHECK(forward_ns("000012") == 12'000'000);
  CHECK(forward_ns("0e999999999999999999999") == 0);
  CHECK(forward_ns("1e-999999999999999999999") == 1);
  CHECK(forward_ns("1000000000") == kMaxCount);  // 10^9 ms are 10^15 ns
  CHECK(forward_ns("999999999.999999") == kMaxCount - 1);
}

TEST_CASE("line ends, order of lines and fields, and a byte order mark do not matter") {
  const std::string tidy = node(1, "A") + node(2, "B") + edge(1, 2);
  const ModelProfile expected = import(tidy).profile;
  const std::vector<std::string> variants{
      "\xEF\xBB\xBFnode1 -- A -- forward_compute_time=1, backward_compute_time=2, "
      "activation_size=100, parameter_size=8\r\n\r\nnode2 -- B -- forward_compute_time=1, "
      "backward_compute_time=2, activation_size=100, parameter_size=8 -- stage_id=3\r\n"
      " \tnode1 -- node2\r\n",
      edge(1, 2) + node(2, "B") + node(1, "A"),
      tidy + edge(1, 2),  // an edge twice is one tensor
      "node1 -- A -- parameter_size=8,activation_size=[100],backward_compute_time=2,"
      "forward_compute_time=1\n" +
          node(2, "B") + edge(1, 2),
  };
  for (const std::string& variant : variants) {
    INFO(variant);
    CHECK(interop::is_pipedream_graph(variant));
    const ModelProfile profile = import(variant).profile;
    REQUIRE(names_of(profile) == names_of(expected));
    for (std::size_t i = 0; i < profile.layers.size(); ++i) {
      CHECK(profile.layers[i].inputs == expected.layers[i].inputs);
      CHECK(profile.layers[i].measurements[0].forward == Duration{1'000'000});
      CHECK(profile.layers[i].measurements[0].output == Bytes{100});
    }
  }
}

TEST_CASE("a graph is told from other texts by its first line") {
  CHECK(interop::is_pipedream_graph("node1 -- Input -- forward_compute_time=0"));
  CHECK(interop::is_pipedream_graph("\n\tnode1 -- node2\n"));
  CHECK_FALSE(interop::is_pipedream_graph(""));
  CHECK_FALSE(interop::is_pipedream_graph("\n \n"));
  CHECK_FALSE(interop::is_pipedream_graph("{\"schema\": \"dapple-profile/1\"}"));
  CHECK_FALSE(interop::is_pipedream_graph("nodes -- x"));
  CHECK_FALSE(interop::is_pipedream_graph("node1: x\nnode2 -- y"));
}

TEST_CASE("names are unique, and plain where the file's are") {
  const interop::ImportedProfile imported =
      import(node(1, "layer_0") + node(2, "layer_1") + node(3, "Add") + node(4, "Add") +
             node(5, "__getitem__(0)") + node(6, "\xC3\xA4(x)") + node(7, "a b -- c") +
             node(8, "Conv2d(1, 2)") + edge(1, 2) + edge(2, 3) + edge(3, 4) + edge(4, 5) +
             edge(5, 6) + edge(6, 7) + edge(7, 8));
  CHECK(names_of(imported.profile) == std::vector<std::string>{"layer_0", "layer_1", "Add.3",
                                                               "Add.4", "getitem.5", "node.6",
                                                               "a_b_c", "Conv2d.8"});
}

TEST_CASE("inputs and dangling views are left out, work is not") {
  // 1, 2 are inputs; 4 and its view 5 are views that nothing consumes; 6 ends in nothing but works;
  // 7 only sounds like an input; 8 is called Input but has parameters (all nodes here have 8
  // bytes).
  const std::string none =
      " -- forward_compute_time=0, backward_compute_time=0, "
      "activation_size=5, parameter_size=0\n";
  const interop::ImportedProfile imported =
      import("node1 -- Input0" + none + "node2 -- Input" + none + node(3, "LSTM(1, 2)") +
             "node4 -- __getitem__(1)" + none + "node5 -- __getitem__(0)" + none + node(6, "Dead") +
             node(7, "InputProjection") + node(8, "Input8") + edge(1, 3) + edge(2, 7) + edge(3, 4) +
             edge(4, 5) + edge(3, 6) + edge(3, 7));
  std::vector<std::string> names = names_of(imported.profile);
  std::sort(names.begin(), names.end());
  CHECK(names == std::vector<std::string>{"Dead", "Input8", "InputProjection", "LSTM.3"});
  CHECK(imported.warnings.empty());
  REQUIRE(imported.profile.notes.size() == 2);
  CHECK(imported.profile.notes[1].find("node1, node2;") != std::string::npos);
}

TEST_CASE("what was assumed is a warning, what was said is none") {
  const std::string text = node(1, "A");
  interop::ForeignProfileOptions options = all_options();
  CHECK(interop::import_pipedream_graph(text, "g.txt", options).warnings.empty());

  options.batch_scaling.reset();
  options.stash.reset();
  const std::vector<std::string> warnings =
      interop::import_pipedream_graph(text, "g.txt", options).warnings;
  REQUIRE(warnings.size() == 2);
  CHECK(warnings[0].find("--batch-scaling") != std::string::npos);
  CHECK(warnings[1].find("--stash") != std::string::npos);

  options = all_options();
  options.stash = Factor{2'500'000'000};
  const ModelProfile profile =
      interop::import_pipedream_graph(node(1, "A", "101"), "g.txt", options).profile;
  CHECK(profile.layers[0].measurements[0].stash == Bytes{253});  // 2.5 * 101 = 252.5
  CHECK(profile.notes[0].find("2.5 x its output") != std::string::npos);

  options.device.reset();
  const interop::ImportedProfile unknown = interop::import_pipedream_graph(text, "g.txt", options);
  CHECK(unknown.profile.device.empty());
  CHECK(unknown.warnings.empty());  // whoever knows the topology says what it is taken for

  const auto heavy = import(
      "node1 -- A -- forward_compute_time=0, backward_compute_time=0, "
      "activation_size=1, parameter_size=10000000001\n");
  REQUIRE(heavy.warnings.size() == 1);
  CHECK(heavy.warnings[0].find("is its unit right?") != std::string::npos);
}

TEST_CASE("what the graph cannot say has to be given, and all of it is asked for at once") {
  const Error missing = error_of(node(1, "A"), {});
  CHECK(missing.kind() == ErrorKind::Usage);
  REQUIRE(missing.violations().size() == 3);
  CHECK(missing.violations()[0].place == "--profile-batch");
  CHECK(missing.violations()[1].place == "--optimizer");
  CHECK(missing.violations()[2].place == "--global-batch");

  interop::ForeignProfileOptions wrong = all_options();
  wrong.profile_batch = 0;
  wrong.optimizer = "adamw";
  wrong.global_batch = 2'147'483'648;
  wrong.stash = Factor{-1};
  const Error error = error_of(node(1, "A"), wrong);
  CHECK(error.kind() == ErrorKind::Usage);
  REQUIRE(error.violations().size() == 4);
  CHECK(error.violations()[0].message ==
        "expected the batch size that was profiled, from 1 to 2147483647, got 0");
  CHECK(error.violations()[1].message == "expected sgd, momentum, rmsprop or adam, got 'adamw'");
}

TEST_CASE("optimizers keep 0, 1, 1 and 2 bytes of state per parameter byte") {
  const std::vector<std::pair<std::string, std::int64_t>> expected{
      {"sgd", 0}, {"momentum", 1}, {"rmsprop", 1}, {"adam", 2}};
  for (const auto& [name, bytes] : expected) {
    interop::ForeignProfileOptions options = all_options();
    options.optimizer = name;
    const ModelProfile profile =
        interop::import_pipedream_graph(node(1, "A"), "g.txt", options).profile;
    CHECK(profile.optimizer.state_bytes_per_parameter_byte == Factor{bytes * kOne.billionths});
  }
}

TEST_CASE("each defect is named with its line") {
  const std::string good = node(1, "A");
  CHECK(fault_of("") ==
        "g.txt: expected at least one node line '<node> -- <description> -- "
        "forward_compute_time=...', got none");
  CHECK(fault_of(good + "x\n") ==
        "g.txt: line 2: expected a node line that begins with node<number>, or an edge that begins "
        "with white space, got 'x'");
  CHECK(fault_of(good + "node2 -- A\n") ==
        "g.txt: line 2: expected '<node> -- <description> -- <figures>', got 'node2 -- A'");
  CHECK(fault_of(good + "\tnode1 - node1\n") ==
        "g.txt: line 2: expected an edge 'node<number> -- node<number>', got 'node1 - node1'");
  CHECK(fault_of(good + edge(1, 9)) ==
        "g.txt: line 2: expected an edge between nodes of this file, got node9, which has no line "
        "of its own");
  CHECK(fault_of(good + node(1, "B")) ==
        "g.txt: line 2: expected every node once, got node1 again");
  CHECK(fault_of(node(1, "A", "-1")) ==
        "g.txt: line 1: activation_size: expected a number of bytes, 0 or more, got '-1'");
  CHECK(fault_of(node(1, "A", "nan")) ==
        "g.txt: line 1: activation_size: expected a number of bytes, 0 or more, got 'nan'");
  CHECK(fault_of(node(1, "A", "")) ==
        "g.txt: line 1: activation_size: expected a number of bytes, 0 or more, got ''");
  CHECK(fault_of(node(1, "A", "[1; inf]")) ==
        "g.txt: line 1: activation_size: expected a number of bytes, 0 or more, got 'inf'");
  CHECK(fault_of(node(1, "A", "[1; 2")) ==
        "g.txt: line 1: activation_size: expected a list that ends in ], got '[1; 2'");
  CHECK(fault_of(node(1, "A", "1000000000000001")) ==
        "g.txt: line 1: activation_size: expected at most 10^15 bytes, got '1000000000000001'");
  CHECK(fault_of(node(1, "A", "[1e15; 1]")) ==
        "g.txt: line 1: activation_size: expected at most 10^15 bytes, got more in '[1e15; 1]'");
  CHECK(fault_of("node1 -- A -- forward_compute_time=1e10, backward_compute_time=0, "
                 "activation_size=1, parameter_size=0\n") ==
        "g.txt: line 1: forward_compute_time: expected at most 10^9 milliseconds, got '1e10'");
  CHECK(fault_of("node1 -- A -- forward_compute_time=1, backward_compute_time=0, "
                 "activation_size=1\n") == "g.txt: line 1: expected parameter_size=, got none");
  CHECK(fault_of("node1 -- Input -- forward_compute_time=1, backward_compute_time=0, "
                 "activation_size=1, parameter_size=0\n") ==
        "g.txt: expected at least one layer, got input nodes only");
  CHECK(fault_of(node(4, "A") + node(2, "B") + node(3, "C") + node(1, "D") + edge(4, 3) +
                 edge(3, 2) + edge(2, 4) + edge(1, 2)) ==
        "g.txt: line 2: expected a graph without cycles, got node2 -> node4 -> node3 -> node2");
  CHECK(fault_of(good + edge(1, 1)) ==
        "g.txt: line 1: expected a graph without cycles, got node1 -> node1");
  // A node without inputs that only a cycle consumes is not on it.
  CHECK(fault_of(node(1, "A") + node(2, "B") + edge(1, 2) + edge(2, 2)) ==
        "g.txt: line 2: expected a graph without cycles, got node2 -> node2");
}

TEST_CASE("all defects of a file are reported, by line, up to a hundred") {
  const Error error =
      error_of("\tnode1 -- node7\n" + node(1, "A", "x") + "bad\n" +
               "node2 -- B -- forward_compute_time=-1, backward_compute_time=nan\n" + edge(1, 2));
  std::vector<std::string> places;
  for (const Violation& violation : error.violations()) places.push_back(violation.place);
  // The edges of nodes whose own lines are at fault add nothing.
  CHECK(places == std::vector<std::string>{"line 1", "line 2", "line 3", "line 4", "line 4",
                                           "line 4", "line 4"});

  std::string many;
  for (int i = 0; i < 1'000; ++i) many += "bad\n";
  const Error flood = error_of(many + node(1, "A"));
  CHECK(flood.violations().size() == 101);
  CHECK(flood.violations().back().message == "900 more faults");
}

TEST_CASE("more than 100,000 nodes are refused, 100,000 are ordered quickly") {
  const auto chain = [](int nodes) {
    std::string text;
    for (int i = 1; i <= nodes; ++i) text += node(i, "A");
    for (int i = 2; i <= nodes; ++i) text += edge(1, i);  // all of them ready at once
    return text;
  };
  CHECK(import(chain(100'000)).profile.layers.size() == 100'000);
  CHECK(fault_of(chain(100'001)) == "g.txt: expected at most 100000 nodes, got 100001");
}

TEST_CASE("foreign bytes in a message are shown as question marks") {
  const std::string message = fault_of(node(1, "A") + "\xFF\x01" + std::string(100, 'y') + "\n");
  CHECK(message.find("got '??yyy") != std::string::npos);
  CHECK(message.find("...'") != std::string::npos);
}

TEST_CASE("random changes of a graph end in a profile or in an Error") {
  const std::string original = node(1, "Input") + node(2, "Conv2d(3, 64)", "[10; 20]") +
                               node(3, "Add") + node(4, "__getitem__(0)") + edge(1, 2) +
                               edge(2, 3) + edge(3, 4) + edge(2, 4);
  const std::string alphabet = "node0123456789 -=,.;[]()\t\r\n-- e+naif\xFF";
  RandomSequence random(7);
  int accepted = 0;
  int refused = 0;
  for (int round = 0; round < 5'000; ++round) {
    std::string text = original;
    const unsigned changes = 1 + random() % 4;
    for (unsigned change = 0; change < changes && !text.empty(); ++change) {
      const std::size_t place = random() % text.size();
      const char letter = alphabet[random() % alphabet.size()];
      switch (random() % 4) {
        case 0:
          text[place] = letter;
          break;
        case 1:
          text.insert(place, 1, letter);
          break;
        case 2:
          text.erase(place, 1 + random() % 9);
          break;
        default:
          text += text.substr(place, random() % 60);
          break;
      }
    }
    interop::is_pipedream_graph(text);
    try {
      const interop::ImportedProfile imported = import(text);
      ++accepted;
      std::vector<std::string> names = names_of(imported.profile);
      for (std::size_t i = 0; i < names.size(); ++i) {
        for (const LayerIndex input : imported.profile.layers[i].inputs) {
          REQUIRE(input.position() < i);
        }
      }
      std::sort(names.begin(), names.end());
      REQUIRE(std::unique(names.begin(), names.end()) == names.end());
    } catch (const Error& error) {
      ++refused;
      REQUIRE_FALSE(error.violations().empty());
    }
  }
  CHECK(accepted > 100);
  CHECK(refused > 1'000);
}
