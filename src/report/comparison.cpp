#include "dapple/report/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "dapple/report/causes.h"
#include "dapple/report/table.h"

namespace dapple {
namespace {

bool same_stage(const StagePlan& a, const StagePlan& b) {
  return a.layers == b.layers && a.devices == b.devices && a.replication == b.replication &&
         a.recompute == b.recompute && a.gradient_buckets == b.gradient_buckets;
}

bool same_plan(const Plan& a, const Plan& b) {
  return a.global_batch_size == b.global_batch_size && a.micro_batch_size == b.micro_batch_size &&
         a.num_micro_batches == b.num_micro_batches && a.gradients == b.gradients &&
         a.family == b.family && a.warmup_depths == b.warmup_depths &&
         std::equal(a.stages.begin(), a.stages.end(), b.stages.begin(), b.stages.end(), same_stage);
}

std::string signed_percent(double first, double second) {
  if (first == second) return "same";
  if (first == 0) return "-";
  return fmt::format("{:+.1f} %", 100 * (second - first) / first);
}

std::string signed_percent(Duration first, Duration second) {
  return signed_percent(static_cast<double>(first.ns), static_cast<double>(second.ns));
}

Bytes largest_peak(const Prediction& prediction) {
  Bytes largest;
  for (const DeviceFigures& device : prediction.devices) {
    largest = std::max(largest, device.peak_memory);
  }
  return largest;
}

std::string batches_of(const Plan& plan) {
  return fmt::format("{} of {}", plan.num_micro_batches, plan.micro_batch_size);
}

std::string headline_table(const ComparedPlan& first, const ComparedPlan& second,
                           const TextStyle& style) {
  const Prediction& a = first.prediction;
  const Prediction& b = second.prediction;
  Table table{{{""}, {"A", Align::Right}, {"B", Align::Right}, {"B against A", Align::Right}}};
  const auto add_time = [&table](const char* name, Duration x, Duration y) {
    table.add_row({{name}, {show(x)}, {show(y)}, {signed_percent(x, y)}});
  };
  add_time("iteration", a.iteration, b.iteration);
  table.add_row({{"samples/s"},
                 {show_rate(a.samples_per_second)},
                 {show_rate(b.samples_per_second)},
                 {signed_percent(a.samples_per_second, b.samples_per_second)}});
  table.add_row({{"bubble"},
                 {show_percent(a.bubble_fraction)},
                 {show_percent(b.bubble_fraction)},
                 {fmt::format("{:+.1f} points", 100 * (b.bubble_fraction - a.bubble_fraction))}});
  add_time("exposed transfers", a.exposed_transfer, b.exposed_transfer);
  add_time("exposed all-reduce", a.exposed_all_reduce, b.exposed_all_reduce);
  table.add_row({{"largest memory"},
                 {show(largest_peak(a))},
                 {show(largest_peak(b))},
                 {signed_percent(static_cast<double>(largest_peak(a).count),
                                 static_cast<double>(largest_peak(b).count))}});
  const auto add_text = [&table](const char* name, const std::string& x, const std::string& y) {
    table.add_row({{name}, {x}, {y}, {x == y ? "same" : ""}});
  };
  add_text("devices used", fmt::format("{}", a.devices.size()),
           fmt::format("{}", b.devices.size()));
  add_text("stages", fmt::format("{}", first.plan.stages.size()),
           fmt::format("{}", second.plan.stages.size()));
  add_text("micro-batches", batches_of(first.plan), batches_of(second.plan));
  add_text("schedule", std::string{to_string(first.plan.family)},
           std::string{to_string(second.plan.family)});
  if (first.plan.gradients != second.plan.gradients) {
    add_text("bucket size", show(first.plan.gradients.bucket_size),
             show(second.plan.gradients.bucket_size));
    add_text("optimizer step", std::string{to_string(first.plan.gradients.optimizer)},
             std::string{to_string(second.plan.gradients.optimizer)});
  }
  return table.text(0, style);
}

std::string signed_time(Duration first, Duration second) {
  if (first == second) return "same";
  return second > first ? '+' + show(second - first) : '-' + show(first - second);
}

/// Where the time goes, part by part; parts that neither has are left out.
std::string parts_table(const TimeParts& a, const TimeParts& b, const TextStyle& style) {
  Table table{{{"of which"}, {"A", Align::Right}, {"B", Align::Right}, {"B less A", Align::Right}}};
  for (const TimePart& part : kTimeParts) {
    const Duration first = a.*part.part;
    const Duration second = b.*part.part;
    if (first == Duration{} && second == Duration{}) continue;
    table.add_row({{part.name}, {show(first)}, {show(second)}, {signed_time(first, second)}});
  }
  return table.text(0, style);
}

std::vector<Cell> stage_cells(const std::string& label, const ComparedPlan& compared, std::size_t s,
                              const ComparedPair& pair) {
  const StagePlan& stage = compared.plan.stages[s];
  const StageFigures figures =
      s < compared.prediction.stages.size() ? compared.prediction.stages[s] : StageFigures{};
  std::string layers =
      fmt::format("{}: {}", stage.layers.size(), show_layers(stage.layers, pair.profile));
  return {
      {label},
      {std::move(layers)},
      {fmt::format("{}: {}{}", stage.devices.size(), show_devices(stage.devices, pair.topology),
                   stage.replication == Replication::Deal ? ", in turn" : "")},
      {show(figures.forward)},
      {show(figures.backward)},
      {s < compared.plan.warmup_depths.size() ? fmt::format("{}", compared.plan.warmup_depths[s])
                                              : "-"},
      {stage.recompute ? "yes" : "no"}};
}

std::string stage_table(const ComparedPair& pair, const TextStyle& style) {
  const ComparedPlan& first = pair.first;
  const ComparedPlan& second = pair.second;
  Table table{{{"stage", Align::Right},
               {"layers", Align::Left, 8},
               {"devices", Align::Left, 8},
               {"forward", Align::Right},
               {"backward", Align::Right},
               {"depth", Align::Right},
               {"recompute"}}};
  const std::size_t count = std::max(first.plan.stages.size(), second.plan.stages.size());
  for (std::size_t s = 0; s < count; ++s) {
    const bool in_first = s < first.plan.stages.size();
    const bool in_second = s < second.plan.stages.size();
    const bool same = in_first && in_second &&
                      same_stage(first.plan.stages[s], second.plan.stages[s]) &&
                      first.plan.warmup_depths[s] == second.plan.warmup_depths[s] &&
                      first.plan.micro_batch_size == second.plan.micro_batch_size;
    if (same) {
      table.add_row(stage_cells(fmt::format("{} AB", s), first, s, pair));
      continue;
    }
    if (in_first) { table.add_row(stage_cells(fmt::format("{}  A", s), first, s, pair)); }
    if (in_second) { table.add_row(stage_cells(fmt::format("{}  B", s), second, s, pair)); }
  }
  return table.text(0, style);
}

}  // namespace

std::string write_comparison(const ComparedPair& pair, const TextStyle& style) {
  const ComparedPlan& first = pair.first;
  const ComparedPlan& second = pair.second;
  std::string text = fmt::format("{} on {}\n  A  {}\n  B  {}\n\n", printable(pair.profile.name),
                                 printable(pair.topology.description().name), printable(first.name),
                                 printable(second.name));
  text += headline_table(first, second, style) + '\n';
  text += parts_table(first.prediction.parts, second.prediction.parts, style) + '\n';
  text += stage_table(pair, style) + '\n';
  const Duration a = first.prediction.iteration;
  const Duration b = second.prediction.iteration;
  if (same_plan(first.plan, second.plan)) {
    text += "The plans are the same.\n";
  } else if (a == b) {
    text += "The plans differ and take the same time.\n";
  } else {
    const ComparedPlan& faster = a < b ? first : second;
    const ComparedPlan& slower = a < b ? second : first;
    const Duration least = std::min(a, b);
    const Duration most = std::max(a, b);
    text += fmt::format("{} loses by {}.\n", a < b ? "B" : "A",
                        main_causes(faster.prediction.parts, slower.prediction.parts));
    text += fmt::format(
        "{} is faster: {} less per iteration, {:.3f} x.\n", a < b ? "A" : "B", show(most - least),
        static_cast<double>(most.ns) / static_cast<double>(std::max<std::int64_t>(least.ns, 1)));
  }
  return text;
}

}  // namespace dapple
