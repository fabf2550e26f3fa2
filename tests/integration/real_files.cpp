// Other people's real files, all of them: imported, with what is odd about them said, or refused
// with the reason. What is odd is in the PROVENANCE.md beside them.
#include <catch2/catch.hpp>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "../support/files.h"
#include "../support/plans.h"
#include "../support/refusals.h"
#include "dapple/cost/compatible.h"
#include "dapple/interop/plans/foreign_plan.h"
#include "dapple/interop/profiles/foreign_profile.h"
#include "dapple/interop/topologies/foreign_topology.h"
#include "dapple/io/documents/documents.h"
#include "dapple/planner/candidates/evaluate.h"

namespace dapple {
namespace {

using namespace test;

using Words = std::vector<std::string>;

/// Files under a folder of the shared ones, by their path in it; none, and a warning, without it.
std::set<std::string> files_below(const std::string& folder) {
  const std::filesystem::path root = shared_path(folder);
  std::set<std::string> files;
  if (!std::filesystem::is_directory(root)) {
    WARN("skipped: there is no " << root);
    return files;
  }
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    const std::string path = entry.path().lexically_relative(root).generic_string();
    if (entry.is_regular_file() && path != "PROVENANCE.md") files.insert(path);
  }
  return files;
}

std::string text_of_shared(const std::string& path) {
  const auto text = file_text(shared_path(path));
  INFO(path);
  REQUIRE(text);
  return *text;
}

void check_warnings(const std::vector<std::string>& warnings, const Words& expected) {
  for (const std::string& words : expected) {
    INFO(words << "\nnot in:");
    for (const std::string& warning : warnings) UNSCOPED_INFO(warning);
    CHECK(warns(warnings, words));
  }
}

/// A topology's file, what it is imported with, and what is said of it.
struct RealTopology {
  std::string file;
  std::string beside;  // another that describes the servers
  Words words;         // parts of warnings; of a refusal, all in it
  bool is_imported = true;
};

const std::vector<RealTopology> kTopologies{
    {"nvidia-smi/dgx1-v100.txt", "", {"NICs out of order; no NUMA affinities"}},
    {"nvidia-smi/dgx-a100.txt", "", {"devices of 4 sets of CPUs"}},
    {"nvidia-smi/aws-p5.48xlarge-h100.txt",
     "",
     {"terminal escapes that never end; no NICs, as inside a container", "no legend"}},
    {"nvidia-smi/aws-g6f.2xlarge-1gpu.txt", "", {"terminal escapes; no NICs", "one device"}},
    {"nvidia-smi/asus-esc8000a-4gpu-pcie.txt", "", {"columns aligned by blanks"}},
    {"nvidia-smi/pc-2x1080ti.txt", "", {"columns aligned by blanks", "not told (N/A)"}},
    {"nvidia-smi/vm-4xa10-sys.txt", "", {"columns aligned by blanks", "virtual machine"}},
    {"nvidia-smi/hgx-h800-nv8-damaged.txt",
     "",
     {"NIC0 has a row and no column", "expected ranges of CPUs as affinity of GPU0"}},
    {"nccl-xml/azure-ndv2-v100.xml", "", {"static file"}, false},
    {"nccl-xml/azure-ndv4-a100.xml", "", {"static file"}, false},
    {"nccl-xml/azure-ncv4-a100pcie.xml", "", {"to itself", "no link speed"}},
    {"nccl-xml/azure-nc48v4-2xa100.xml",
     "",
     {"no link speed", "eth0 stands below no PCI device", "no NIC is left"}},
    {"nccl-xml/aws-p4d.24xlarge-a100.xml", "", {"static file"}, false},
    {"nccl-xml/aws-p4de.24xlarge-a100.xml", "", {"static file"}, false},
    {"nccl-xml/oci-bm-h100.xml", "", {"6 GB/s up and 48 GB/s down"}},
    {"nccl-xml/amd-8p6l-gfx908.xml", "", {"a comment before it; AMD's XGMI"}},
    {"nccl-xml/amd-8p-pcie-vega20.xml", "", {"devices with PCIe alone"}},
    {"nccl-xml/amd-16p1h-gfx90a.xml", "", {"AMD's XGMI"}},
    {"slurm/oci-sim-3tier.conf", "nvidia-smi/dgx1-v100.txt", {"dots in names of switches"}},
    {"slurm/nstda-tara.conf",
     "nvidia-smi/dgx1-v100.txt",
     {"no line break at its end", "kinds of names"}},
    {"slurm/nstda-example.conf", "nvidia-smi/dgx1-v100.txt", {}},
    {"astra-sim/hgx-h100-validated.yml", "", {}},
    {"astra-sim/hgx-h100-8gpu.yml", "", {}},
    {"astra-sim/dgx-v100-8gpu-tbd.yml", "", {"got 'tbd'"}, false},
    {"astra-sim/tpu-v3-8.yml", "", {"without a link"}},
    {"astra-sim/ring-8npus.yml", "", {"without a link"}},
    {"astra-sim/ring-fc-switch-3d.yml", "", {"without a link"}},
    {"nccl-tests/a100-sxm4-8gpu-allreduce.log", "", {"lines between the rows", "old nccl-tests"}},
    {"nccl-tests/a100-sxm4-8gpu-alltoall.log", "", {"no reduction"}},
    {"nccl-tests/dgx-a100-4node-allreduce.txt",
     "nvidia-smi/dgx-a100.txt",
     {"columns are those of an old nccl-tests"}},
    {"nccl-tests/dgx-2node-roce-allreduce.txt",
     "nvidia-smi/dgx1-v100.txt",
     {"messages that took longer than a larger one are left out"}},
    {"nccl-tests/aws-p4de-2node-allreduce.txt",
     "nvidia-smi/dgx-a100.txt",
     {"as srun -l prints them", "no average at its end"}},
    {"nccl-tests/aws-p5-2node-allreduce.txt",
     "nccl-xml/oci-bm-h100.xml",
     {"as srun -l prints them", "no average at its end"}},
    {"nccl-tests/oci-h100-2node-allreduce.txt",
     "nccl-xml/oci-bm-h100.xml",
     {"above what the NICs of one carry"}},
    {"nccl-tests/gcp-a3mega-2node-allgather.txt", "nvidia-smi/dgx-a100.txt", {"no reduction"}},
    {"nccl-tests/v100-sxm2-8gpu-allreduce-concat.txt",
     "",
     {"runs one after another", "have only half of the columns", "same bus id"}},
    {"nccl-tests/a100-pcie-8gpu-allreduce-concat.txt",
     "",
     {"runs one after another", "only half of the columns"}}};

interop::ForeignFile real_topology(const std::string& path) {
  interop::ForeignFile file{.text = text_of_shared("topologies/" + path), .name = path};
  const auto format = interop::detect_topology_format(file.text);
  REQUIRE(format);
  file.format = *format;
  return file;
}

/// Every figure that files of the format leave out.
interop::ForeignTopologyOptions figures_for(interop::TopologyFormat format, bool has_servers) {
  interop::ForeignTopologyOptions options;
  options.device = "card";
  options.memory = Bytes{std::int64_t{16} << 30};
  if (format == interop::TopologyFormat::NvidiaSmi) {
    options.nvlink = Bandwidth{20'000'000'000};
    options.pcie = Bandwidth{12'000'000'000};
    options.socket = Bandwidth{10'000'000'000};
  }
  if (has_servers && format == interop::TopologyFormat::NvidiaSmi) {
    options.nic = Bandwidth{25'000'000'000};
  }
  return options;
}

TEST_CASE("every real topology is imported with its oddities named, or refused with the reason") {
  const std::set<std::string> files = files_below("topologies");
  if (files.empty()) return;
  std::set<std::string> named;
  for (const RealTopology& real : kTopologies) {
    INFO(real.file);
    named.insert(real.file);
    std::vector<interop::ForeignFile> together{real_topology(real.file)};
    const bool is_tree = together.front().format == interop::TopologyFormat::Slurm;
    if (!real.beside.empty()) together.push_back(real_topology(real.beside));
    interop::ForeignTopologyOptions options =
        figures_for(together.back().format, together.size() > 1);
    if (is_tree) {
      options.rack_oversubscription = kOne;
      options.pod_oversubscription = kOne;
    } else if (together.size() > 1) {
      options.servers = real.file.find("4node") == std::string::npos ? 2 : 4;
    }
    if (real.is_imported) {
      const interop::ImportedTopology imported = interop::import_topology(together, options);
      check_warnings(imported.warnings, real.words);
      const std::string written = io::write_topology(imported.description);
      CHECK(io::write_topology(io::read_topology(written, real.file)) == written);
    } else {
      const std::string refusal = refusal_of([&] { interop::import_topology(together, options); });
      for (const std::string& words : real.words) CHECK_THAT(refusal, Catch::Contains(words));
    }
  }
  CHECK(named == files);
}

TEST_CASE("switches alone, and results of several servers alone, ask for what a server is") {
  if (files_below("topologies").empty()) return;
  for (const RealTopology& real : kTopologies) {
    if (real.beside.empty()) continue;
    INFO(real.file);
    const std::string refusal = refusal_of([&] {
      interop::import_topology({real_topology(real.file)},
                               figures_for(interop::TopologyFormat::NcclXml, false));
    });
    CHECK_THAT(refusal, Catch::Contains("another file of how the devices of a server are wired"));
  }
}

struct RealModel {
  std::string file;
  std::int64_t batch;
  Words words;
};

const std::vector<RealModel> kModels{
    {"dapple/amoeba-36-pbs-1.txt", 1, {"edges indented by a blank and a tab"}},
    {"dapple/bert-48-pbs-2.txt", 2, {}},
    {"dapple/gnmt-16-pbs-64.txt", 64, {}},
    {"dapple/vgg-19-pbs-32.txt", 32, {"node1 (Input) is left out with its 3400000 ns"}},
    {"dapple/xlnet-36-pbs-1.txt", 1, {"node1 (Input) is left out with its 17000000 ns"}},
    {"pipedream/gnmt/graph.txt", 64, {}},
    {"pipedream/resnet50/graph.txt", 128, {"node1 (Input) is left out"}},
    {"pipedream/vgg16/graph.txt", 128, {"node1 (Input) is left out"}}};

interop::ImportedProfile import_real(const RealModel& model) {
  interop::ForeignProfileOptions options;
  options.profile_batch = model.batch;
  options.optimizer = "momentum";
  options.global_batch = 16 * model.batch;
  options.device = "gpu";
  const std::string text = text_of_shared(model.file);
  CHECK(interop::detect_model_format(text) == interop::ModelFormat::PipedreamGraph);
  return interop::import_model({{text, model.file, interop::ModelFormat::PipedreamGraph}}, options);
}

TEST_CASE("every real profile is imported with what was left out") {
  std::set<std::string> files;
  for (const char* folder : {"dapple", "pipedream", "piper"}) {
    for (const std::string& file : files_below(folder)) files.insert(folder + ("/" + file));
  }
  if (files.empty()) return;
  std::set<std::string> named;
  for (const RealModel& model : kModels) {
    INFO(model.file);
    named.insert(model.file);
    check_warnings(import_real(model).warnings, model.words);
  }
  named.insert("piper/bert32a100.json");
  interop::ForeignProfileOptions options;
  options.optimizer = "adam";
  check_warnings(interop::import_model({{text_of_shared("piper/bert32a100.json"), "bert32a100.json",
                                         interop::ModelFormat::Piper}},
                                       options)
                     .warnings,
                 {"those of 2, 4, 8 are left out", "variants that recompute are left out"});
  // All that is left are PipeDream's answers.
  for (const std::string& file : files) {
    const bool is_answer = file.starts_with("pipedream/") && !file.ends_with("graph.txt");
    if (!is_answer) CHECK(named.count(file) == 1);
  }
}

/// PipeDream's answer for a model, with one of the files beside it.
struct RealAnswer {
  std::string folder;
  std::string answer;
  std::string beside;
  std::string shape;  // layers of each stage and its devices
  Words words = {};
};

const std::vector<RealAnswer> kAnswers{
    {"vgg16/n4", "gpus=4.txt", "stdout.txt", "0-17:3 17-40:1", {"expected 0.205520896 s"}},
    {"vgg16/n4", "gpus=4.txt", "hybrid_conf.json", "0-17:3 17-40:1"},
    {"vgg16/n4", "gpus=4.txt", "dp_conf.json", "0-40:4", {"makes 1 stage of the 2"}},
    {"vgg16/n4", "gpus=4.txt", "mp_conf.json", "0-17:1 17-40:1"},
    {"vgg16/n4_4",
     "gpus=16.txt",
     "stdout.txt",
     "0-33:12 33-34:1 34-35:1 35-39:1 39-40:1",
     {"expected 0.06688875213333333 s"}},
    {"vgg16/n4_4", "gpus=16.txt", "hybrid_conf.json", "0-33:12 33-34:1 34-35:1 35-39:1 39-40:1"},
    {"vgg16/n4_4", "gpus=16.txt", "dp_conf.json", "0-40:16", {"makes 1 stage of the 5"}},
    {"vgg16/n4_4", "gpus=16.txt", "mp_conf.json", "0-33:1 33-34:1 34-35:1 35-39:1 39-40:1"},
    {"gnmt/n4_4", "gpus=16.txt", "stdout.txt", "", {"expected 0.011081 s"}}};

std::string stages_of(const Plan& plan) {
  std::string text;
  for (const StagePlan& stage : plan.stages) {
    if (!text.empty()) text += ' ';
    text += std::to_string(stage.layers.begin) + '-' + std::to_string(stage.layers.end) + ':' +
            std::to_string(stage.devices.size());
  }
  return text;
}

TEST_CASE("every real answer of PipeDream is a plan, or refused for what it lacks") {
  const std::set<std::string> files = files_below("pipedream");
  if (files.empty()) return;
  std::map<std::string, ModelProfile> profiles;
  std::set<std::string> named;
  for (const RealModel& model : kModels) {
    if (!model.file.starts_with("pipedream/")) continue;
    const std::string path = model.file.substr(std::string("pipedream/").size());
    named.insert(path);
    profiles.emplace(path.substr(0, path.find('/')), import_real(model).profile);
  }
  const Topology topology(small::cluster({.servers = 4, .devices = 4}));
  const auto foreign = [&](const std::string& path) {
    named.insert(path);
    return interop::ForeignPlanFile{text_of_shared("pipedream/" + path), path,
                                    interop::PlanFormat::Pipedream};
  };
  interop::ForeignPlanOptions options;
  options.micro_batch = 128;
  for (const RealAnswer& real : kAnswers) {
    INFO(real.folder << " " << real.beside);
    const ModelProfile& profile = profiles.at(real.folder.substr(0, real.folder.find('/')));
    for (const Replication replication : {Replication::Deal, Replication::Split}) {
      options.replication = replication;
      interop::ImportedPlan imported = interop::import_plan(
          {foreign(real.folder + "/" + real.answer), foreign(real.folder + "/" + real.beside)},
          {profile, topology}, options);
      check_warnings(imported.warnings, real.words);
      if (!real.shape.empty()) CHECK(stages_of(imported.plan) == real.shape);
      CHECK(imported.plan.stages.front().replication == replication);
      CHECK(costing_faults(imported.plan, imported.profile, topology).empty());
      CHECK(
          planner::evaluate(imported.plan, imported.profile, topology, {}).prediction.iteration.ns >
          0);
    }
  }
  // Its ranks are striped, and nothing beside it says what the layers of its stages are.
  const std::string refusal = refusal_of([&] {
    interop::import_plan({foreign("resnet50/shipped_gpus16/hybrid_conf.json")},
                         {profiles.at("resnet50"), topology}, options);
  });
  CHECK_THAT(refusal, Catch::Contains("expected a graph with stages (gpus=N.txt) next to it, or a "
                                      "stage for each of the 176 layers"));
  CHECK(named == files);
}

}  // namespace
}  // namespace dapple
