#include "report/figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>
#include <utility>

#include "dapple/plan/optimality.h"
#include "dapple/plan/record_text.h"
#include "dapple/report/causes.h"
#include "dapple/report/show.h"

namespace dapple::report {
namespace {

/// Returns the parts that layers recompute, in which of them, and the stages that recompute all:
/// "nowhere", "every stage", or their numbers.
std::string recomputation_of(const Plan& plan) {
  const Recomputation parts = plan.parallelism.recomputation();
  const bool do_differ =
      std::any_of(plan.stage_forms.begin(), plan.stage_forms.end(),
                  [&](const Parallelism& form) { return form.recomputation() != parts; });
  std::vector<std::int32_t> numbers;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    if (plan.stages[s].recompute) numbers.push_back(static_cast<std::int32_t>(s));
  }
  std::string text;
  if (!parts.parts.none()) text = recomputation_text(plan.parallelism);
  if (!parts.parts.none() && parts.layers.is_all()) text += " in layers";
  // The table of stages says which.
  if (do_differ) text = "parts by stage";
  if (numbers.empty()) return text.empty() ? "nowhere" : text;
  if (!text.empty()) text += ", ";
  if (numbers.size() == plan.stages.size()) return text + "every stage";
  return text + (numbers.size() == 1 ? "stage " : "stages ") + show_numbers(numbers);
}

std::string joined(const std::vector<std::string>& texts) {
  return fmt::format("{}", fmt::join(texts, "; "));
}

/// Rounds up to the tenth of a percent that is shown, so that the shown value is an upper bound.
double rounded_up(double fraction) {
  return std::ceil(fraction * 1000) / 1000;
}

}  // namespace

StageIndex home_stage(const Timeline& timeline, LaneIndex lane) {
  return timeline.lanes[lane.position()].stages.front();
}

namespace {

/// Returns the position of a lane among the replicas that split the micro-batches of its stages, or
/// nothing if it processes whole micro-batches.
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
  // Lanes to which whole micro-batches are dealt have all samples of these.
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
    // The shares are compared as products, because with quotients rounding could change the choice.
    if (!fullest || Wide{figures.peak_memory.count} * fullest->memory_limit.count >
                        Wide{fullest->peak_memory.count} * figures.memory_limit.count) {
      fullest = figures;
    }
  }
  return fullest;
}

LongestTimes longest_times(const std::vector<StageFigures>& stages) {
  LongestTimes longest;
  for (const StageFigures& figures : stages) {
    longest.pass = std::max({longest.pass, figures.forward, figures.backward});
    longest.end = std::max({longest.end, figures.all_reduce, figures.optimizer_step});
  }
  return longest;
}

std::string show_part(Bytes part, Bytes whole, std::string_view between) {
  const std::string text = show(part, whole);
  return fmt::format("{}{}{}", text.substr(0, text.find(' ')), between, show(whole));
}

std::string runs_text(const std::vector<std::int64_t>& numbers) {
  std::string text;
  for (auto run = numbers.begin(); run != numbers.end();) {
    const auto end = std::find_if(run, numbers.end(), [&](std::int64_t n) { return n != *run; });
    if (!text.empty()) text += ", ";
    if (end - run > 1) text += fmt::format("{}x", end - run);
    text += fmt::format("{}", *run);
    run = end;
  }
  return text;
}

std::string samples_text(const Plan& plan, const StagePlan& stage) {
  if (dealt_to(stage) > 1) return "in turn";
  if (!stage.samples.empty()) return runs_text(stage.samples);
  const std::int64_t replicas = replicas_of(stage);
  const std::int64_t least = plan.micro_batch_size / replicas;
  const bool uneven = plan.micro_batch_size % replicas != 0;
  return uneven ? fmt::format("{}-{}", least, least + 1) : fmt::format("{}", least);
}

std::string gradients_text(const GradientSynchronization& gradients) {
  return fmt::format(
      "in buckets of {}{}, the optimizer {}", show(gradients.bucket_size),
      gradients.overlaps ? "" : " behind the last backward",
      gradients.optimizer == OptimizerTiming::AtEnd ? "at the end" : "bucket by bucket");
}

/// Returns throughput in tokens and, as model FLOPs utilization, what it is of the devices' peak;
/// nothing if the profile does not say what a sample is.
std::vector<Figure> figures_of_tokens(const PlanDocument& document, std::int64_t gpus) {
  const std::optional<SampleWork>& sample = document.profile.sample;
  if (!sample) return {};
  const double samples = document.prediction.samples_per_second;
  const double tokens = samples * static_cast<double>(sample->tokens);
  std::vector<Figure> figures{
      {"tokens", fmt::format("{} a second, {} a device", show_rate(tokens),
                             show_rate(tokens / static_cast<double>(gpus)))}};
  // Other kinds of devices have other peaks.
  const std::vector<DeviceKind>& kinds = document.topology.devices;
  if (kinds.size() != 1 || kinds.front().name != document.profile.device) return figures;
  const double peak =
      static_cast<double>(sample->peak_gflop_per_second) * static_cast<double>(gpus);
  figures.push_back({"MFU", show_percent(samples * static_cast<double>(sample->gflop) / peak)});
  return figures;
}

/// Returns the proven bound and the gap to it; nothing where no bound is proven.
std::vector<Figure> figures_of_bound(const PlanDocument& document) {
  const Prediction& prediction = document.prediction;
  std::vector<Figure> figures;
  // The bound holds for all plans of the family if the search was complete and tensors are not sent
  // directly, and for the orders of the given stages if the plan was rescheduled. Otherwise it
  // holds for the plans that remained in the space.
  const bool is_of_all =
      document.search.complete && document.plan.skip_tensors == SkipTensors::Forwarded;
  const bool is_of_orders = document.search.planner == kReschedulePlanner;
  const std::string plans = is_of_all ? fmt::format("no {} plan", to_string(document.plan.family))
                            : is_of_orders ? "no order of these stages"
                            : document.schedules.empty()
                                ? fmt::format("no {} plan allowed", to_string(document.plan.family))
                                : "no plan allowed";
  if (prediction.lower_bound) {
    figures.push_back({is_of_all      ? plans + " below"
                       : is_of_orders ? "no order below"
                                      : "none allowed below",
                       show(*prediction.lower_bound, prediction.iteration)});
  }
  if (prediction.optimality_gap) {
    // A small gap must not be rounded to "0.0 %", which would look like none.
    figures.push_back(
        {"gap", *prediction.optimality_gap == 0 ? "none: " + plans + " is faster"
                : *prediction.optimality_gap < 0.0005
                    ? "below 0.05 %"
                    : "at most " + show_percent(rounded_up(*prediction.optimality_gap))});
  }
  return figures;
}

std::vector<Figure> headline(const PlanDocument& document, const Topology& topology) {
  const Prediction& prediction = document.prediction;
  const std::int64_t group = topology.description().group_size;
  std::vector<Figure> figures{
      {"iteration", show(prediction.iteration) + ", simulated"},
      {"throughput", show_rate(prediction.samples_per_second) + " samples/s"}};
  for (Figure& figure : figures_of_tokens(document, std::ssize(prediction.devices) * group)) {
    figures.push_back(std::move(figure));
  }
  figures.push_back({"exposed transfers", show(prediction.exposed_transfer, prediction.iteration)});
  figures.push_back({"bubble", show_percent(prediction.bubble_fraction)});
  figures.push_back(
      {"exposed all-reduce", show(prediction.exposed_all_reduce, prediction.iteration)});
  figures.push_back({"recomputation", recomputation_of(document.plan)});
  if (prediction.parts.collectives > Duration{}) {
    figures.push_back({"collectives", show(prediction.parts.collectives, prediction.iteration)});
  }
  if (prediction.speedup_over_one_device) {
    figures.push_back(
        {"speedup", fmt::format("{:.2f} x one {}", *prediction.speedup_over_one_device,
                                group == 1 ? "device" : fmt::format("group of {}", group))});
  }
  // A profile may have been measured on several GPUs as one device.
  const std::int64_t gpus = document.original_profile().tensor_parallel;
  figures.push_back({"devices used",
                     fmt::format("{} of {}{}", std::ssize(prediction.devices) * group,
                                 topology.device_count() * group,
                                 gpus > 1 ? fmt::format(", each {} GPUs", gpus) : std::string())});
  if (document.runtime) figures.push_back({"runtime", document.runtime->name});
  if (prediction.transfers != Transfers::Overlapped) {
    const bool is_serial = prediction.transfers == Transfers::Serial;
    figures.push_back(
        {"transfers", is_serial ? "block both stages, one at a time" : "block both stages"});
  } else if (document.runtime && document.runtime->transfers != Transfers::Overlapped) {
    figures.push_back({"transfers", "overlap with computation"});
  }
  if (document.plan.gradients != GradientSynchronization{}) {
    figures.push_back({"gradients", gradients_text(document.plan.gradients)});
  }
  for (Figure& figure : figures_of_bound(document)) figures.push_back(std::move(figure));
  return figures;
}

std::string change_text(Duration time, Duration than) {
  const auto whole = static_cast<double>(std::max<std::int64_t>(than.ns, 1));
  return fmt::format("{:+.1f} %", 100 * (static_cast<double>(time.ns) / whole - 1));
}

std::string longer_text(Duration time, Duration than) {
  return fmt::format("{} ({})", show(time, than), change_text(time, than));
}

std::vector<Figure> figures_of_jitter(const PlanDocument& document) {
  if (!document.prediction.jitter) return {};
  const JitterFigures& jitter = *document.prediction.jitter;
  const Duration iteration = document.prediction.iteration;
  std::vector<Figure> figures{
      {"median", longer_text(jitter.median, iteration)},
      {"95th percentile", longer_text(jitter.ninety_fifth, iteration)},
      {"device 10 % slower",
       fmt::format("up to {}, in stage {}",
                   change_text(jitter.with_slow_device[jitter.worst_stage().position()], iteration),
                   jitter.worst_stage().value)}};
  if (document.request && document.request->jitter) {
    const Factor deviation = document.request->jitter->deviation;
    figures.insert(figures.begin(),
                   {"jitter", show_percent(static_cast<double>(deviation.billionths) /
                                           static_cast<double>(kOne.billionths))});
  }
  if (fastest_found(document) != iteration) {
    figures.push_back({"fastest plan", longer_text(fastest_found(document), iteration)});
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
  std::string causes = main_causes(ours.parts, baseline.parts, ours.iteration);
  if (count == CauseCount::Largest) causes = causes.substr(0, causes.find(','));
  if (baseline.depth_limited) causes += "; memory limits its depth";
  return causes;
}

namespace {

std::string plural(std::int64_t count, std::string_view word) {
  return fmt::format("{} {}{}", show_count(count), word, count == 1 ? "" : "s");
}

/// Describes how the search found its plan, or why it simulated nothing.
std::string counts_text(const SearchRecord& search) {
  if (search.planner == kReschedulePlanner) {
    if (search.candidates == 0) {
      return search.searched.empty() ? "nothing: the schedule was given" : joined(search.searched);
    }
    const std::string what =
        search.searched.empty() ? std::string("warm-up depths") : joined(search.searched);
    return fmt::format("{}: {} tried, {} simulated", what, show_count(search.candidates),
                       show_count(search.simulated));
  }
  if (search.states == 0 && search.candidates == 0) {
    if (search.planner == kExactPlanner || search.planner == kDiagramPlanner) {
      return search.open == 0 ? "nothing beyond the first plans, which none can beat"
                              : "nothing beyond the first plans";
    }
    return search.searched.empty() ? "nothing: the plan was given" : joined(search.searched);
  }
  const std::string parts = plural(search.states, "partial plan");
  if (search.candidates == 0) {
    return parts + (search.open == 0 ? "; none can beat the first plan"
                                     : "; none was complete when the search ended");
  }
  const std::string plans = plural(search.candidates, "complete one");
  return search.simulated == search.candidates
             ? fmt::format("{}, {}, all simulated", parts, plans)
             : fmt::format("{}, {}, {} simulated", parts, plans, show_count(search.simulated));
}

}  // namespace

std::vector<std::string> search_headlines(const SearchRecord& search) {
  std::string counts = counts_text(search);
  if (!search.cut.empty()) {
    counts +=
        fmt::format("; {} cut (-v)", plural(static_cast<std::int64_t>(search.cut.size()), "part"));
  }
  std::vector<std::string> lines{std::move(counts)};
  if (!search.outside.empty()) lines.push_back("not searched: " + search.outside);
  return lines;
}

std::vector<std::string> search_lines(const SearchRecord& search) {
  std::vector<std::string> lines{counts_text(search)};
  if (!search.planner.empty()) lines.push_back("by the planner " + search.planner);
  const bool is_rescheduled = search.planner == kReschedulePlanner;
  if (search.open > 0) {
    lines.push_back(is_rescheduled
                        ? std::string("the gap lies in orders that were not tried")
                        : fmt::format("the gap lies in {} and parts of plans that were left open",
                                      plural(search.open, "plan")));
  }
  const bool has_counts = search.states > 0 || search.candidates > 0;
  if (has_counts && !is_rescheduled && !search.searched.empty())
    lines.push_back("over " + joined(search.searched));
  for (const std::string& cut : search.cut) lines.push_back("left out: " + cut);
  if (!search.outside.empty()) lines.push_back("not searched: " + search.outside);
  return lines;
}

}  // namespace dapple::report
