#include "figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>
#include <utility>

#include "dapple/report/causes.h"
#include "dapple/report/show.h"

namespace dapple {
namespace {

/// "nowhere", "every stage", or the stages' numbers.
std::string recomputing_stages(const Plan& plan) {
  std::vector<std::int32_t> numbers;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    if (plan.stages[s].recompute) numbers.push_back(static_cast<std::int32_t>(s));
  }
  if (numbers.empty()) return "nowhere";
  if (numbers.size() == plan.stages.size()) return "every stage";
  return (numbers.size() == 1 ? "stage " : "stages ") + show_numbers(numbers);
}

/// To the tenth of a percent that is shown, so that what is said to be at most is no less.
double rounded_up(double fraction) {
  return std::ceil(fraction * 1000) / 1000;
}

}  // namespace

StageIndex home_stage(const Timeline& timeline, LaneIndex lane) {
  return timeline.lanes[lane.position()].stages.front();
}

namespace {

/// Which of the lanes that share the samples of these stages' micro-batches it is; nothing if it
/// works on all of them.
std::optional<std::size_t> replica_of(const Timeline& timeline, LaneIndex lane) {
  const auto same_stages = [&](std::size_t other) {
    return other < timeline.lanes.size() &&
           timeline.lanes[other].stages == timeline.lanes[lane.position()].stages;
  };
  std::size_t first = lane.position();
  while (first > 0 && same_stages(first - 1)) --first;
  if (!same_stages(first + 1)) return std::nullopt;
  const std::optional<SampleRange>& share = timeline.lanes[first].samples;
  const std::optional<SampleRange>& next = timeline.lanes[first + 1].samples;
  // Lanes that are dealt whole micro-batches have all their samples.
  const bool is_share = share && next && share->end <= next->begin;
  return is_share ? std::optional(lane.position() - first) : std::nullopt;
}

}  // namespace

std::string lane_title(const Timeline& timeline, LaneIndex lane) {
  std::vector<std::int32_t> numbers;
  for (const StageIndex stage : timeline.lanes[lane.position()].stages) {
    numbers.push_back(stage.value);
  }
  const std::string stages = (numbers.size() == 1 ? "stage " : "stages ") + show_numbers(numbers);
  const std::optional<std::size_t> replica = replica_of(timeline, lane);
  return replica ? fmt::format("{} replica {}", stages, *replica) : stages;
}

std::optional<DeviceFigures> fullest_device(const StagePlan& stage, const Prediction& prediction) {
  std::optional<DeviceFigures> fullest;
  for (const DeviceFigures& figures : prediction.devices) {
    if (std::find(stage.devices.begin(), stage.devices.end(), figures.device) ==
        stage.devices.end()) {
      continue;
    }
    // Compared as products: a quotient would make the choice depend on rounding.
    if (!fullest || Wide{figures.peak_memory.count} * fullest->memory_limit.count >
                        Wide{fullest->peak_memory.count} * figures.memory_limit.count) {
      fullest = figures;
    }
  }
  return fullest;
}

std::string show_part(Bytes part, Bytes whole, std::string_view between) {
  const std::string whole_text = show(whole);
  const std::string unit = whole_text.substr(whole_text.find(' ') + 1);
  double size = 1;
  for (const char* name : {"KiB", "MiB", "GiB", "TiB", "PiB"}) {
    if (unit == "B") break;
    size *= 1024;
    if (unit == name) break;
  }
  const double count = static_cast<double>(part.count) / size;
  const int decimals = unit == "B" ? 0 : count < 9.995 ? 2 : count < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f}{}{}", count, decimals, between, whole_text);
}

std::string samples_text(const Plan& plan, const StagePlan& stage) {
  if (stage.replication == Replication::Deal && stage.devices.size() > 1) return "in turn";
  const auto replicas = static_cast<std::int64_t>(stage.devices.size());
  const std::int64_t least = plan.micro_batch_size / replicas;
  const bool uneven = plan.micro_batch_size % replicas != 0;
  return uneven ? fmt::format("{}-{}", least, least + 1) : fmt::format("{}", least);
}

std::string gradients_text(const GradientHandling& gradients) {
  return fmt::format(
      "in buckets of {}, the optimizer {}", show(gradients.bucket_size),
      gradients.optimizer == OptimizerTiming::AtEnd ? "at the end" : "bucket by bucket");
}

std::vector<Figure> headline(const PlanDocument& document, const Topology& topology) {
  const Prediction& prediction = document.prediction;
  std::vector<Figure> figures{
      {"iteration", show(prediction.iteration) + ", simulated"},
      {"throughput", show_rate(prediction.samples_per_second) + " samples/s"},
      {"exposed transfers", show(prediction.exposed_transfer)},
      {"bubble", show_percent(prediction.bubble_fraction)},
      {"exposed all-reduce", show(prediction.exposed_all_reduce)},
      {"recomputation", recomputing_stages(document.plan)}};
  if (prediction.speedup_over_one_device) {
    figures.push_back(
        {"speedup", fmt::format("{:.2f} x one device", *prediction.speedup_over_one_device)});
  }
  figures.push_back({"devices used",
                     fmt::format("{} of {}", prediction.devices.size(), topology.device_count())});
  if (document.plan.gradients != GradientHandling{}) {
    figures.push_back({"gradients", gradients_text(document.plan.gradients)});
  }
  // Where parts of the space were left out, it is of the plans that are in it.
  const bool is_of_all = document.search.complete;
  const std::string plans = fmt::format("no {} plan", to_string(document.plan.family));
  if (prediction.lower_bound) {
    figures.push_back(
        {is_of_all ? plans + " below" : "none allowed below", show(*prediction.lower_bound)});
  }
  if (prediction.optimality_gap) {
    // Rounded to "0.0 %", a small gap would look like none.
    figures.push_back(
        {"gap", *prediction.optimality_gap == 0
                    ? "none: " + (is_of_all ? plans : "no plan allowed") + " is faster"
                : *prediction.optimality_gap < 0.0005
                    ? "below 0.05 %"
                    : "at most " + show_percent(rounded_up(*prediction.optimality_gap))});
  }
  return figures;
}

std::string factor_text(Duration theirs, Duration ours) {
  if (theirs == ours) return "same time";
  const bool slower = theirs > ours;
  const double ratio = static_cast<double>(std::max(theirs, ours).ns) /
                       static_cast<double>(std::max<std::int64_t>(std::min(theirs, ours).ns, 1));
  return fmt::format("{:.{}f}x {}", ratio, ratio < 1.1 ? 3 : 2, slower ? "slower" : "faster");
}

std::string loses_by(const Baseline& baseline, const Prediction& ours, CauseCount count) {
  if (!baseline.feasible) return fmt::format("does not fit, lacks {}", show(baseline.missing));
  if (baseline.iteration <= ours.iteration) return "-";
  std::string causes = main_causes(ours.parts, baseline.parts);
  if (count == CauseCount::Largest) causes = causes.substr(0, causes.find(','));
  if (baseline.depth_limited) causes += "; memory limits its depth";
  return causes;
}

std::vector<std::string> search_lines(const SearchRecord& search) {
  std::vector<std::string> lines;
  std::string counts =
      fmt::format("{} states, {} candidates, {} simulated", show_count(search.states),
                  show_count(search.candidates), show_count(search.simulated));
  if (!search.planner.empty()) counts = fmt::format("planner {}: {}", search.planner, counts);
  lines.push_back(std::move(counts));
  if (search.open > 0) {
    lines.push_back(fmt::format("the gap lies in {} plans and parts of plans that were left open",
                                show_count(search.open)));
  }
  std::string searched;
  for (const std::string& dimension : search.searched) {
    searched += (searched.empty() ? "" : "; ") + dimension;
  }
  if (!searched.empty()) lines.push_back("over " + searched);
  for (const std::string& cut : search.cut) lines.push_back("left out: " + cut);
  return lines;
}

}  // namespace dapple
