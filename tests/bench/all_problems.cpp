// Every shipped profile on every shipped topology: the plan fits, its bound holds what it promises,
// and no feasible baseline is faster in simulation. Fails otherwise; a problem for which nothing
// fits is said to be one.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "dapple/cost/compatible.h"
#include "dapple/io/documents/documents.h"
#include "dapple/io/files/read_file.h"
#include "dapple/planner/candidates/evaluate.h"
#include "dapple/planner/make_plan.h"
#include "dapple/planner/request/planner_options.h"
#include "dapple/planner/result/made_plan.h"

namespace {

using namespace dapple;

/// Names of the JSON files in a folder, without their ending.
std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

/// Models with times; the others are yet to be profiled.
std::vector<std::string> profiled_models(const std::string& folder) {
  std::vector<std::string> models = names_in(folder);
  std::erase_if(models, [&folder](const std::string& model) {
    const std::string text = io::read_file(folder + "/" + model + ".json");
    return text.find("\"measurements\"") == std::string::npos;
  });
  return models;
}

/// The file beside the topologies that is none.
constexpr const char* kGpus = "gpus";

/// Whether the topology has so many devices that a plan of it takes a minute; such ones are named.
bool is_large(const std::string& source, const std::string& cluster) {
  constexpr std::int32_t kMostDevices = 128;
  const std::string path = source + "/topologies/" + cluster + ".json";
  return Topology(io::read_topology(io::read_file(path), path), path).device_count() > kMostDevices;
}

/// What is wrong with the plan. Empty if nothing.
std::string fault_of(planner::MadePlan& made, const ModelProfile& profile,
                     const Topology& topology) {
  const Prediction& prediction = made.document.prediction;
  const std::vector<Violation> violations =
      planner::check_plan(made.document.plan, profile, topology);
  if (!violations.empty()) return violations.front().place + ": " + violations.front().message;
  if (!prediction.lower_bound) return "nothing is proven";
  if (*prediction.lower_bound > prediction.iteration) return "the bound is above the iteration";
  if (made.baselines.empty()) return "there is no baseline";
  for (planner::BaselinePlan& baseline : made.baselines) {
    if (!baseline.figures.feasible) continue;
    const Duration simulated =
        planner::evaluate(baseline.plan, profile, topology, {Contention::Shared})
            .prediction.iteration;
    if (simulated != baseline.figures.iteration) {
      return baseline.figures.name + " takes " + std::to_string(simulated.ns) + " ns, not " +
             std::to_string(baseline.figures.iteration.ns);
    }
    if (simulated < prediction.iteration) return baseline.figures.name + " is faster";
  }
  return "";
}

/// Prints a line. False if something is wrong.
bool plan_problem(const std::string& source, const std::string& model, const std::string& cluster) {
  const std::string profile_path = source + "/profiles/" + model + ".json";
  const std::string topology_path = source + "/topologies/" + cluster + ".json";
  const ModelProfile profile = io::read_profile(io::read_file(profile_path), profile_path);
  const Topology topology(io::read_topology(io::read_file(topology_path), topology_path),
                          topology_path);
  fmt::print("{:13} {:16} ", model, cluster);
  if (!check_compatible(profile, topology, *profile.global_batch_size).empty()) {
    fmt::print("no times for a kind of its devices\n");
    return true;
  }
  planner::PlannerOptions options;
  options.global_batch_size = *profile.global_batch_size;
  options.target_gap = {kOne.billionths / 20};
  const auto start = std::chrono::steady_clock::now();
  auto answer = planner::make_plan({profile, topology, options});
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  auto* made = std::get_if<planner::MadePlan>(&answer);
  if (made == nullptr) {
    fmt::print("nothing fits, {:.1f} s\n", taken.count());
    return true;
  }
  const std::string fault = fault_of(*made, profile, topology);
  const Prediction& prediction = made->document.prediction;
  fmt::print("{:12.3f} ms, gap {:6.3f} %, {:7.1f} s {}\n",
             static_cast<double>(prediction.iteration.ns) * 1e-6,
             100 * prediction.optimality_gap.value_or(1.0), taken.count(), fault);
  return fault.empty();
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.empty() || arguments.size() > 3) {
    fmt::print("usage: all_problems SOURCE_DIR [MODEL [TOPOLOGY]]\n");
    return 2;
  }
  try {
    const std::string& source = arguments[0];
    bool all_well = true;
    for (const std::string& model : profiled_models(source + "/profiles")) {
      if (arguments.size() > 1 && model != arguments[1]) continue;
      for (const std::string& cluster : names_in(source + "/topologies")) {
        const bool is_named = arguments.size() > 2 && cluster == arguments[2];
        if (arguments.size() > 2 && !is_named) continue;
        if (!is_named && (cluster == kGpus || is_large(source, cluster))) continue;
        all_well = plan_problem(source, model, cluster) && all_well;
        std::fflush(stdout);  // for whoever waits
      }
    }
    return all_well ? 0 : 1;
  } catch (const std::exception& failure) {
    fmt::print("{}\n", failure.what());
    return 3;
  }
}
