#include "dapple/report/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "dapple/report/gantt.h"
#include "dapple/report/table.h"
#include "report/figures.h"

namespace dapple::report {
namespace {

// The line widths from which more is shown.
constexpr int kRoomForSamples = 92;
constexpr int kRoomForBars = 112;
constexpr int kRoomForCommunication = 146;
constexpr std::size_t kBarWidth = 8;

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

std::string devices_text(const StagePlan& stage, const Topology& topology, const TextStyle& style) {
  std::string text = show_devices(stage.devices, topology);
  if (style.width < kRoomForSamples) return text;
  return fmt::format("{}: {}", show_device_count(stage.devices.size(), topology), text);
}

Table empty_stage_table(const Plan& plan, const TextStyle& style) {
  std::vector<Column> columns{
      {"stage", Align::Right}, {"layers", Align::Left, 12}, {"devices", Align::Left, 12}};
  if (!plan.stage_forms.empty()) columns.push_back({"parallelism", Align::Left, 12});
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
  Table table = empty_stage_table(plan, style);
  const LongestTimes longest = longest_times(document.prediction.stages);
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const StagePlan& stage = plan.stages[s];
    const StageFigures& figures = document.prediction.stages[s];
    std::vector<Cell> cells{
        {fmt::format("{}", s)},
        {fmt::format("{}: {}", stage.layers.size(), show_layers(stage.layers, document.profile))},
        {devices_text(stage, topology, style)}};
    if (!plan.stage_forms.empty()) cells.push_back({short_text(form_of(plan, stage))});
    if (style.width >= kRoomForSamples) cells.push_back({samples_text(plan, stage)});
    cells.push_back({show(figures.forward, longest.pass)});
    cells.push_back({show(figures.backward, longest.pass)});
    cells.push_back({fmt::format("{}", depth_on_replica(plan, index_at<StageIndex>(s)))});
    if (style.width >= kRoomForCommunication) {
      cells.push_back({s + 1 < plan.stages.size() ? show(figures.send) : "-"});
      cells.push_back({replicas_of(stage) > 1 ? show(figures.all_reduce, longest.end) : "-"});
      cells.push_back({show(figures.optimizer_step, longest.end)});
    }
    cells.push_back(memory_cell(stage, document.prediction, style));
    table.add_row(std::move(cells));
  }
  return table.text(0, style);
}

/// Lays out two figures per line, read from left to right, or one if two do not fit.
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

/// Returns which options keep a faster baseline from being the plan; "-" where the plan was not
/// chosen for its time alone, or by no options that are known. A plan is never slower than a
/// baseline that its options allow.
std::string why_not_chosen(const PlanDocument& document) {
  if (!document.request || document.request->jitter) return "-";
  const PlanRequest& request = *document.request;
  std::vector<std::string> options;
  for (const std::string& pin : to_texts(request.pins, document.original_profile())) {
    options.push_back("--pin " + printable(pin));
  }
  if (!request.target.empty()) options.push_back("--for " + request.target);
  if (request.family) {
    const std::string family(to_string(*request.family));
    if (request.family != ScheduleFamily::OneFOneB) options.push_back("--schedule " + family);
  }
  return options.empty() ? "-" : fmt::format("not allowed by {}", fmt::join(options, ", "));
}

/// Returns the cell with the causes for which a baseline loses: only the largest cause on a narrow
/// terminal.
Cell reason_cell(const Baseline& baseline, const PlanDocument& document, const TextStyle& style) {
  const Prediction& ours = document.prediction;
  if (baseline.feasible && baseline.iteration < ours.iteration) {
    return {why_not_chosen(document)};
  }
  const bool is_narrow = style.wraps && style.width < kRoomForBars;
  const CauseCount count = is_narrow ? CauseCount::Largest : CauseCount::All;
  return {loses_by(baseline, ours, count), baseline.feasible ? Ink::Plain : Ink::Bad};
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
    cells.push_back({show(baseline.iteration, document.prediction.iteration)});
    cells.push_back({factor_text(baseline.iteration, document.prediction.iteration)});
    cells.push_back(reason_cell(baseline, document, style));
    table.add_row(std::move(cells));
  }
  return table.text(0, style) + '\n';
}

/// Adds the row of a schedule family or a form of parallelism that was considered.
template <class Record>
void add_considered(Table& table, const Record& record, Cell name, Duration iteration, bool wide) {
  const auto time_text = [&](const std::optional<Duration>& time) {
    return time ? show(*time, iteration) : std::string("-");
  };
  std::vector<Cell> cells{std::move(name)};
  if (wide) cells.push_back({record.shape.empty() ? "-" : printable(record.shape)});
  cells.push_back(
      {record.missing.count > 0 ? "lacks " + show(record.missing) : time_text(record.iteration)});
  cells.push_back({time_text(record.lower_bound)});
  cells.push_back({printable(record.reason)});
  table.add_row(std::move(cells));
}

Table empty_considered_table(const char* what, bool wide) {
  std::vector<Column> columns{{what}};
  if (wide) columns.push_back({"stages, micro-batches", Align::Left, 12});
  columns.push_back({"best found", Align::Right});
  columns.push_back({"none below", Align::Right});
  columns.push_back({"why", Align::Left, 24});
  return Table{std::move(columns)};
}

/// Returns a table of what is known of each family that was considered, with that of the plan in
/// bold.
std::string schedule_table(const PlanDocument& document, const TextStyle& style) {
  const bool wide = style.width >= kRoomForCommunication;
  Table table = empty_considered_table("schedules", wide);
  for (const ScheduleRecord& record : document.schedules) {
    const bool is_plan = record.family == recorded_family(document.plan.family);
    const Ink ink = is_plan ? Ink::Strong : Ink::Plain;
    add_considered(table, record, {std::string(to_string(record.family)), ink},
                   document.prediction.iteration, wide);
  }
  return table.text(0, style) + '\n';
}

/// The most forms of parallelism that are shown unless the style is verbose.
constexpr std::size_t kMostForms = 12;

/// Returns the forms of parallelism that are shown, in their order: that of the plan, those whose
/// plans were the fastest and, of the others, those with the least bounds.
std::vector<ParallelismRecord> shown_forms(const PlanDocument& document, const TextStyle& style) {
  const std::vector<ParallelismRecord>& all = document.parallelisms;
  if (style.verbose || all.size() <= kMostForms) return all;
  std::vector<std::size_t> by_rank(all.size());
  std::iota(by_rank.begin(), by_rank.end(), std::size_t{0});
  const auto rank = [&](std::size_t i) {
    const Duration none = Duration::infinite();
    return std::tuple{!is_of(all[i], document.plan), all[i].iteration.value_or(none),
                      all[i].lower_bound.value_or(none)};
  };
  std::stable_sort(by_rank.begin(), by_rank.end(),
                   [&](std::size_t a, std::size_t b) { return rank(a) < rank(b); });
  by_rank.resize(kMostForms);
  std::sort(by_rank.begin(), by_rank.end());
  std::vector<ParallelismRecord> shown;
  for (const std::size_t i : by_rank) shown.push_back(all[i]);
  return shown;
}

/// Returns the same of each form of parallelism that was considered.
std::string parallelism_table(const PlanDocument& document, const TextStyle& style) {
  const std::vector<ParallelismRecord> shown = shown_forms(document, style);
  const bool wide = style.width >= kRoomForCommunication;
  Table table = empty_considered_table("parallelism", wide);
  for (const ParallelismRecord& record : shown) {
    const Ink ink = is_of(record, document.plan) ? Ink::Strong : Ink::Plain;
    add_considered(table, record, {show_forms(record), ink}, document.prediction.iteration, wide);
  }
  const std::size_t left = document.parallelisms.size() - shown.size();
  const std::string more = left == 0 ? "" : fmt::format("... and {} more (-v)\n", left);
  return table.text(0, style) + more + '\n';
}

/// Writes each line as a paragraph filled to the style's width. The first follows the heading, and
/// the others are indented by the heading's width and a gap.
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

std::string title(const PlanDocument& document, const TextStyle& style) {
  const Plan& plan = document.plan;
  const std::string name =
      fmt::format("{} on {}", printable(document.profile.name), printable(document.topology.name));
  const std::string batches = fmt::format(
      "global batch {} = {} micro-batch{} of {}, {}", show_count(plan.global_batch_size),
      show_count(plan.num_micro_batches), plan.num_micro_batches == 1 ? "" : "es",
      show_count(plan.micro_batch_size), show_ways(plan));
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
  if (!document.parallelisms.empty()) text += parallelism_table(document, style);
  if (!document.schedules.empty()) text += schedule_table(document, style);
  if (document.search.simulated > 0 || !document.search.searched.empty()) {
    text += paragraphs(
        "Searched", Ink::Strong,
        style.verbose ? search_lines(document.search) : search_headlines(document.search), style);
  }
  for (const std::string& warning : document.warnings) {
    text += paragraphs("Warning", Ink::Warning, {warning}, style);
  }
  return text;
}

std::string write_time_parts(const PlanDocument& document, const TextStyle& style) {
  struct Row {
    std::string name;
    Duration iteration;
    const TimeParts* parts;
  };
  const Prediction& prediction = document.prediction;
  std::vector<Row> rows{{"this plan", prediction.iteration, &prediction.parts}};
  for (const Baseline& baseline : document.baselines) {
    if (baseline.feasible) rows.push_back({baseline.name, baseline.iteration, &baseline.parts});
  }
  std::vector<Column> columns{{"iteration of"}};
  std::vector<Duration TimeParts::*> shown;
  for (const TimePart& part : kTimeParts) {
    const bool is_zero = std::all_of(rows.begin(), rows.end(), [&](const Row& row) {
      return row.parts->*part.part == Duration{};
    });
    if (is_zero) continue;
    // A shorter name lets the table fit a terminal.
    const bool is_step = part.part == &TimeParts::optimizer_step;
    columns.push_back({is_step ? "step" : part.name, Align::Right});
    shown.push_back(part.part);
  }
  Table table{std::move(columns)};
  for (const Row& row : rows) {
    std::vector<Cell> cells{{printable(row.name)}};
    for (Duration TimeParts::*const part : shown) {
      cells.push_back({show(row.parts->*part, row.iteration)});
    }
    table.add_row(std::move(cells));
  }
  return table.text(0, style) + '\n';
}

std::string jitter_text(const Prediction& prediction) {
  if (!prediction.jitter) return {};
  const JitterFigures& jitter = *prediction.jitter;
  const Duration iteration = prediction.iteration;
  std::string text = fmt::format(
      "Jitter         median {}, 95th percentile {}\n"
      "               of {} iterations with a random speed of every device\n",
      longer_text(jitter.median, iteration), longer_text(jitter.ninety_fifth, iteration),
      jitter.draws);
  std::vector<std::size_t> stages(jitter.with_slow_device.size());
  std::iota(stages.begin(), stages.end(), std::size_t{0});
  std::stable_sort(stages.begin(), stages.end(), [&](std::size_t a, std::size_t b) {
    return jitter.with_slow_device[a] > jitter.with_slow_device[b];
  });
  constexpr std::size_t kShown = 4;
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < std::min(kShown, stages.size()); ++i) {
    parts.push_back(fmt::format(
        "{} in stage {}", change_text(jitter.with_slow_device[stages[i]], iteration), stages[i]));
  }
  return text + fmt::format("               one device 10 % slower: {}{}\n", fmt::join(parts, ", "),
                            stages.size() > kShown ? ", no more in others" : "");
}

std::string other_replicas_text(const Prediction& prediction, std::optional<Duration> otherwise) {
  if (!otherwise) return {};
  const bool are_together = prediction.replicas == Replicas::Together;
  const double change = static_cast<double>(otherwise->ns - prediction.iteration.ns) /
                        static_cast<double>(std::max<std::int64_t>(prediction.iteration.ns, 1));
  std::string comparison = "no difference";
  if (*otherwise != prediction.iteration) {
    comparison = fmt::format("{:.1f} % {}", 100 * std::abs(change), change < 0 ? "less" : "more");
  }
  return fmt::format("{}: {} ({})\n", are_together ? "Independent replicas" : "Replicas together",
                     show(*otherwise, prediction.iteration), comparison);
}

}  // namespace dapple::report
