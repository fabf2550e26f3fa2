#include "app/commands/calibrate/measured_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "dapple/command_line/files.h"
#include "dapple/core/decimal.h"
#include "dapple/core/error.h"
#include "dapple/interop/plans/layout.h"
#include "dapple/interop/text/value_table.h"
#include "dapple/io/runtime/runtime_document.h"

namespace dapple::app {
namespace {

constexpr std::size_t kMostRuns = 100'000;
constexpr std::size_t kMostFaults = 20;

/// A value that is none: what was expected in its place.
struct WrongValue {
  std::string expected;
};

std::int64_t count_in(const std::string& text, std::int64_t most) {
  const auto count = is_plain_decimal(text) ? scaled_exactly(text, 1) : std::nullopt;
  if (!count || *count < 1 || *count > most) {
    throw WrongValue{fmt::format("a whole number from 1 to {}", most)};
  }
  return static_cast<std::int64_t>(*count);
}

std::string name_in(const std::string& text) {
  if (!is_plain_name(text)) throw WrongValue{"1 to 200 characters that can be printed"};
  return text;
}

std::string path_in(const std::string& text) {
  if (text.empty() || printable(text) != text) {
    throw WrongValue{"a file's name without control characters"};
  }
  return text;
}

/// Returns a time or size that is above zero.
std::int64_t quantity_in(const std::string& text, std::int64_t scale, const char* unit) {
  const RoundedCount count = scaled_up(text, scale);
  if (count.fault != DecimalFault::None || count.count == 0) {
    throw WrongValue{fmt::format("a number of {} above 0, up to {}", unit, kMaxCount / scale)};
  }
  return count.count;
}

std::size_t choice_in(const std::string& text, const std::vector<std::string_view>& choices) {
  const auto found = std::find(choices.begin(), choices.end(), text);
  if (found == choices.end()) throw WrongValue{fmt::format("{}", fmt::join(choices, " or "))};
  return static_cast<std::size_t>(found - choices.begin());
}

/// How the value of a column is taken; an empty cell is not taken.
struct Column {
  std::string name;
  bool is_required = false;
  std::function<void(const std::string& text, MeasuredRun& run)> take;
};

void take_precision(const std::string& text, MeasuredRun& run) {
  std::vector<std::string_view> names;
  for (const estimate::Precision each : estimate::kPrecisions) names.push_back(to_string(each));
  run.options.precision = estimate::kPrecisions[choice_in(text, names)];
}

void take_recomputation(const std::string& text, MeasuredRun& run) {
  if (text == "none") return;
  const auto parts = recomputed_parts(text);
  if (!parts || !parts->is_sound()) throw WrongValue{"none, full, or parts as core_attn+norm"};
  run.options.recomputations = {*parts};
  run.layout.words.emplace_back("recompute", text);
}

void take_runtime(const std::string& text, MeasuredRun& run) {
  std::vector<Runtime> known = io::shipped_runtimes();
  std::vector<std::string_view> names;
  names.reserve(known.size());
  for (const Runtime& runtime : known) names.push_back(runtime.name);
  run.runtime = std::move(known[choice_in(text, names)]);
  run.options.vocabulary_multiple = run.runtime->vocabulary_multiple;
  run.options.context_exchange =
      run.runtime->context_exchange.value_or(run.options.context_exchange);
  run.options.merges_copies = run.runtime->merges_copies;
}

std::vector<Column> columns() {
  return {{"id", true, [](const std::string& text, MeasuredRun& run) { run.id = name_in(text); }},
          {"group", false,
           [](const std::string& text, MeasuredRun& run) { run.group = name_in(text); }},
          {"configuration", true,
           [](const std::string& text, MeasuredRun& run) { run.configuration = path_in(text); }},
          {"topology", true,
           [](const std::string& text, MeasuredRun& run) { run.topology = path_in(text); }},
          {"sequence", false,
           [](const std::string& text, MeasuredRun& run) {
             run.options.sequence = count_in(text, estimate::kMostTokens);
           }},
          {"precision", false, take_precision},
          {"attention", false,
           [](const std::string& text, MeasuredRun& run) {
             run.options.has_fused_attention = choice_in(text, {"fused", "unfused"}) == 0;
           }},
          {"gradient_bytes", false,
           [](const std::string& text, MeasuredRun& run) {
             run.options.gradient_bytes = choice_in(text, {"2", "4"}) == 0 ? 2 : 4;
           }},
          {"framework", false,
           [](const std::string& text, MeasuredRun& run) { run.framework = name_in(text); }},
          {"runtime", false, take_runtime},
          {"recompute", false, take_recomputation},
          {"iteration_s", true,
           [](const std::string& text, MeasuredRun& run) {
             run.iteration = {quantity_in(text, kNanosecondsPerSecond, "seconds")};
           }},
          {"memory_bytes", false,
           [](const std::string& text, MeasuredRun& run) {
             run.memory = Bytes{quantity_in(text, 1, "bytes")};
           }},
          {"memory_of", false, [](const std::string& text, MeasuredRun& run) {
             run.is_memory_of_last_stage = choice_in(text, {"all", "last_stage"}) == 1;
           }}};
}

/// Reads the rows of a table.
class RunReader {
 public:
  explicit RunReader(std::string path)
      : path_(std::move(path)), source_(command_line::source_name(path_)), columns_(columns()) {}

  std::vector<MeasuredRun> read(std::string_view text);

 private:
  void read_header(std::string_view line);
  void read_row(std::string_view line);
  void take(const std::string& name, const std::string& text, MeasuredRun& run);
  void complete(MeasuredRun& run);
  std::string beside_table(const std::string& file) const {
    return (std::filesystem::path(path_).parent_path() / file).string();
  }
  std::string place() const { return fmt::format("line {}", line_); }
  void add(std::string message) { faults_.push_back({place(), std::move(message)}); }

  std::string path_;
  std::string source_;
  std::vector<Column> columns_;
  std::vector<std::string> header_;
  std::vector<MeasuredRun> runs_;
  std::set<std::string> ids_;
  std::vector<Violation> faults_;
  std::int64_t line_ = 0;
};

void RunReader::read_header(std::string_view line) {
  header_ = interop::cells_of_row(line);
  std::set<std::string> seen;
  for (const std::string& name : header_) {
    if (faults_.size() == kMostFaults) return;
    const bool is_known = interop::is_layout_word(name) ||
                          std::any_of(columns_.begin(), columns_.end(),
                                      [&](const Column& some) { return some.name == name; });
    if (!is_known) {
      add(fmt::format("expected columns {}, or words of layouts, got \"{}\"",
                      fmt::join(run_columns(), ", "), printable(name)));
    } else if (!seen.insert(name).second) {
      add(fmt::format("expected each column once, got \"{}\" twice", name));
    }
  }
  for (const Column& column : columns_) {
    if (column.is_required && seen.count(column.name) == 0) {
      add(fmt::format("expected a column \"{}\", got none", column.name));
    }
  }
}

void RunReader::take(const std::string& name, const std::string& text, MeasuredRun& run) {
  const auto column = std::find_if(columns_.begin(), columns_.end(),
                                   [&](const Column& some) { return some.name == name; });
  if (column == columns_.end()) {
    run.layout.words.emplace_back(name, text);
    if (name == "sp") run.options.has_sequence_parallelism = text != "off";
    return;
  }
  try {
    column->take(text, run);
  } catch (const WrongValue& wrong) {
    add(fmt::format("{}: expected {}, got \"{}\"", name, wrong.expected, printable(text)));
  }
}

/// Sets what follows from the columns.
void RunReader::complete(MeasuredRun& run) {
  run.layout.source = source_;
  run.layout.place = place();
  const auto degree = [&](const char* word, std::int64_t otherwise) {
    const std::string* const text = run.layout.value(word);
    const auto count = text != nullptr && is_plain_decimal(*text) ? scaled_exactly(*text, 1)
                                                                  : std::optional<Wide>(otherwise);
    // read_layout() refuses text that is not a degree.
    constexpr Wide kMost = 1024;
    return static_cast<std::int64_t>(std::clamp<Wide>(count.value_or(1), 1, kMost));
  };
  run.options.max_tensor = degree("tp", 1);
  run.options.max_context = degree("cp", 1);
  run.options.max_experts = degree("ep", 1);
  run.options.max_expert_tensor = degree("etp", 1);
  if (run.is_memory_of_last_stage && !run.memory) {
    add("memory_of: last_stage needs memory_bytes, got none");
  }
  if (run.group.empty()) { run.group = fmt::format("{} on {}", run.configuration, run.topology); }
  run.configuration = beside_table(run.configuration);
  run.topology = beside_table(run.topology);
}

void RunReader::read_row(std::string_view line) {
  const std::vector<std::string> cells = interop::cells_of_row(line);
  if (cells.size() != header_.size()) {
    add(fmt::format("expected {} cells, as the first row has, got {}", header_.size(),
                    cells.size()));
    return;
  }
  MeasuredRun run;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (!cells[i].empty()) take(header_[i], cells[i], run);
  }
  for (const Column& column : columns_) {
    const auto at = std::find(header_.begin(), header_.end(), column.name);
    const bool is_given =
        at != header_.end() && !cells[static_cast<std::size_t>(at - header_.begin())].empty();
    if (column.is_required && !is_given)
      add(fmt::format("expected a value of {}, got none", column.name));
  }
  if (!run.id.empty() && !ids_.insert(run.id).second) {
    add(fmt::format("expected each id once, got \"{}\" twice", printable(run.id)));
  }
  complete(run);
  runs_.push_back(std::move(run));
}

std::vector<MeasuredRun> RunReader::read(std::string_view text) {
  interop::for_each_row(text, [&](std::int64_t number, std::string_view line) {
    line_ = number;
    if (header_.empty()) {
      read_header(line);
      return faults_.empty();
    }
    if (runs_.size() == kMostRuns) {
      add(fmt::format("expected at most {} runs, got more", kMostRuns));
      return false;
    }
    read_row(line);
    return faults_.size() < kMostFaults;
  });
  if (faults_.empty() && runs_.empty()) {
    faults_.push_back({"", "expected a row of columns and a row for each run, got none"});
  }
  if (!faults_.empty()) throw Error{ErrorKind::BadInput, source_, std::move(faults_)};
  return std::move(runs_);
}

}  // namespace

bool is_plain_name(const std::string& text) {
  constexpr std::size_t kMostCharacters = 200;
  return !text.empty() && text.size() <= kMostCharacters && printable(text) == text;
}

std::vector<std::string> run_columns() {
  std::vector<std::string> names;
  for (const Column& column : columns()) names.push_back(column.name);
  return names;
}

std::vector<MeasuredRun> read_runs(const std::string& text, const std::string& path) {
  return RunReader(path).read(text);
}

}  // namespace dapple::app
