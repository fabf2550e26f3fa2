// Our plans beside those that DAPPLE's own planner published for the same models and clusters, all
// simulated with the same costs. Where a published plan leaves split, micro-batch size or depths
// open, the best of that shape is taken. Exits with 1 if any of them is faster than ours.
//
//   published_shapes SOURCE_DIR [MODEL]

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <iterator>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "dapple/cost/cost_model.h"
#include "dapple/io/documents/documents.h"
#include "dapple/io/files/read_file.h"
#include "dapple/planner/candidates/evaluate.h"
#include "dapple/planner/make_plan.h"
#include "dapple/planner/result/made_plan.h"
#include "dapple/report/summary.h"
#include "dapple/search/bounds/bound.h"
#include "dapple/simulate/simulate.h"

namespace {

using namespace dapple;

struct PublishedPlan {
  std::string model;
  std::string topology;
  std::vector<std::int32_t> replicas;
  std::string cut_behind;  // layer that ends the first stage; empty: any
  double speedup = 0;      // its own estimate
};

const std::vector<std::int32_t> kStraight(16, 1);

/// Plans and estimates from the repository of DAPPLE's planner.
const PublishedPlan kPublished[] = {
    {"vgg-19", "2x8xV100", {15, 1}, "Conv2d_5_2", 12.06},
    {"vgg-19", "16x1xV100-25g", {14, 2}, "", 10.31},
    {"vgg-19", "16x1xV100-10g", {15, 1}, "Conv2d_5_2", 10.74},
    {"bert-48", "2x8xV100", {8, 8}, "encoder.23", 12.34},
    {"bert-48", "16x1xV100-25g", kStraight, "", 9.73},
    {"bert-48", "16x1xV100-10g", kStraight, "", 9.94},
    {"xlnet-36", "2x8xV100", {8, 8}, "encoder.17", 14.82},
    {"xlnet-36", "16x1xV100-25g", {8, 8}, "encoder.17", 11.93},
    {"xlnet-36", "16x1xV100-10g", kStraight, "", 10.78},
    {"amoebanet-36", "2x8xV100", {8, 8}, "", 11.88},
    {"amoebanet-36", "16x1xV100-25g", {11, 5}, "", 8.11},
    {"amoebanet-36", "16x1xV100-10g", {11, 5}, "", 5.09},
    {"gnmt-16", "2x8xV100", {8, 8}, "", 9.39},
    {"gnmt-16", "16x1xV100-25g", {8, 8}, "", 5.02},
    {"gnmt-16", "16x1xV100-10g", kStraight, "", 4.36},
};

/// The fastest plan of a shape, and the least that any plan of it lacks.
struct BestOfShape {
  std::optional<Plan> plan;
  Duration iteration{INT64_MAX};
  Bytes missing{INT64_MAX};
};

class ShapeSearch {
 public:
  ShapeSearch(const ModelProfile& profile, const Topology& topology, bool ignore_memory)
      : costs_(profile, topology), ignore_memory_(ignore_memory) {}

  BestOfShape search(const PublishedPlan& published);

 private:
  using Cuts = std::vector<std::int32_t>;

  std::vector<Cuts> first_cuts(const PublishedPlan& published, std::int64_t micro_batch) const;
  Cuts balanced(std::size_t stages, std::int64_t micro_batch) const;
  void try_cuts(const PublishedPlan& published, std::int64_t micro_batch, const Cuts& cuts);
  void try_depths(Plan& plan);
  void climb(const PublishedPlan& published, std::int64_t micro_batch, Cuts cuts);

  CostModel costs_;
  bool ignore_memory_;
  BestOfShape best_;
};

Plan make_shape(const ModelProfile& profile, const std::vector<std::int32_t>& replicas,
                std::int64_t micro_batch, const std::vector<std::int32_t>& cuts) {
  Plan plan;
  plan.global_batch_size = *profile.global_batch_size;
  plan.micro_batch_size = micro_batch;
  plan.num_micro_batches = plan.global_batch_size / micro_batch;
  std::int32_t device = 0;
  for (std::size_t s = 0; s < replicas.size(); ++s) {
    StagePlan& stage = plan.stages.emplace_back();
    stage.layers = {cuts[s], cuts[s + 1]};
    for (std::int32_t r = 0; r < replicas[s]; ++r) stage.devices.push_back(DeviceIndex{device++});
    if (replicas[s] > 1) stage.gradient_buckets = gradient_buckets(profile, stage.layers).sizes;
  }
  return plan;
}

void ShapeSearch::try_depths(Plan& plan) {
  const auto stages = static_cast<std::int64_t>(plan.stages.size());
  const std::int64_t most = plan.num_micro_batches;
  std::vector<std::vector<std::int64_t>> tried;
  for (const bool recompute : {false, true}) {
    for (StagePlan& stage : plan.stages) stage.recompute = recompute;
    for (const std::int64_t step : {1, 2, 3, 4, 6, 8, 12, 16, 32}) {
      for (const std::int64_t last : {1, 2, 3}) {
        std::vector<std::int64_t> depths;
        for (std::int64_t s = 0; s < stages; ++s) {
          depths.push_back(std::min(most, step * (stages - 1 - s) + last));
        }
        plan.warmup_depths = depths;
        const PlanCost cost = costs_.plan_cost(plan);
        const std::vector<MemoryShortage> shortages = memory_shortages(cost);
        if (!shortages.empty() && !ignore_memory_) {
          best_.missing = std::min(best_.missing, shortages.front().missing());
          continue;
        }
        if (search::lower_bound(plan, cost, costs_.topology()) >= best_.iteration) continue;
        const Duration time =
            simulate::simulate(generate(plan), cost, costs_.topology(), {.record = false})
                .iteration;
        if (time >= best_.iteration) continue;
        best_.iteration = time;
        best_.plan = plan;
      }
    }
  }
}

void ShapeSearch::try_cuts(const PublishedPlan& published, std::int64_t micro_batch,
                           const Cuts& cuts) {
  Plan plan = make_shape(costs_.profile(), published.replicas, micro_batch, cuts);
  try_depths(plan);
}

/// Every cut at the layer where its share of the time is reached.
ShapeSearch::Cuts ShapeSearch::balanced(std::size_t stages, std::int64_t micro_batch) const {
  const LayerTable& table = costs_.table(micro_batch, 0);
  const std::int32_t layers = costs_.layer_count();
  const auto time_until = [&](std::int32_t end) {
    return (table.forward({0, end}) + table.backward({0, end})).ns;
  };
  Cuts cuts{0};
  for (std::size_t s = 1; s < stages; ++s) {
    std::int32_t cut = cuts.back() + 1;
    const std::int32_t most = layers - static_cast<std::int32_t>(stages - s);
    while (cut < most && time_until(cut) * static_cast<std::int64_t>(stages) <
                             time_until(layers) * static_cast<std::int64_t>(s)) {
      ++cut;
    }
    cuts.push_back(cut);
  }
  cuts.push_back(layers);
  return cuts;
}

std::vector<ShapeSearch::Cuts> ShapeSearch::first_cuts(const PublishedPlan& published,
                                                       std::int64_t micro_batch) const {
  const std::int32_t layers = costs_.layer_count();
  std::vector<Cuts> all;
  if (!published.cut_behind.empty()) {
    for (std::int32_t l = 0; l < layers; ++l) {
      const std::string& name = costs_.profile().layers[static_cast<std::size_t>(l)].name;
      if (name == published.cut_behind) all.push_back({0, l + 1, layers});
    }
    check(!all.empty(), "a published cut names a layer that the profile does not have");
  } else if (published.replicas.size() == 2) {
    for (std::int32_t cut = 1; cut < layers; ++cut) all.push_back({0, cut, layers});
  } else {
    all.push_back(balanced(published.replicas.size(), micro_batch));
  }
  return all;
}

/// Moves one cut by one layer as long as that makes the shape faster.
void ShapeSearch::climb(const PublishedPlan& published, std::int64_t micro_batch, Cuts cuts) {
  for (bool improved = true; improved;) {
    improved = false;
    for (std::size_t c = 1; c + 1 < cuts.size(); ++c) {
      for (const std::int32_t step : {-1, 1}) {
        Cuts moved = cuts;
        moved[c] += step;
        if (moved[c] <= moved[c - 1] || moved[c] >= moved[c + 1]) continue;
        const Duration before = best_.iteration;
        try_cuts(published, micro_batch, moved);
        if (best_.iteration >= before) continue;
        cuts = moved;
        improved = true;
      }
    }
  }
}

BestOfShape ShapeSearch::search(const PublishedPlan& published) {
  best_ = {};
  const std::int64_t global = *costs_.profile().global_batch_size;
  const std::int64_t widest =
      *std::max_element(published.replicas.begin(), published.replicas.end());
  for (std::int64_t micro_batch = widest; micro_batch <= global; ++micro_batch) {
    if (global % micro_batch != 0) continue;
    for (const Cuts& cuts : first_cuts(published, micro_batch)) {
      try_cuts(published, micro_batch, cuts);
      if (published.replicas.size() > 2) climb(published, micro_batch, cuts);
    }
  }
  return best_;
}

std::string shape_text(const Plan& plan) {
  const bool straight =
      std::all_of(plan.stages.begin(), plan.stages.end(),
                  [](const StagePlan& stage) { return stage.devices.size() == 1; });
  std::string text;
  if (straight && plan.stages.size() > 2) {
    text = fmt::format("{} straight", plan.stages.size());
  } else {
    for (const StagePlan& stage : plan.stages) {
      text += fmt::format("{}{}", text.empty() ? "" : ":", stage.devices.size());
    }
  }
  return fmt::format("{}, B={}", text, plan.micro_batch_size);
}

/// What a stage's computation alone takes, on the busiest stage.
Duration busiest_stage(const Plan& plan, const Prediction& prediction) {
  Duration busiest;
  for (const StageFigures& stage : prediction.stages) {
    busiest = std::max(busiest, plan.num_micro_batches * (stage.forward + stage.backward));
  }
  return busiest;
}

std::string change(Duration theirs, Duration ours) {
  return fmt::format("{} -> {}", report::show(theirs), report::show(ours));
}

/// Where the difference comes from: theirs -> ours.
std::string reason(const Plan& plan, const Prediction& ours, const Plan& shape,
                   const Prediction& theirs) {
  if (ours.iteration == theirs.iteration) return "the same";
  return fmt::format(
      "why: busiest stage {}; bubble {:.1f} % -> {:.1f} %; exposed transfers {}; exposed "
      "all-reduce {}",
      change(busiest_stage(shape, theirs), busiest_stage(plan, ours)), 100 * theirs.bubble_fraction,
      100 * ours.bubble_fraction, change(theirs.exposed_transfer, ours.exposed_transfer),
      change(theirs.exposed_all_reduce, ours.exposed_all_reduce));
}

ModelProfile load_profile(const std::string& source, const std::string& name) {
  const std::string path = source + "/profiles/" + name + ".json";
  return io::read_profile(io::read_file(path), path);
}

bool compare(const PublishedPlan& published, const std::string& source, bool ignore_memory) {
  const ModelProfile profile = load_profile(source, published.model);
  const std::string path = source + "/topologies/" + published.topology + ".json";
  const Topology topology(io::read_topology(io::read_file(path), path), path);
  const auto made = planner::make_plan({profile,
                                        topology,
                                        {.global_batch_size = *profile.global_batch_size,
                                         .micro_batch_size = {},
                                         .family = {},
                                         .contention = Contention::Shared,
                                         .ignore_memory = ignore_memory,
                                         .threads = 2}});
  if (!std::holds_alternative<planner::MadePlan>(made)) {
    fmt::print("{:13} {:14} nothing fits\n", published.model, published.topology);
    return false;
  }
  const PlanDocument& ours = std::get<planner::MadePlan>(made).document;
  BestOfShape theirs = ShapeSearch(profile, topology, ignore_memory).search(published);
  fmt::print("{:13} {:14} {:22} {:>10} {:5.2f}x", published.model, published.topology,
             shape_text(ours.plan), report::show(ours.prediction.iteration),
             *ours.prediction.speedup_over_one_device);
  if (!theirs.plan) {
    fmt::print("   their shape does not fit: {} are missing\n", report::show(theirs.missing));
    return true;
  }
  const Prediction prediction =
      planner::evaluate(*theirs.plan, profile, topology, {Contention::Shared}).prediction;
  fmt::print(
      "   {:22} {:>10} {:5.2f}x (their estimate {:5.2f}x)   {:.3f}\n", shape_text(*theirs.plan),
      report::show(theirs.iteration), *prediction.speedup_over_one_device, published.speedup,
      static_cast<double>(theirs.iteration.ns) / static_cast<double>(ours.prediction.iteration.ns));
  fmt::print("{:29}{}\n", "", reason(ours.plan, ours.prediction, *theirs.plan, prediction));
  return ours.prediction.iteration <= theirs.iteration;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.empty()) {
    fmt::print("usage: published_shapes SOURCE_DIR [MODEL]\n");
    return 2;
  }
  try {
    bool never_slower = true;
    for (const bool ignore_memory : {false, true}) {
      fmt::print(
          "\n{}\nmodel         topology       ours                    simulated        "
          "   best of the published shape\n",
          ignore_memory ? "Memory unlimited" : "Within memory");
      for (const PublishedPlan& published : kPublished) {
        if (arguments.size() > 1 && published.model != arguments[1]) continue;
        never_slower = compare(published, arguments[0], ignore_memory) && never_slower;
      }
    }
    return never_slower ? 0 : 1;
  } catch (const std::exception& failure) {
    fmt::print("{}\n", failure.what());
    return 3;
  }
}
