#include "dapple/report/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dapple/profile/boundary_shares.h"
#include "dapple/profile/skip_tensors.h"
#include "dapple/report/causes.h"
#include "dapple/report/table.h"
#include "report/figures.h"

namespace dapple::report {
namespace {

constexpr int kMostColumns = 80;

std::string signed_percent(double first, double second) {
  if (first == second) return "same";
  if (first == 0) return "-";
  return fmt::format("{:+.1f} %", 100 * (second - first) / first);
}

std::string signed_percent(Duration first, Duration second) {
  return signed_percent(static_cast<double>(first.ns), static_cast<double>(second.ns));
}

std::string batches_of(const Plan& plan) {
  return fmt::format("{} of {}", plan.num_micro_batches, plan.micro_batch_size);
}

/// What a form of parallelism has of one kind.
struct NamedDegree {
  const char* name;
  std::string degree;
};

std::string sharding_text(const Parallelism& form) {
  if (form.full_shards > 1) return fmt::format("all state over {}", form.full_shards);
  if (form.optimizer_shards > 0) return fmt::format("optimizer over {}", form.optimizer_shards);
  return form.shards_optimizer ? "optimizer" : "none";
}

/// Returns all that a plan's form of parallelism has, or how many forms its stages have.
std::vector<NamedDegree> degrees_of(const Plan& plan, bool do_stages_differ) {
  if (do_stages_differ) { return {{"forms", fmt::format("{}", plan.stage_forms.size() + 1)}}; }
  const Parallelism& form = plan.parallelism;
  return {{"tensor", fmt::format("{}", form.tensor)},
          {"sequence", form.sequence ? "yes" : "no"},
          {"context", fmt::format("{}", form.context)},
          {"data in a group", fmt::format("{}", form.group_replicas)},
          {"experts", fmt::format("{}", form.experts)},
          {"tensor of experts", fmt::format("{}", form.expert_tensor)},
          {"sharded", sharding_text(form)},
          {"recomputed", form.recomputes.none() ? "none" : to_text(form.recomputation())}};
}

/// Adds rows of what is chosen.
void add_choices(const ComparedPair& pair, Table& table) {
  const ComparedPlan& first = pair.first;
  const ComparedPlan& second = pair.second;
  const auto add_text = [&table](const char* name, const std::string& x, const std::string& y) {
    table.add_row({{name}, {x}, {y}, {x == y ? "same" : ""}});
  };
  const auto devices_used = [&pair](const ComparedPlan& plan) {
    const std::int64_t groups = std::ssize(plan.prediction.devices);
    return fmt::format("{}", groups * pair.topology.description().group_size);
  };
  add_text("devices used", devices_used(first), devices_used(second));
  const bool do_stages_differ = !first.plan.stage_forms.empty() || !second.plan.stage_forms.empty();
  const std::vector<NamedDegree> degrees = degrees_of(first.plan, do_stages_differ);
  const std::vector<NamedDegree> others = degrees_of(second.plan, do_stages_differ);
  for (std::size_t i = 0; i < degrees.size(); ++i) {
    if (degrees[i].degree == others[i].degree) continue;
    add_text(degrees[i].name, degrees[i].degree, others[i].degree);
  }
  add_text("stages", fmt::format("{}", first.plan.stages.size()),
           fmt::format("{}", second.plan.stages.size()));
  if (first.plan.global_batch_size != second.plan.global_batch_size) {
    add_text("global batch", fmt::format("{}", first.plan.global_batch_size),
             fmt::format("{}", second.plan.global_batch_size));
  }
  add_text("micro-batches", batches_of(first.plan), batches_of(second.plan));
  add_text("schedule", std::string{to_string(first.plan.family)},
           std::string{to_string(second.plan.family)});
  if (first.plan.skip_tensors != second.plan.skip_tensors) {
    add_text("skip tensors", std::string{to_string(first.plan.skip_tensors)},
             std::string{to_string(second.plan.skip_tensors)});
  }
  if (first.plan.boundaries != second.plan.boundaries) {
    add_text("boundaries", std::string{to_string(first.plan.boundaries)},
             std::string{to_string(second.plan.boundaries)});
  }
  if (first.plan.gradients != second.plan.gradients) {
    add_text("bucket size", show(first.plan.gradients.bucket_size),
             show(second.plan.gradients.bucket_size));
    add_text("optimizer step", std::string{to_string(first.plan.gradients.optimizer)},
             std::string{to_string(second.plan.gradients.optimizer)});
  }
}

std::string headline_table(const ComparedPair& pair, const TextStyle& style) {
  const ComparedPlan& first = pair.first;
  const ComparedPlan& second = pair.second;
  const Prediction& a = first.prediction;
  const Prediction& b = second.prediction;
  Table table{{{""}, {"A", Align::Right}, {"B", Align::Right}, {"B against A", Align::Right}}};
  const Duration whole = std::min(a.iteration, b.iteration);
  const auto add_time = [&](const char* name, Duration x, Duration y) {
    table.add_row({{name}, {show(x, whole)}, {show(y, whole)}, {signed_percent(x, y)}});
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
  const Bytes peak = std::max(a.most_memory(), b.most_memory());
  table.add_row({{"largest memory"},
                 {show(a.most_memory(), peak)},
                 {show(b.most_memory(), peak)},
                 {signed_percent(static_cast<double>(a.most_memory().count),
                                 static_cast<double>(b.most_memory().count))}});
  add_choices(pair, table);
  return table.text(0, style);
}

/// Formats the difference of two times or sizes in the unit that suits `whole`.
template <class Quantity>
std::string signed_difference(Quantity first, Quantity second, Quantity whole) {
  if (first == second) return "same";
  return second > first ? '+' + show(second - first, whole) : '-' + show(first - second, whole);
}

/// Returns the breakdown of both iterations; parts that neither has are omitted.
std::string parts_table(const Prediction& a, const Prediction& b, const TextStyle& style) {
  const Duration whole = std::min(a.iteration, b.iteration);
  Table table{{{"of which"}, {"A", Align::Right}, {"B", Align::Right}, {"B less A", Align::Right}}};
  for (const TimePart& part : kTimeParts) {
    const Duration first = a.parts.*part.part;
    const Duration second = b.parts.*part.part;
    if (first == Duration{} && second == Duration{}) continue;
    table.add_row({{part.name},
                   {show(first, whole)},
                   {show(second, whole)},
                   {signed_difference(first, second, whole)}});
  }
  return table.text(0, style);
}

bool recomputes(const ComparedPair& pair) {
  const auto does = [](const ComparedPlan& compared) {
    return std::any_of(compared.plan.stages.begin(), compared.plan.stages.end(),
                       [](const StagePlan& stage) { return stage.recompute; });
  };
  return does(pair.first) || does(pair.second);
}

std::vector<Cell> stage_cells(const std::string& label, const ComparedPlan& compared, std::size_t s,
                              const ComparedPair& pair) {
  const StagePlan& stage = compared.plan.stages[s];
  const StageFigures figures =
      s < compared.prediction.stages.size() ? compared.prediction.stages[s] : StageFigures{};
  const Duration longest = std::max(longest_times(pair.first.prediction.stages).pass,
                                    longest_times(pair.second.prediction.stages).pass);
  std::string layers =
      fmt::format("{}: {}", stage.layers.size(), show_layers(stage.layers, pair.profile));
  const bool do_forms_differ =
      !pair.first.plan.stage_forms.empty() || !pair.second.plan.stage_forms.empty();
  return {{label},
          {std::move(layers)},
          {fmt::format("{}: {}{}{}{}", show_device_count(stage.devices.size(), pair.topology),
                       show_devices(stage.devices, pair.topology),
                       stage.replication == Replication::Deal ? ", in turn" : "",
                       stage.samples.empty() ? std::string()
                                             : "; samples " + samples_text(compared.plan, stage),
                       do_forms_differ ? "; " + short_text(form_of(compared.plan, stage)) : "")},
          {show(figures.forward, longest)},
          {show(figures.backward, longest)},
          {s < compared.plan.warmup_depths.size()
               ? fmt::format("{}", depth_on_replica(compared.plan, index_at<StageIndex>(s)))
               : "-"}};
}

bool is_same(const ComparedPair& pair, StageIndex first, StageIndex second) {
  const Plan& a = pair.first.plan;
  const Plan& b = pair.second.plan;
  const StagePlan& of_a = a.stages[first.position()];
  const StagePlan& of_b = b.stages[second.position()];
  return same_stage(of_a, of_b) && form_of(a, of_a) == form_of(b, of_b) &&
         a.warmup_depths[first.position()] == b.warmup_depths[second.position()] &&
         a.micro_batch_size == b.micro_batch_size && first == second;
}

std::string stage_table(const ComparedPair& pair, const std::vector<StagePair>& stages,
                        const TextStyle& style) {
  std::vector<Column> columns{{"stage", Align::Right},     {"layers", Align::Left, 8},
                              {"devices", Align::Left, 8}, {"forward", Align::Right},
                              {"backward", Align::Right},  {"depth", Align::Right}};
  // Without any recomputation, its column would only take room from the names.
  const bool shows_recomputation = recomputes(pair);
  if (shows_recomputation) columns.push_back({"recompute"});
  Table table{std::move(columns)};
  const auto add = [&](const char* whose, const ComparedPlan& plan, StageIndex stage) {
    std::vector<Cell> cells =
        stage_cells(fmt::format("{} {}", stage.value, whose), plan, stage.position(), pair);
    if (shows_recomputation) {
      cells.push_back({plan.plan.stages[stage.position()].recompute ? "yes" : "no"});
    }
    table.add_row(std::move(cells));
  };
  for (const StagePair& both : stages) {
    if (both.first && both.second && is_same(pair, *both.first, *both.second)) {
      add("AB", pair.first, *both.first);
      continue;
    }
    if (both.first) add(" A", pair.first, *both.first);
    if (both.second) add(" B", pair.second, *both.second);
  }
  return table.text(0, style);
}

/// Returns how many rows to show of a list whose length grows with the devices or layers: only the
/// first ones on a terminal, unless the style is verbose.
std::size_t most_rows(const TextStyle& style) {
  constexpr std::size_t kOnTerminal = 12;
  return style.wraps && !style.verbose ? kOnTerminal : std::numeric_limits<std::size_t>::max();
}

std::string rows_left_out(std::size_t rows, const TextStyle& style) {
  const std::size_t most = most_rows(style);
  return rows > most ? fmt::format("... and {} more (-v)\n", rows - most) : "";
}

std::string show_stages(const std::vector<StageIndex>& stages) {
  std::vector<std::int32_t> numbers;
  for (const StageIndex stage : stages) numbers.push_back(stage.value);
  return numbers.empty() ? "none" : show_numbers(numbers);
}

/// Returns a table of the layers and devices whose stage in the second plan does not correspond to
/// their stage in the first; empty if there are none.
std::string moved_table(const ComparedPair& pair, const PlanDifference& difference,
                        const TextStyle& style) {
  const std::size_t rows = difference.layers.size() + difference.devices.size();
  if (rows == 0) return "";
  Table table{
      {{"moved"}, {"", Align::Left, 8}, {"A, stage", Align::Right}, {"B, stage", Align::Right}}};
  std::size_t shown = 0;
  for (const MovedLayers& moved : difference.layers) {
    if (shown++ >= most_rows(style)) break;
    table.add_row(
        {{moved.layers.size() == 1 ? "layer" : fmt::format("{} layers", moved.layers.size())},
         {show_layers(moved.layers, pair.profile)},
         {show_stages({moved.from})},
         {show_stages({moved.to})}});
  }
  for (const MovedDevices& moved : difference.devices) {
    if (shown++ >= most_rows(style)) break;
    table.add_row(
        {{moved.devices.size() == 1 ? "device" : fmt::format("{} devices", moved.devices.size())},
         {show_devices(moved.devices, pair.topology)},
         {show_stages(moved.from)},
         {show_stages(moved.to)}});
  }
  return table.text(0, style) + rows_left_out(rows, style) + '\n';
}

/// Devices with equal figures, which share a row.
struct MemoryRow {
  std::vector<DeviceIndex> devices;
  MemoryPair pair;
};

std::vector<MemoryRow> memory_rows(const ComparedPair& pair) {
  const auto same = [](const MemoryPair& a, const MemoryPair& b) {
    return a.first == b.first && a.second == b.second && a.limit == b.limit;
  };
  std::vector<MemoryRow> rows;
  for (const MemoryPair& memory : memory_pairs(pair.first.prediction, pair.second.prediction)) {
    const auto row = std::find_if(rows.begin(), rows.end(),
                                  [&](const MemoryRow& other) { return same(other.pair, memory); });
    if (row != rows.end()) {
      row->devices.push_back(memory.device);
    } else {
      rows.push_back({.devices = {memory.device}, .pair = memory});
    }
  }
  return rows;
}

std::string memory_table(const ComparedPair& pair, const TextStyle& style) {
  Table table{{{"memory of", Align::Left, 9},
               {"A", Align::Right},
               {"B", Align::Right},
               {"B less A", Align::Right},
               {"limit", Align::Right}}};
  const std::vector<MemoryRow> rows = memory_rows(pair);
  for (std::size_t i = 0; i < std::min(rows.size(), most_rows(style)); ++i) {
    const MemoryPair& memory = rows[i].pair;
    const auto show_peak = [&](const std::optional<Bytes>& peak) {
      return peak ? show(*peak, memory.limit) : std::string{"idle"};
    };
    table.add_row({{show_devices(rows[i].devices, pair.topology)},
                   {show_peak(memory.first)},
                   {show_peak(memory.second)},
                   {signed_difference(memory.first.value_or(Bytes{}),
                                      memory.second.value_or(Bytes{}), memory.limit)},
                   {show(memory.limit)}});
  }
  return table.text(0, style) + rows_left_out(rows.size(), style);
}

/// Compares plans with different global batches by samples per second, as their iterations are not
/// comparable.
std::string verdict_by_rate(const ComparedPlan& first, const ComparedPlan& second) {
  const double a = first.prediction.samples_per_second;
  const double b = second.prediction.samples_per_second;
  const std::string sizes = fmt::format(
      "An iteration is of {} samples with A and of {} with B: ", first.plan.global_batch_size,
      second.plan.global_batch_size);
  if (a == b) return sizes + "they are as fast.\n";
  return sizes + fmt::format("by samples per second\n{} is faster, {:.3f} x.\n", a > b ? "A" : "B",
                             std::max(a, b) / std::min(a, b));
}

std::string verdict(const ComparedPlan& first, const ComparedPlan& second, const TextStyle& style) {
  if (first.plan.global_batch_size != second.plan.global_batch_size) {
    return verdict_by_rate(first, second);
  }
  const Duration a = first.prediction.iteration;
  const Duration b = second.prediction.iteration;
  if (same_plan(first.plan, second.plan)) return "The plans are the same.\n";
  if (a == b) return "The plans differ and take the same time.\n";
  const ComparedPlan& faster = a < b ? first : second;
  const ComparedPlan& slower = a < b ? second : first;
  const Duration least = std::min(a, b);
  const Duration most = std::max(a, b);
  const std::string causes =
      fmt::format("{} loses by {}.", a < b ? "B" : "A",
                  main_causes(faster.prediction.parts, slower.prediction.parts, least));
  return fmt::format(
      "{}\n{} is faster: {} less per iteration, {:.3f} x.\n", fill_lines(causes, 0, style),
      a < b ? "A" : "B", show(most - least, least),
      static_cast<double>(most.ns) / static_cast<double>(std::max<std::int64_t>(least.ns, 1)));
}

}  // namespace

std::string write_comparison(const ComparedPair& pair, const TextStyle& given_style) {
  const ComparedPlan& first = pair.first;
  const ComparedPlan& second = pair.second;
  TextStyle style = given_style;
  style.width = std::min(style.width, kMostColumns);
  const PlanDifference plans = difference(first.plan, second.plan);
  std::string text = fmt::format("{} on {}\n  A  {}\n  B  {}\n", printable(pair.profile.name),
                                 printable(pair.topology.description().name), printable(first.name),
                                 printable(second.name));
  for (const std::string& note : pair.notes) {
    text += "  " + fill_lines(printable(note), 2, style) + '\n';
  }
  text += '\n' + headline_table(pair, style) + '\n';
  text += parts_table(first.prediction, second.prediction, style) + '\n';
  text += moved_table(pair, plans, style);
  text += memory_table(pair, style) + '\n';
  text += stage_table(pair, plans.stages, style) + '\n';
  return text + verdict(first, second, style);
}

}  // namespace dapple::report
