// The order of a graph's layers: independent of the file's, topological, and narrow where it is
// cut.
#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include "../../../support/files.h"
#include "../profiles/graph_text.h"
#include "dapple/core/random.h"
#include "dapple/interop/graphs/narrow_order.h"
#include "dapple/interop/profiles/pipedream.h"

using namespace dapple;
using namespace dapple::test;

namespace {

interop::ForeignProfileOptions options() {
  interop::ForeignProfileOptions result;
  result.profile_batch = 1;
  result.optimizer = "sgd";
  result.global_batch = 64;
  return result;
}

std::string node(int number, std::int64_t output) {
  return "node" + std::to_string(number) +
         " -- Op() -- forward_compute_time=1, backward_compute_time=1, activation_size=" +
         std::to_string(output) + ", parameter_size=0\n";
}

/// Bytes that cross each cut if the layers stand in `order`, counted tensor by tensor.
std::vector<std::int64_t> cuts(const ModelProfile& profile, const std::vector<std::size_t>& order) {
  std::vector<std::size_t> place(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) place[order[i]] = i;
  std::vector<std::int64_t> crossing(order.size() + 1);
  for (std::size_t producer = 0; producer < order.size(); ++producer) {
    std::size_t last = place[producer];
    for (std::size_t consumer = 0; consumer < order.size(); ++consumer) {
      for (const LayerIndex input : profile.layers[consumer].inputs) {
        if (input.position() == producer) last = std::max(last, place[consumer]);
      }
    }
    for (std::size_t cut = place[producer] + 1; cut <= last; ++cut) {
      crossing[cut] += profile.layers[producer].measurements[0].output.count;
    }
  }
  return crossing;
}

std::vector<std::int64_t> cuts(const ModelProfile& profile) {
  std::vector<std::size_t> order(profile.layers.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  return cuts(profile, order);
}

std::int64_t largest(const std::vector<std::int64_t>& values) {
  return *std::max_element(values.begin(), values.end());
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::string shuffled(const std::string& text, RandomSequence& random) {
  std::vector<std::string> lines = lines_of(text);
  std::shuffle(lines.begin(), lines.end(), random);
  std::string result;
  for (const std::string& line : lines) result += line + "\n";
  return result;
}

void check_same(const ModelProfile& a, const ModelProfile& b) {
  REQUIRE(names_of(a) == names_of(b));
  CHECK(a.name == b.name);
  CHECK(a.notes == b.notes);
  for (std::size_t i = 0; i < a.layers.size(); ++i) {
    CHECK(a.layers[i].inputs == b.layers[i].inputs);
    CHECK(a.layers[i].parameters == b.layers[i].parameters);
    CHECK(a.layers[i].measurements[0].forward == b.layers[i].measurements[0].forward);
    CHECK(a.layers[i].measurements[0].output == b.layers[i].measurements[0].output);
  }
}

struct RealGraph {
  const char* path;
  const char* name;
  std::size_t layers;  // after inputs and dangling views are left out
  std::int64_t parameter_bytes;
  std::int64_t compute_ns;  // forward and backward
};

}  // namespace

TEST_CASE("the branch that leaves fewer bytes alive comes first") {
  // 1 feeds 2 (wide) and 3 (narrow); 4 joins them. 1:100, 2:50, 3:10.
  // After 1: placing 2 adds 50, placing 3 adds 10; then 2 adds 50 and ends the life of 1.
  const ModelProfile profile =
      interop::import_pipedream_graph(node(1, 100) + node(2, 50) + node(3, 10) + node(4, 1) +
                                          edge(1, 2) + edge(1, 3) + edge(2, 4) + edge(3, 4),
                                      "g.txt", options())
          .profile;
  CHECK(names_of(profile) == std::vector<std::string>{"Op.1", "Op.3", "Op.2", "Op.4"});
  CHECK(cuts(profile) == std::vector<std::int64_t>{0, 100, 110, 60, 0});
}

TEST_CASE("in the greedy order a node without inputs stands right before its first consumer") {
  // 0 -> 1 -> 3, and 2 -> 3, 4: the small tensor of 2 would otherwise be carried past 0 and 1.
  const interop::TensorGraph graph{.outputs = {{100}, {100}, {1}, {100}, {1}},
                                   .inputs = {{}, {0}, {}, {1, 2}, {2, 3}},
                                   .work = {{1}, {1}, {1}, {1}, {1}}};
  CHECK(interop::narrow_order(graph) == std::vector<std::int32_t>{0, 1, 2, 3, 4});
}

TEST_CASE("equal choices go by node number, not by the order of lines or digits") {
  const ModelProfile profile =
      interop::import_pipedream_graph(node(10, 5) + node(9, 5) + node(2, 5) + node(1, 5) +
                                          edge(1, 10) + edge(1, 9) + edge(1, 2),
                                      "g.txt", options())
          .profile;
  CHECK(names_of(profile) == std::vector<std::string>{"Op.1", "Op.2", "Op.9", "Op.10"});
}

TEST_CASE("each choice of the greedy order is the best one, on random graphs") {
  RandomSequence random(11);
  for (int round = 0; round < 300; ++round) {
    const int nodes = 2 + static_cast<int>(random() % 12);
    std::string text;
    std::vector<std::int64_t> output(static_cast<std::size_t>(nodes) + 1);
    std::vector<std::vector<int>> inputs(output.size());
    std::vector<std::vector<int>> consumers(output.size());
    for (int i = 1; i <= nodes; ++i) {
      output[static_cast<std::size_t>(i)] = static_cast<std::int64_t>(random() % 6);
      text += node(i, output[static_cast<std::size_t>(i)]);
      for (int from = 1; from < i; ++from) {
        if (random() % 4 != 0) continue;
        text += edge(from, i);
        inputs[static_cast<std::size_t>(i)].push_back(from);
        consumers[static_cast<std::size_t>(from)].push_back(i);
      }
    }
    // The rule again, by counting what is alive from scratch for every candidate.
    std::vector<bool> placed(output.size());
    const auto is_source = [&](int i) {
      return inputs[static_cast<std::size_t>(i)].empty() &&
             !consumers[static_cast<std::size_t>(i)].empty();
    };
    const auto alive = [&](const std::vector<bool>& set) {
      std::int64_t sum = 0;
      for (int i = 1; i <= nodes; ++i) {
        const auto& users = consumers[static_cast<std::size_t>(i)];
        const bool needed = std::any_of(users.begin(), users.end(), [&](int user) {
          return !set[static_cast<std::size_t>(user)];
        });
        if (set[static_cast<std::size_t>(i)] && needed) sum += output[static_cast<std::size_t>(i)];
      }
      return sum;
    };
    std::vector<std::int32_t> expected;
    for (;;) {
      int best = 0;
      std::int64_t fewest = 0;
      for (int i = 1; i <= nodes; ++i) {
        const auto& needs = inputs[static_cast<std::size_t>(i)];
        const bool ready = !placed[static_cast<std::size_t>(i)] && !is_source(i) &&
                           std::all_of(needs.begin(), needs.end(), [&](int need) {
                             return placed[static_cast<std::size_t>(need)] || is_source(need);
                           });
        if (!ready) continue;
        std::vector<bool> after = placed;
        after[static_cast<std::size_t>(i)] = true;
        for (const int need : needs) after[static_cast<std::size_t>(need)] = true;
        if (best == 0 || alive(after) < fewest) {
          best = i;
          fewest = alive(after);
        }
      }
      if (best == 0) break;
      for (const int need : inputs[static_cast<std::size_t>(best)]) {
        if (!placed[static_cast<std::size_t>(need)]) expected.push_back(need - 1);
        placed[static_cast<std::size_t>(need)] = true;
      }
      expected.push_back(best - 1);
      placed[static_cast<std::size_t>(best)] = true;
    }
    INFO(text);
    interop::TensorGraph graph;
    for (std::size_t i = 1; i < output.size(); ++i) {
      graph.outputs.push_back({output[i]});
      std::vector<std::int32_t>& needs = graph.inputs.emplace_back();
      for (const int input : inputs[i]) needs.push_back(input - 1);
    }
    REQUIRE(interop::narrow_order(graph) == expected);
    REQUIRE(expected.size() == static_cast<std::size_t>(nodes));
    const ModelProfile profile = interop::import_pipedream_graph(text, "g.txt", options()).profile;
    check_same(interop::import_pipedream_graph(shuffled(text, random), "g.txt", options()).profile,
               profile);
  }
}

TEST_CASE("published graphs are read whole, in whatever order their lines stand") {
  // Sums over the files' lines, taken by a script that shares nothing with the importer.
  const std::vector<RealGraph> graphs{
      {"dapple/amoeba-36-pbs-1.txt", "amoeba-36-pbs-1", 43, 3'731'135'780, 168'050'000},
      {"dapple/bert-48-pbs-2.txt", "bert-48-pbs-2", 53, 2'549'805'056, 343'757'000},
      {"dapple/gnmt-16-pbs-64.txt", "gnmt-16-pbs-64", 77, 1'162'988'352, 248'916'000},
      {"dapple/vgg-19-pbs-32.txt", "vgg-19-pbs-32", 25, 548'047'022, 144'210'000},
      {"dapple/xlnet-36-pbs-1.txt", "xlnet-36-pbs-1", 42, 2'003'000'000, 300'710'000},
      {"pipedream/gnmt/graph.txt", "gnmt", 37, 775'063'808, 89'416'000},
      {"pipedream/resnet50/graph.txt", "resnet50", 176, 102'228'128, 443'419'000},
      {"pipedream/vgg16/graph.txt", "vgg16", 40, 553'430'176, 672'535'000},
  };
  RandomSequence random(3);
  for (const RealGraph& graph : graphs) {
    const std::optional<std::string> file = shared_file(graph.path);
    if (!file) continue;
    const std::string& text = *file;
    INFO(graph.path);
    CHECK(interop::is_pipedream_graph(text));
    const ModelProfile profile =
        interop::import_pipedream_graph(text, graph.path, options()).profile;
    CHECK(profile.name == graph.name);
    CHECK(profile.layers.size() == graph.layers);
    std::int64_t parameters = 0;
    std::int64_t compute = 0;
    for (std::size_t i = 0; i < profile.layers.size(); ++i) {
      const Layer& layer = profile.layers[i];
      parameters += layer.parameters.count;
      compute += (layer.measurements[0].forward + layer.measurements[0].backward).ns;
      for (const LayerIndex input : layer.inputs) CHECK(input.position() < i);
    }
    CHECK(parameters == graph.parameter_bytes);
    CHECK(compute == graph.compute_ns);
    for (int round = 0; round < 3; ++round) {
      check_same(
          interop::import_pipedream_graph(shuffled(text, random), graph.path, options()).profile,
          profile);
    }
  }
}

TEST_CASE("cuts of the residual graphs are narrower than in the order of their nodes") {
  struct Expected {
    const char* path;
    std::int64_t largest;        // of our order
    std::int64_t largest_naive;  // of the order of node numbers
  };
  const std::vector<Expected> graphs{
      // Attention's outputs of 19,721,216 bytes are alive beside one view of them: the small one,
      // 262,144, in our order; the large one, 9,437,184, in the order of numbers.
      {"dapple/gnmt-16-pbs-64.txt", 19'983'360, 29'158'400},
      {"pipedream/gnmt/graph.txt", 13'002'752, 19'032'064},
      // Where a block doubles its channels two tensors of 411,041,792 bytes have to meet.
      {"pipedream/resnet50/graph.txt", 822'083'584, 822'083'584},
  };
  for (const Expected& graph : graphs) {
    const std::optional<std::string> file = shared_file(graph.path);
    if (!file) continue;
    const std::string& text = *file;
    INFO(graph.path);
    const ModelProfile profile =
        interop::import_pipedream_graph(text, graph.path, options()).profile;
    std::vector<std::pair<int, std::size_t>> numbered;
    for (std::size_t i = 0; i < profile.layers.size(); ++i) {
      const std::string& name = profile.layers[i].name;
      int number = 0;
      if (const std::size_t point = name.find('.'); point != std::string::npos) {
        number = std::stoi(name.substr(point + 1));
      } else {
        for (const std::string& line : lines_of(text)) {
          if (line.find(" -- " + name + " -- ") != std::string::npos) {
            number = std::stoi(line.substr(4));
          }
        }
      }
      REQUIRE(number > 0);
      numbered.emplace_back(number, i);
    }
    std::sort(numbered.begin(), numbered.end());
    std::vector<std::size_t> by_number;
    for (const auto& [number, i] : numbered) by_number.push_back(i);

    const std::vector<std::int64_t> narrow = cuts(profile);
    const std::vector<std::int64_t> naive = cuts(profile, by_number);
    CHECK(largest(narrow) == graph.largest);
    CHECK(largest(naive) == graph.largest_naive);
    CHECK(std::accumulate(narrow.begin(), narrow.end(), std::int64_t{0}) <
          std::accumulate(naive.begin(), naive.end(), std::int64_t{0}));
  }
}
