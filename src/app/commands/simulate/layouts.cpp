#include "app/commands/simulate/layouts.h"

#include <fmt/format.h>

#include <algorithm>
#include <ostream>
#include <set>
#include <utility>
#include <vector>

#include "app/commands/csv_cell.h"
#include "app/request/groups.h"
#include "app/request/runtimes.h"
#include "dapple/command_line/tool.h"
#include "dapple/interop/plans/stated_parallelism.h"
#include "dapple/io/files/read_file.h"
#include "dapple/planner/candidates/evaluate.h"
#include "dapple/planner/request/warnings.h"
#include "dapple/report/show.h"
#include "dapple/report/table.h"

namespace dapple::app {
namespace {

/// A layout and what was found out about it: figures, or a fault.
struct LayoutRow {
  interop::Layout layout;
  std::optional<Prediction> prediction;
  /// The number of devices that the plan uses, in groups or not.
  std::int64_t devices = 0;
  std::vector<std::string> warnings;
  std::string fault;
};

/// The device with the least memory left, or that lacks most.
const DeviceFigures& tightest(const Prediction& prediction) {
  return *std::max_element(prediction.devices.begin(), prediction.devices.end(),
                           [](const DeviceFigures& a, const DeviceFigures& b) {
                             return a.peak_memory - a.memory_limit < b.peak_memory - b.memory_limit;
                           });
}

bool fits(const Prediction& prediction) {
  const DeviceFigures& device = tightest(prediction);
  return device.peak_memory <= device.memory_limit;
}

LayoutRow simulated(const interop::Layout& layout, LayoutGround& ground, SimulationMode mode,
                    command_line::Console& console, int& code) {
  LayoutRow row;
  row.layout = layout;
  try {
    Subject subject = subject_of_layout(layout, ground);
    PlanDocument& document = subject.document;
    if (ground.runtime) mode.transfers = transfers_of(*ground.runtime, document.plan.family);
    check_mode(document.plan, mode, layout.source);
    document.prediction =
        planner::evaluate(document.plan, document.profile, subject.topology, mode).prediction;
    row.warnings = planner::warnings_about(document, subject.topology);
    row.devices = std::ssize(document.prediction.devices) * document.topology.group_size;
    row.prediction = std::move(document.prediction);
  } catch (const Error& error) {
    command_line::print_error(console, error);
    row.fault = error.violations().front().message;
    code = std::max(code, command_line::exit_code_of(error.kind()));
  }
  return row;
}

/// Returns the words that any of the layouts says, in the order of kLayoutWords.
std::vector<std::string_view> words_in(const std::vector<LayoutRow>& rows) {
  std::vector<std::string_view> words;
  for (const std::string_view word : interop::kLayoutWords) {
    const bool is_said = std::any_of(rows.begin(), rows.end(), [&](const LayoutRow& row) {
      return row.layout.value(word) != nullptr;
    });
    if (is_said) words.push_back(word);
  }
  return words;
}

/// Returns the value of a word, or an empty text if there is none or if it is of characters that no
/// sound value has, which a spreadsheet might take for a formula.
std::string value_in(const LayoutRow& row, std::string_view word) {
  const std::string* const value = row.layout.value(word);
  constexpr std::string_view kSound = "abcdefghijklmnopqrstuvwxyz0123456789:-";
  const bool is_sound = value != nullptr && value->front() != '-' &&
                        value->find_first_not_of(kSound) == std::string::npos;
  return is_sound ? *value : std::string();
}

std::string csv_of(const std::vector<LayoutRow>& rows) {
  const std::vector<std::string_view> words = words_in(rows);
  std::string text = fmt::format(
      "{},devices,iteration_ns,samples_per_second,bubble_fraction,peak_memory_bytes,"
      "memory_limit_bytes,fits,fault\n",
      fmt::join(words, ","));
  for (const LayoutRow& row : rows) {
    for (const std::string_view word : words) text += value_in(row, word) + ',';
    if (!row.prediction) {
      text += fmt::format(",,,,,,,{}\n", csv_cell(printable(row.fault)));
      continue;
    }
    const Prediction& prediction = *row.prediction;
    const DeviceFigures& device = tightest(prediction);
    text += fmt::format("{},{},{},{},{},{},{},\n", row.devices, prediction.iteration.ns,
                        prediction.samples_per_second, prediction.bubble_fraction,
                        device.peak_memory.count, device.memory_limit.count,
                        fits(prediction) ? "yes" : "no");
  }
  return text;
}

/// Returns the fastest of the layouts that fit memory, or null.
const LayoutRow* fastest(const std::vector<LayoutRow>& rows) {
  const LayoutRow* best = nullptr;
  for (const LayoutRow& row : rows) {
    if (!row.prediction || !fits(*row.prediction)) continue;
    if (best == nullptr || row.prediction->iteration < best->prediction->iteration) best = &row;
  }
  return best;
}

std::string table_of(const std::vector<LayoutRow>& rows, const report::TextStyle& style) {
  const std::vector<std::string_view> words = words_in(rows);
  std::vector<report::Column> columns;
  for (const std::string_view word : words) columns.push_back({std::string(word)});
  columns.push_back({"devices", report::Align::Right});
  columns.push_back({"iteration", report::Align::Right});
  columns.push_back({"samples/s", report::Align::Right});
  columns.push_back({"bubble", report::Align::Right});
  columns.push_back({"memory of limit", report::Align::Right});
  constexpr std::size_t kLeast = 12;
  columns.push_back({"", report::Align::Left, kLeast});
  const LayoutRow* const best = fastest(rows);
  report::Table table(std::move(columns));
  for (const LayoutRow& row : rows) {
    std::vector<report::Cell> cells;
    for (const std::string_view word : words) cells.push_back({value_in(row, word)});
    if (row.prediction) {
      const Prediction& prediction = *row.prediction;
      const DeviceFigures& device = tightest(prediction);
      const bool does_fit = fits(prediction);
      cells.push_back({fmt::format("{}", row.devices)});
      cells.push_back({report::show(prediction.iteration)});
      cells.push_back({fmt::format("{:.2f}", prediction.samples_per_second)});
      cells.push_back({fmt::format("{:.1f} %", 100 * prediction.bubble_fraction)});
      cells.push_back(
          {fmt::format("{} of {}", report::show(device.peak_memory, device.memory_limit),
                       report::show(device.memory_limit)),
           does_fit ? report::Ink::Plain : report::Ink::Bad});
      cells.push_back({!does_fit ? "does not fit" : &row == best ? "fastest" : ""});
    } else {
      cells.resize(words.size() + 5);
      cells.push_back({row.fault, report::Ink::Bad});
    }
    table.add_row(std::move(cells));
  }
  return table.text(0, style);
}

/// Prints the warnings about the layouts, each once.
void print_warnings(const std::vector<LayoutRow>& rows, command_line::Console& console) {
  constexpr std::size_t kMostWarnings = 20;
  std::set<std::string> printed;
  for (const LayoutRow& row : rows) {
    for (const std::string& warning : row.warnings) {
      if (printed.size() == kMostWarnings) return;
      if (!printed.insert(warning).second) continue;
      command_line::print_warning(console, fmt::format("{}: {}", row.layout.place, warning));
    }
  }
}

/// Returns the ground of the layout's form of parallelism, made anew for the first of its form.
const GroupedGround& ground_of(const interop::Layout& layout, LayoutGround& ground) {
  const Parallelism parallelism = interop::find_parallelism(
      interop::stated_in_layout(layout), ground.profile, layout.source, layout.place);
  const auto found = ground.grouped.find(parallelism);
  if (found != ground.grouped.end()) return found->second;
  PlanDocument document;
  document.tool = kTool;
  try {
    set_inputs(document, ground.profile, ground.topology, parallelism, layout.source);
  } catch (const Error& error) { throw layout.at_its_place(error); }
  Topology topology{document.topology};
  return ground.grouped
      .emplace(parallelism, GroupedGround{std::move(document), std::move(topology)})
      .first->second;
}

}  // namespace

LayoutGround load_layout_ground(const std::string& model, const std::string& topology,
                                const std::optional<std::int64_t>& global_batch,
                                const std::optional<Factor>& time_scale,
                                const std::optional<Runtime>& runtime) {
  ModelProfile profile = load_own_profile(model);
  TopologyDescription description = load_topology(topology);
  apply_time_scale(time_scale, profile, description);
  if (runtime) {
    apply(*runtime, profile);
    reserve(*runtime, description);
  }
  Topology made{description, command_line::source_name(topology)};
  interop::ForeignPlanOptions options;
  options.global_batch = global_batch;
  return {.profile = std::move(profile),
          .topology = std::move(made),
          .topology_source = command_line::source_name(topology),
          .options = std::move(options),
          .runtime = runtime};
}

Subject subject_of_layout(const interop::Layout& layout, LayoutGround& ground) {
  const GroupedGround& grouped = ground_of(layout, ground);
  Subject subject{grouped.document, grouped.topology};
  PlanDocument& document = subject.document;
  const Parallelism parallelism = document.plan.parallelism;
  document.plan = interop::plan_of_layout(
      layout, {document.profile, subject.topology, parallelism.recomputes}, ground.options);
  document.plan.parallelism = parallelism;
  if (ground.runtime) run_on(*ground.runtime, document);
  try {
    check_costs(document, subject.topology, layout.source, ground.topology_source);
  } catch (const Error& error) {
    throw error.source() == layout.source ? layout.at_its_place(error) : error;
  }
  return subject;
}

int simulate_table(const std::string& path, LayoutGround& ground, SimulationMode mode, bool is_csv,
                   command_line::Console& console) {
  const std::vector<interop::Layout> layouts =
      interop::read_layouts(io::read_file(path), command_line::source_name(path));
  int code = command_line::kDone;
  std::vector<LayoutRow> rows;
  rows.reserve(layouts.size());
  for (const interop::Layout& layout : layouts) {
    rows.push_back(simulated(layout, ground, mode, console, code));
  }
  if (is_csv) {
    console.documents << csv_of(rows);
  } else {
    console.out << table_of(rows, console.out_style);
  }
  print_warnings(rows, console);
  return code;
}

}  // namespace dapple::app
