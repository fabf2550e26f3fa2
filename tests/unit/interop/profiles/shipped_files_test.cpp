// The profiles and topologies that the project ships: readable, canonical, and with the figures
// that their sources state.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <string>
#include <vector>

#include "../../../support/files.h"
#include "dapple/core/error.h"
#include "dapple/interop/profiles/pipedream.h"
#include "dapple/io/documents/documents.h"
#include "dapple/topology/description.h"
#include "dapple/topology/topology.h"

using namespace dapple;
using namespace dapple::test;

namespace {

ModelProfile shipped_profile(const std::string& name) {
  return io::read_profile(source_file("profiles/" + name + ".json"), name);
}

struct Totals {
  std::int64_t parameter_bytes = 0;
  std::int64_t stash_bytes = 0;
  std::int64_t compute_ns = 0;
};

Totals totals_of(const ModelProfile& profile) {
  Totals totals;
  for (const Layer& layer : profile.layers) {
    totals.parameter_bytes += layer.parameters.count;
    totals.stash_bytes += layer.measurements[0].stash.count;
    totals.compute_ns += (layer.measurements[0].forward + layer.measurements[0].backward).ns;
  }
  return totals;
}

/// A layer that passes its input on in place or as a view; it keeps nothing of its own.
bool is_pass_through(const std::string& name) {
  for (const char* kind : {"ReLU.", "Add.", "View.", "Size.", "getitem."}) {
    if (name.rfind(kind, 0) == 0) return true;
  }
  return false;
}

const std::vector<std::string> kProfiles{"amoebanet-36", "bert-48", "bert-large", "gnmt-16",
                                         "resnet-50",    "vgg-19",  "xlnet-36"};
const std::vector<std::string> kTopologies{
    "16x1xV100-10g", "16x1xV100-25g", "16x8xH100", "2x8xV100", "4x8xA100",
    "4xRTX-pcie",    "8xA100",        "8xH100",    "8xV100",   "mixed-A100-V100"};

}  // namespace

TEST_CASE("shipped profiles are canonical and state what they come from") {
  for (const std::string& name : kProfiles) {
    INFO(name);
    const std::string text = source_file("profiles/" + name + ".json");
    const ModelProfile profile = io::read_profile(text, name);
    CHECK(io::write_profile(profile) == text);
    CHECK(profile.name == name);
    CHECK(profile.device == "V100-16GB");
    CHECK(profile.batch_scaling == BatchScaling::Proportional);
    CHECK(profile.global_batch_size);
    CHECK(profile.optimizer.step_ns_per_parameter_byte);
    CHECK_FALSE(profile.source.empty());
    CHECK(profile.notes.size() >= 4);
  }
}

TEST_CASE("shipped profiles keep the published parameters, times and plausible memory") {
  struct Expected {
    const char* name;
    std::size_t layers;
    std::int64_t batch;
    std::int64_t parameter_bytes;
    std::int64_t compute_ns;  // forward and backward of all layers, in the published file
    double memory_gb;         // weights, gradients, optimizer state and one stash, to 0.1 GB
  };
  const std::vector<Expected> expected{
      {"amoebanet-36", 43, 1, 3'731'135'780, 168'050'000, 12.3},
      // 127,131,648 + 48 * 50,384,896 + 4,198,400; 48 * 7.16 + 0.056 ms;
      // 4 * 2.55 GB + 48 * 100.7 MB + 2 * 4.3 MB.
      {"bert-48", 50, 2, 2'549'805'056, 343'736'000, 15.0},
      {"bert-large", 25, 2, 1'336'369'152, 171'896'000, 7.8},
      {"gnmt-16", 68, 64, 1'162'988'352, 248'916'000, 7.0},
      {"resnet-50", 176, 128, 102'228'128, 443'419'000, 12.1},
      {"vgg-19", 25, 32, 548'047'022, 144'210'000, 3.6},
      {"xlnet-36", 42, 1, 2'003'000'000, 300'710'000, 11.1},
  };
  for (const Expected& figures : expected) {
    INFO(figures.name);
    const ModelProfile profile = shipped_profile(figures.name);
    const Totals totals = totals_of(profile);
    CHECK(profile.layers.size() == figures.layers);
    CHECK(totals.parameter_bytes == figures.parameter_bytes);
    CHECK(totals.compute_ns == figures.compute_ns);
    const double per_parameter_byte =
        2.0 +
        static_cast<double>(profile.optimizer.state_bytes_per_parameter_byte.billionths) / 1e9;
    const double memory_gb = (static_cast<double>(totals.parameter_bytes) * per_parameter_byte +
                              static_cast<double>(totals.stash_bytes)) /
                             1e9;
    CHECK(memory_gb == Approx(figures.memory_gb).margin(0.051));
    for (const Layer& layer : profile.layers) {
      REQUIRE(layer.measurements.size() == 1);
      CHECK(layer.measurements[0].batch_size == figures.batch);
    }
  }
}

TEST_CASE(
    "no layer of a shipped profile keeps less than its inputs, in-place layers and views apart") {
  for (const std::string& name : kProfiles) {
    const ModelProfile profile = shipped_profile(name);
    for (const Layer& layer : profile.layers) {
      INFO(name << " " << layer.name);
      std::int64_t inputs = 0;
      for (const LayerIndex input : layer.inputs) {
        inputs += profile.layers[input.position()].measurements[0].output.count;
      }
      const std::int64_t stash = layer.measurements[0].stash.count;
      const bool keeps_nothing = is_pass_through(layer.name) && stash == 0;
      CHECK((keeps_nothing || stash >= inputs));
    }
  }
}

TEST_CASE("an encoder of BERT keeps what the formula says, and BERT-Large is half of BERT-48") {
  // 2 * s*b*h * (34 + 5*a*s/h) with s = 384, b = 2, h = 1024, a = 16: 2 * 786,432 * 64.
  const ModelProfile bert = shipped_profile("bert-48");
  CHECK(bert.layers[1].name == "encoder.0");
  CHECK(bert.layers[1].measurements[0].stash == Bytes{100'663'296});
  const ModelProfile large = shipped_profile("bert-large");
  for (std::size_t i = 0; i < large.layers.size(); ++i) {
    CHECK(large.layers[i].name == bert.layers[i].name);
    CHECK(large.layers[i].parameters == bert.layers[i].parameters);
    CHECK(large.layers[i].measurements[0].stash == bert.layers[i].measurements[0].stash);
  }
}

TEST_CASE("the shipped ResNet-50 is the published graph in the importer's order") {
  const std::string path = "pipedream/resnet50/graph.txt";
  const std::optional<std::string> text = shared_file(path);
  if (!text) return;
  interop::ForeignProfileOptions options;
  options.profile_batch = 128;
  options.optimizer = "momentum";
  options.global_batch = 2048;
  const ModelProfile imported = interop::import_pipedream_graph(*text, path, options).profile;
  const ModelProfile shipped = shipped_profile("resnet-50");
  REQUIRE(shipped.layers.size() == imported.layers.size());
  for (std::size_t i = 0; i < shipped.layers.size(); ++i) {
    INFO(shipped.layers[i].name);
    CHECK(shipped.layers[i].name == imported.layers[i].name);
    CHECK(shipped.layers[i].inputs == imported.layers[i].inputs);
    CHECK(shipped.layers[i].parameters == imported.layers[i].parameters);
    CHECK(shipped.layers[i].measurements[0].forward == imported.layers[i].measurements[0].forward);
    CHECK(shipped.layers[i].measurements[0].backward ==
          imported.layers[i].measurements[0].backward);
    CHECK(shipped.layers[i].measurements[0].output == imported.layers[i].measurements[0].output);
  }
}

TEST_CASE("an imported profile survives being written and read") {
  interop::ForeignProfileOptions options;
  options.profile_batch = 4;
  options.optimizer = "adam";
  options.global_batch = 8;
  // Two layers without inputs and one that nothing consumes.
  const ModelProfile imported =
      interop::import_pipedream_graph(
          "node1 -- A -- forward_compute_time=1, backward_compute_time=2, activation_size=3, "
          "parameter_size=4\nnode2 -- B(x) -- forward_compute_time=1, backward_compute_time=2, "
          "activation_size=3, parameter_size=4\nnode3 -- C -- forward_compute_time=1, "
          "backward_compute_time=2, activation_size=3, parameter_size=4\n\tnode1 -- node3\n",
          "g.txt", options)
          .profile;
  const std::string text = io::write_profile(imported);
  const ModelProfile again = io::read_profile(text, "g.json");
  CHECK(io::write_profile(again) == text);
  REQUIRE(again.layers.size() == imported.layers.size());
  for (std::size_t i = 0; i < again.layers.size(); ++i) {
    CHECK(again.layers[i].name == imported.layers[i].name);
    CHECK(again.layers[i].inputs == imported.layers[i].inputs);
  }
}

TEST_CASE("every shipped topology is sound and can be planned with every shipped profile") {
  for (const std::string& name : kTopologies) {
    INFO(name);
    const TopologyDescription description =
        io::read_topology(source_file("topologies/" + name + ".json"), name);
    CHECK(description.name == name);
    CHECK_FALSE(description.source.empty());
    for (const DeviceKind& kind : description.devices) {
      CHECK_FALSE(kind.source.empty());
      CHECK((kind.name == "V100-16GB" || kind.time_scale.count("V100-16GB") == 1));
    }
    for (const ServerGroup& group : description.servers) {
      CHECK((group.devices == 1 || !group.links.source.empty()));
      for (const LinkKind& kind : group.links.kinds) CHECK_FALSE(kind.source.empty());
      for (const Nic& nic : group.nics) CHECK_FALSE(nic.source.empty());
    }
    CHECK((!description.network || !description.network_source.empty()));
    const Topology topology(description, name);
    for (std::int32_t to = 1; to < topology.device_count(); ++to) {
      CHECK(topology.route(DeviceIndex{0}, DeviceIndex{to}).bandwidth.bytes_per_second > 0);
    }
  }
}

TEST_CASE("the shipped DGX-1 is a symmetric mesh of six lanes per device with six rings") {
  const Topology topology(io::read_topology(source_file("topologies/8xV100.json"), "8xV100.json"),
                          "8xV100.json");
  const ServerLinks& links = topology.description().servers[0].links;
  REQUIRE(links.kind == ServerLinks::Kind::Matrix);
  for (Eigen::Index from = 0; from < 8; ++from) {
    std::int32_t lanes = 0;
    for (Eigen::Index to = 0; to < 8; ++to) {
      CHECK(links.matrix(from, to) == links.matrix(to, from));
      const int kind = links.matrix(from, to);
      if (kind != kNoLink) lanes += links.kinds[static_cast<std::size_t>(kind)].lanes;
    }
    CHECK(lanes == 6);
  }
  std::vector<DeviceIndex> all;
  for (std::int32_t device = 0; device < 8; ++device) all.push_back(DeviceIndex{device});
  // Six rings of one lane each, 20 GB/s per lane.
  CHECK(topology.pack_rings(all).bandwidth == Bandwidth{120'000'000'000});
}

TEST_CASE("the paper's cluster A has the links that its configuration names") {
  const Topology topology(
      io::read_topology(source_file("topologies/2x8xV100.json"), "2x8xV100.json"), "2x8xV100.json");
  REQUIRE(topology.device_count() == 16);
  const Route inside = topology.route(DeviceIndex{0}, DeviceIndex{7});
  CHECK(inside.bandwidth == Bandwidth{130'000'000'000});
  CHECK(inside.latency == Duration{5'000});
  const Route across = topology.route(DeviceIndex{0}, DeviceIndex{8});
  CHECK(across.bandwidth == Bandwidth{3'125'000'000});  // 25 Gbit/s
  CHECK(across.latency == Duration{30'000});            // 15 + 0 + 15 us
  CHECK(topology.memory_limit(DeviceIndex{0}) == Bytes{15LL << 30});
}
