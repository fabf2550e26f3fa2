// The planner on every paper model and cluster, and on BERT-Large: what it finds, how long it takes
// on two threads, what it costs in memory. Run from the source folder, or name it:
//
//   bench_plans [--benchmark_filter=...] (DAPPLE_SOURCE_DIR is compiled in)

#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include <string>
#include <vector>

#include "dapple/io/documents.h"
#include "dapple/planner/planner.h"

namespace {

using namespace dapple;

std::string shape_of(const Plan& plan) {
  std::string text;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    std::size_t same = 1;
    while (s + same < plan.stages.size() &&
           plan.stages[s + same].devices.size() == plan.stages[s].devices.size()) {
      ++same;
    }
    text += fmt::format("{}{}{}", text.empty() ? "" : ":", plan.stages[s].devices.size(),
                        same > 1 ? fmt::format("x{}", same) : "");
    s += same - 1;
  }
  return fmt::format("{} B={} M={}", text, plan.micro_batch_size, plan.num_micro_batches);
}

double peak_memory_mib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024.0;
}

void plan_problem(benchmark::State& state, const std::string& model, const std::string& cluster) {
  const std::string profile_path = std::string(DAPPLE_SOURCE_DIR "/profiles/") + model + ".json";
  const std::string topology_path =
      std::string(DAPPLE_SOURCE_DIR "/topologies/") + cluster + ".json";
  const ModelProfile profile = read_profile(read_file(profile_path), profile_path);
  const Topology topology(read_topology(read_file(topology_path), topology_path), topology_path);
  PlannerOptions options;
  options.global_batch_size = *profile.global_batch_size;
  for (auto _ : state) {
    const auto made = make_plan(profile, topology, options);
    const auto* document = std::get_if<PlanDocument>(&made);
    if (document == nullptr) {
      state.SkipWithError("nothing fits");
      return;
    }
    state.SetLabel(shape_of(document->plan));
    state.counters["simulated_ms"] = static_cast<double>(document->prediction.iteration.ns) * 1e-6;
    state.counters["speedup"] = *document->prediction.speedup_over_one_device;
    state.counters["states"] = static_cast<double>(document->search.states);
    state.counters["simulations"] = static_cast<double>(document->search.simulated);
    state.counters["peak_MiB"] = peak_memory_mib();  // of the process so far
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> paper_models{"gnmt-16",   "bert-48", "xlnet-36",
                                              "resnet-50", "vgg-19",  "amoebanet-36"};
  const std::vector<std::string> paper_clusters{"2x8xV100", "16x1xV100-25g", "16x1xV100-10g"};
  const auto add = [](const std::string& model, const std::string& cluster) {
    benchmark::RegisterBenchmark((model + "/" + cluster).c_str(), plan_problem, model, cluster)
        ->Unit(benchmark::kSecond)
        ->UseRealTime()
        ->Iterations(1);
  };
  for (const std::string& model : paper_models) {
    for (const std::string& cluster : paper_clusters) add(model, cluster);
  }
  add("bert-large", "8xV100");
  for (const std::string& model : paper_models) {
    for (const std::string cluster :
         {"8xV100", "8xA100", "4x8xA100", "8xH100", "16x8xH100", "4xRTX-pcie", "mixed-A100-V100"}) {
      add(model, cluster);
    }
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
