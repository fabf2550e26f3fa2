#include "dapple/report/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "dapple/report/causes.h"
#include "dapple/report/gantt.h"
#include "dapple/report/table.h"

namespace dapple {
namespace {

// Columns from which a line has room for more.
constexpr int kRoomForSamples = 92;
constexpr int kRoomForBars = 112;
constexpr int kRoomForCommunication = 146;
constexpr std::size_t kBarWidth = 8;

/// The device of a stage that its memory fills most.
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

std::string bar(double fraction, const TextStyle& style) {
  const auto eighths = static_cast<std::size_t>(
      std::lround(std::clamp(fraction, 0.0, 1.0) * static_cast<double>(kBarWidth) * 8));
  if (!style.unicode) {
    const std::size_t full = (eighths + 4) / 8;
    return '[' + std::string(full, '#') + std::string(kBarWidth - full, '.') + ']';
  }
  static constexpr std::array<const char*, 8> kParts{"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  std::string text;
  for (std::size_t i = 0; i < eighths / 8; ++i) text += "█";
  text += kParts[eighths % 8];
  const std::size_t used = eighths / 8 + (eighths % 8 > 0 ? 1 : 0);
  for (std::size_t i = used; i < kBarWidth; ++i) text += "·";
  return text;
}

/// "9.83 of 15.0 GiB": both in the unit that suits the whole.
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

Cell memory_cell(const StagePlan& stage, const Prediction& prediction, const TextStyle& style) {
  const std::optional<DeviceFigures> device = fullest_device(stage, prediction);
  if (!device) return {"-"};
  const Bytes used = device->peak_memory;
  const Bytes limit = device->memory_limit;
  const double fraction =
      static_cast<double>(used.count) / static_cast<double>(std::max<std::int64_t>(limit.count, 1));
  const bool narrow = style.width < kRoomForSamples;
  std::string text = fmt::format("{} {:>3.0f}{}%", show_part(used, limit, narrow ? "/" : " of "),
                                 100 * fraction, narrow ? "" : " ");
  if (style.width >= kRoomForBars) text = bar(fraction, style) + ' ' + text;
  return {text, used > limit ? Ink::Bad : fraction > 0.95 ? Ink::Warning : Ink::Plain};
}

std::string samples_text(const Plan& plan, const StagePlan& stage) {
  if (stage.replication == Replication::Deal && stage.devices.size() > 1) return "in turn";
  const auto replicas = static_cast<std::int64_t>(stage.devices.size());
  const std::int64_t least = plan.micro_batch_size / replicas;
  const bool uneven = plan.micro_batch_size % replicas != 0;
  return uneven ? fmt::format("{}-{}", least, least + 1) : fmt::format("{}", least);
}

std::string devices_text(const StagePlan& stage, const Topology& topology, const TextStyle& style) {
  std::string text = show_devices(stage.devices, topology);
  if (style.width < kRoomForSamples) return text;
  return fmt::format("{}: {}", stage.devices.size(), text);
}

Table empty_stage_table(const TextStyle& style) {
  std::vector<Column> columns{
      {"stage", Align::Right}, {"layers", Align::Left, 12}, {"devices", Align::Left, 12}};
  if (style.width >= kRoomForSamples) columns.push_back({"samples", Align::Right});
  columns.push_back({"forward", Align::Right});
  columns.push_back({"backward", Align::Right});
  columns.push_back({"depth", Align::Right});
  if (style.width >= kRoomForCommunication) {
    columns.push_back({"sends on", Align::Right});
    columns.push_back({"all-reduce", Align::Right});
    columns.push_back({"step", Align::Right});
  }
  columns.push_back({"memory of limit", Align::Right});
  return Table{std::move(columns)};
}

std::string stage_table(const PlanDocument& document, const Topology& topology,
                        const TextStyle& style) {
  const Plan& plan = document.plan;
  Table table = empty_stage_table(style);
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const StagePlan& stage = plan.stages[s];
    const StageFigures& figures = document.prediction.stages[s];
    std::vector<Cell> cells{
        {fmt::format("{}", s)},
        {fmt::format("{}: {}", stage.layers.size(), show_layers(stage.layers, document.profile))},
        {devices_text(stage, topology, style)}};
    if (style.width >= kRoomForSamples) cells.push_back({samples_text(plan, stage)});
    cells.push_back({show(figures.forward)});
    cells.push_back({show(figures.backward)});
    cells.push_back({fmt::format("{}", plan.warmup_depths[s])});
    if (style.width >= kRoomForCommunication) {
      cells.push_back({s + 1 < plan.stages.size() ? show(figures.send) : "-"});
      cells.push_back({stage.devices.size() > 1 ? show(figures.all_reduce) : "-"});
      cells.push_back({show(figures.optimizer_step)});
    }
    cells.push_back(memory_cell(stage, document.prediction, style));
    table.add_row(std::move(cells));
  }
  return table.text(0, style);
}

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

struct Figure {
  std::string name;
  std::string value;
};

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
  if (prediction.lower_bound) figures.push_back({"no plan below", show(*prediction.lower_bound)});
  if (prediction.optimality_gap) {
    // Rounded to "0.0 %", a small gap would look like none.
    figures.push_back({"gap", *prediction.optimality_gap == 0 ? "none: no plan is faster"
                              : *prediction.optimality_gap < 0.0005
                                  ? "below 0.05 %"
                                  : "at most " + show_percent(*prediction.optimality_gap)});
  }
  return figures;
}

/// Two figures to a line, read from left to right; one, where two have no room.
std::string figure_lines(const std::vector<Figure>& figures, const TextStyle& style) {
  constexpr std::size_t kBetween = 4;
  std::array<std::size_t, 2> name_widths{};
  std::array<std::size_t, 2> value_widths{};
  for (std::size_t i = 0; i < figures.size(); ++i) {
    name_widths[i % 2] = std::max(name_widths[i % 2], figures[i].name.size());
    value_widths[i % 2] = std::max(value_widths[i % 2], figures[i].value.size());
  }
  const std::size_t needed =
      2 + name_widths[0] + 2 + value_widths[0] + kBetween + name_widths[1] + 2 + value_widths[1];
  const bool in_pairs = needed <= static_cast<std::size_t>(std::max(style.width, 1));
  std::string text;
  for (std::size_t i = 0; i < figures.size(); ++i) {
    const bool is_right = in_pairs && i % 2 == 1;
    const std::size_t name_width =
        in_pairs ? name_widths[i % 2] : std::max(name_widths[0], name_widths[1]);
    if (!is_right) text += "  ";
    text += paint(fmt::format("{:<{}}", figures[i].name, name_width), Ink::Faint, style);
    text += "  " + figures[i].value;
    const bool is_last = is_right || !in_pairs || i + 1 == figures.size();
    text += is_last ? "\n" : std::string(value_widths[0] - figures[i].value.size() + kBetween, ' ');
  }
  return text;
}

/// "1.34x slower", "same time".
std::string factor_text(Duration theirs, Duration ours) {
  if (theirs == ours) return "same time";
  const bool slower = theirs > ours;
  const double ratio = static_cast<double>(std::max(theirs, ours).ns) /
                       static_cast<double>(std::max<std::int64_t>(std::min(theirs, ours).ns, 1));
  return fmt::format("{:.{}f}x {}", ratio, ratio < 1.1 ? 3 : 2, slower ? "slower" : "faster");
}

/// What it lacks, or what it loses by: the largest cause alone where there is no room for more.
Cell reason_cell(const Baseline& baseline, const Prediction& ours, const TextStyle& style) {
  if (!baseline.feasible) {
    return {fmt::format("does not fit, lacks {}", show(baseline.missing)), Ink::Bad};
  }
  if (baseline.iteration <= ours.iteration) return {"-"};
  std::string causes = main_causes(ours.parts, baseline.parts);
  if (style.width < kRoomForBars) causes = causes.substr(0, causes.find(','));
  if (baseline.depth_limited) causes += "; memory limits its depth";
  return {causes};
}

std::string baseline_table(const PlanDocument& document, const TextStyle& style) {
  const bool wide = style.width >= kRoomForSamples;
  std::vector<Column> columns{{"compared with"}};
  if (wide) columns.push_back({"stages, micro-batches", Align::Left, 12});
  columns.push_back({"iteration", Align::Right});
  columns.push_back({"is"});
  columns.push_back({"loses by", Align::Left, 12});
  Table table{std::move(columns)};
  for (const Baseline& baseline : document.baselines) {
    std::vector<Cell> cells{{printable(baseline.name)}};
    if (wide) cells.push_back({printable(baseline.shape)});
    cells.push_back({show(baseline.iteration)});
    cells.push_back({factor_text(baseline.iteration, document.prediction.iteration)});
    cells.push_back(reason_cell(baseline, document.prediction, style));
    table.add_row(std::move(cells));
  }
  return table.text(0, style) + '\n';
}

/// Each line after a heading of its own width, filled to the style's width.
std::string paragraphs(const std::string& heading, Ink ink, const std::vector<std::string>& lines,
                       const TextStyle& style) {
  std::string text;
  const std::size_t indent = display_width(heading) + 2;
  for (const std::string& line : lines) {
    text += text.empty() ? paint(heading, ink, style) + "  " : std::string(indent, ' ');
    text += fill_lines(printable(line), indent, style) + '\n';
  }
  return text;
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

std::string title(const PlanDocument& document, const TextStyle& style) {
  const Plan& plan = document.plan;
  const std::string name =
      fmt::format("{} on {}", printable(document.profile.name), printable(document.topology.name));
  const std::string batches = fmt::format(
      "global batch {} = {} micro-batch{} of {}, {}", show_count(plan.global_batch_size),
      show_count(plan.num_micro_batches), plan.num_micro_batches == 1 ? "" : "es",
      show_count(plan.micro_batch_size), to_string(plan.family));
  const std::size_t used = display_width(name) + display_width(batches);
  const auto width = static_cast<std::size_t>(std::max(style.width, 1));
  const std::string between = used + 2 > width ? "\n" : std::string("   ");
  return paint(name, Ink::Strong, style) + between + batches + '\n';
}

}  // namespace

std::string write_summary(const PlanDocument& document, const Timeline& timeline,
                          const Topology& topology, const TextStyle& style) {
  std::string text = title(document, style) + '\n';
  text += stage_table(document, topology, style) + '\n';
  text += figure_lines(headline(document, topology), style) + '\n';
  const std::string drawing = draw_timeline(timeline, style);
  if (!drawing.empty()) text += drawing + '\n';
  if (!document.baselines.empty()) text += baseline_table(document, style);
  if (document.search.simulated > 0 || !document.search.searched.empty()) {
    text += paragraphs("Searched", Ink::Strong, search_lines(document.search), style);
  }
  text += paragraphs("Warning", Ink::Warning, document.warnings, style);
  return text;
}

}  // namespace dapple
