// The planner on every paper model and cluster, and on BERT-Large: what it finds and proves, how
// long it takes on two threads, what it costs in memory. The exact search runs for a gap of 1 %,
// for none, and with baselines (.../gap:1, .../gap:0, .../baselines), for at most kSecondsAllowed;
// the DAPPLE planner alone runs on more clusters (.../dapple). BERT of 1,000 layers is planned for
// 1,024 H100s until the search ends by itself (.../whole).
//
//   bench_plans [--benchmark_filter=...] (DAPPLE_SOURCE_DIR is compiled in)

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "dapple/io/documents/documents.h"
#include "dapple/io/files/read_file.h"
#include "dapple/planner/make_plan.h"
#include "dapple/planner/request/planner_options.h"
#include "dapple/planner/result/made_plan.h"
#include "peak_memory.h"

namespace {

using namespace dapple;

constexpr double kSecondsAllowed = 60;

class TimeLimit : public planner::Progress {
 public:
  void update(const planner::SearchProgress&) override {}
  bool should_stop() override {
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start_;
    return passed.count() > kSecondsAllowed;
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

struct Question {
  std::string model;
  std::string cluster;
  planner::PlannerOptions options;
  bool is_large = false;  // its second layer repeated, its first servers, to kLayers, kServers
};

constexpr std::size_t kLayers = 1000;
constexpr std::int32_t kServers = 128;
constexpr std::int64_t kLargeBatch = 8192;

void show(benchmark::State& state, const PlanDocument& document) {
  const Prediction& prediction = document.prediction;
  state.SetLabel(shape_of(document.plan));
  state.counters["simulated_ms"] = static_cast<double>(prediction.iteration.ns) * 1e-6;
  state.counters["speedup"] = prediction.speedup_over_one_device.value_or(0);
  if (prediction.optimality_gap) state.counters["gap_percent"] = 100 * *prediction.optimality_gap;
  state.counters["complete"] = document.search.complete ? 1 : 0;
  state.counters["states"] = static_cast<double>(document.search.states);
  state.counters["candidates"] = static_cast<double>(document.search.candidates);
  state.counters["simulations"] = static_cast<double>(document.search.simulated);
  state.counters["peak_MiB"] = small::peak_memory_mib();
}

void plan_problem(benchmark::State& state, Question question) {
  const std::string profile_path =
      std::string(DAPPLE_SOURCE_DIR "/profiles/") + question.model + ".json";
  const std::string topology_path =
      std::string(DAPPLE_SOURCE_DIR "/topologies/") + question.cluster + ".json";
  ModelProfile profile = io::read_profile(io::read_file(profile_path), profile_path);
  TopologyDescription description = io::read_topology(io::read_file(topology_path), topology_path);
  question.options.global_batch_size = *profile.global_batch_size;
  if (question.is_large) {
    const Layer repeated = profile.layers[1];
    profile.layers.insert(profile.layers.begin() + 1, kLayers - profile.layers.size(), repeated);
    description.servers.front().count = kServers;
    question.options.global_batch_size = kLargeBatch;
  }
  const Topology topology(std::move(description), topology_path);
  small::forget_peak_memory();
  for (auto _ : state) {
    TimeLimit limit;
    const auto made = planner::make_plan(
        {profile, topology, question.options, question.is_large ? nullptr : &limit});
    if (const auto* plan = std::get_if<planner::MadePlan>(&made)) {
      show(state, plan->document);
    } else {
      state.SkipWithError("nothing fits");
      return;
    }
  }
}

void add(const std::string& name, const Question& question) {
  const std::string problem =
      question.is_large ? "bert-1000/128x8xH100" : question.model + "/" + question.cluster;
  benchmark::RegisterBenchmark((problem + "/" + name).c_str(), plan_problem, question)
      ->Unit(benchmark::kSecond)
      ->UseRealTime()
      ->Iterations(1);
}

void add_exact(const std::string& model, const std::string& cluster) {
  Question question{.model = model, .cluster = cluster, .options = {}};
  question.options.baselines = false;
  question.options.target_gap = {kOne.billionths / 100};
  add("gap:1", question);
  question.options.target_gap = {};
  add("gap:0", question);
  question.options.target_gap = {kOne.billionths / 100};
  question.options.baselines = true;
  add("baselines", question);
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> models{"gnmt-16",   "bert-48", "xlnet-36",
                                        "resnet-50", "vgg-19",  "amoebanet-36"};
  for (const std::string& model : models) {
    for (const std::string cluster : {"2x8xV100", "16x1xV100-25g", "16x1xV100-10g"}) {
      add_exact(model, cluster);
    }
  }
  add_exact("bert-large", "8xV100");
  for (const std::string& model : models) {
    for (const std::string cluster :
         {"2x8xV100", "16x1xV100-25g", "16x1xV100-10g", "8xV100", "8xA100", "4x8xA100", "8xH100",
          "16x8xH100", "4xRTX-pcie", "mixed-A100-V100"}) {
      Question question{.model = model, .cluster = cluster, .options = {}};
      question.options.planner = PlannerKind::Dapple;
      question.options.baselines = false;
      add("dapple", question);
    }
  }
  add("whole", {.model = "bert-48", .cluster = "16x8xH100", .options = {}, .is_large = true});
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
