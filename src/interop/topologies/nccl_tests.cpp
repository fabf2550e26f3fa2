#include "interop/topologies/nccl_tests.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "dapple/core/decimal.h"
#include "interop/text/foreign_text.h"

namespace dapple::interop {
namespace {

constexpr std::int64_t kGiga = 1'000'000'000;

/// The figures of one half of a row, out of place or in place.
struct Run {
  Duration time;
  Bandwidth algorithm;
  Bandwidth bus;
};

/// Returns the line without a prefix like "0: ", with which `srun -l` names the rank that printed
/// it. Sets `has_prefix` if there is one.
std::string_view without_prefix(std::string_view line, bool& has_prefix) {
  const std::string_view text = trim(line);
  const std::size_t colon = text.find(": ");
  if (colon == std::string_view::npos || !parse_count(text.substr(0, colon))) return text;
  has_prefix = true;
  return trim(text.substr(colon + 2));
}

bool holds(const std::vector<std::string_view>& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

class ResultReader {
 public:
  ResultReader(const ForeignFile& file, ImportNotes& notes) : file_(file), notes_(notes) {}
  MeasuredCollective run();

 private:
  void fail(std::string message) { faults_.push_back({line_, std::move(message)}); }
  void warn(const std::string& message) { notes_.warn(fmt::format("{}: {}", file_.name, message)); }
  void read_comment(const std::vector<std::string_view>& words);
  void read_rank(const std::vector<std::string_view>& words);
  void read_row(const std::vector<std::string_view>& words);
  std::optional<Run> read_run(const std::vector<std::string_view>& words, std::size_t first);
  void add_run(Bytes size, const Run& run);
  void warn_of_oddities();
  std::int32_t ranks_by_ratio() const;

  const ForeignFile& file_;
  ImportNotes& notes_;
  std::vector<LineFault> faults_;
  std::int64_t line_ = 0;
  bool has_header_ = false;
  bool has_root_ = false;
  bool counts_wrong_ = false;
  bool has_prefix_ = false;
  bool has_average_ = false;
  bool has_reduction_ = false;
  std::int64_t rows_ = 0;
  std::int64_t half_rows_ = 0;
  std::int64_t runs_ = 0;
  std::int64_t strange_lines_ = 0;
  std::int64_t drops_ = 0;
  Run best_;
  std::vector<std::pair<std::string, std::string>> devices_;  // host and bus id by rank
  MeasuredCollective result_;
};

void ResultReader::read_rank(const std::vector<std::string_view>& words) {
  const auto at = std::find(words.begin(), words.end(), "on");
  if (at == words.end() || words.end() - at < 5 || *(at + 2) != "device") {
    fail("expected '# Rank N Pid N on HOST device N [BUS] PRODUCT'");
    return;
  }
  const std::string host{*(at + 1)};
  std::string product;
  for (auto word = at + 5; word != words.end(); ++word) {
    product += (product.empty() ? "" : " ") + std::string(*word);
  }
  const std::optional<std::int32_t> rank = parse_count(words[2]);
  // Consecutive runs list the same devices again.
  if (!rank || static_cast<std::size_t>(*rank) < devices_.size()) return;
  if (devices_.empty()) result_.product = product;
  devices_.emplace_back(host, std::string(*(at + 4)));
  std::vector<std::string>& hosts = result_.hosts;
  if (std::find(hosts.begin(), hosts.end(), host) == hosts.end()) hosts.push_back(host);
}

void ResultReader::read_comment(const std::vector<std::string_view>& words) {
  if (words.size() > 2 && words[1] == "Rank") {
    read_rank(words);
  } else if (holds(words, "size") && holds(words, "busbw")) {
    has_header_ = true;
    ++runs_;
    has_root_ = holds(words, "root");
    counts_wrong_ = holds(words, "#wrong");
  } else if (words.size() > 2 && words[1] == "Avg") {
    has_average_ = true;
  }
}

std::optional<Run> ResultReader::read_run(const std::vector<std::string_view>& words,
                                          std::size_t first) {
  const RoundedCount time = scaled_up(words[first], 1000);
  const RoundedCount algorithm = scaled_up(words[first + 1], kGiga);
  const RoundedCount bus = scaled_up(words[first + 2], kGiga);
  for (const RoundedCount& figure : {time, algorithm, bus}) {
    if (figure.fault == DecimalFault::None) continue;
    fail(fmt::format("expected time, algbw and busbw as numbers of 0 or more, got '{} {} {}'",
                     shown(words[first]), shown(words[first + 1]), shown(words[first + 2])));
    return std::nullopt;
  }
  const bool has_wrong = counts_wrong_ && first + 3 < words.size() && words[first + 3] != "0" &&
                         words[first + 3] != "N/A";
  if (has_wrong) warn(fmt::format("line {}: wrong results of the collective", line_));
  return Run{{time.count}, {algorithm.count}, {bus.count}};
}

void ResultReader::add_run(Bytes size, const Run& run) {
  if (size.count > 0 && run.time.ns > 0) {
    Duration& time = result_.times.emplace(size, run.time).first->second;
    time = std::min(time, run.time);
  }
  // Later rows have larger messages, whose bandwidth does not drop on an idle machine.
  if (2 * run.bus.bytes_per_second < best_.bus.bytes_per_second && size > result_.bus_size) {
    ++drops_;
  }
  if (run.bus <= best_.bus) return;
  best_ = run;
  result_.bus_size = size;
}

void ResultReader::read_row(const std::vector<std::string_view>& words) {
  const RoundedCount size = scaled_up(words[0], 1);
  std::size_t first = 3;
  const bool has_operation =
      words.size() > first && words[first].find_first_not_of("0123456789.") == 0;
  if (has_operation) {
    has_reduction_ = has_reduction_ || words[first] != "none";
    ++first;
  }
  if (has_root_) ++first;
  const std::size_t rest = words.size() - std::min(first, words.size());
  const bool has_columns = rest == 3 || rest == 4 || rest == 8;
  if (size.fault != DecimalFault::None || !has_columns) {
    fail(fmt::format("expected size, count, type, redop, time, algbw and busbw, got {} columns",
                     words.size()));
    return;
  }
  ++rows_;
  if (const std::optional<Run> run = read_run(words, first)) add_run({size.count}, *run);
  if (rest < 8) {
    ++half_rows_;
  } else if (const std::optional<Run> run = read_run(words, first + 4)) {
    add_run({size.count}, *run);
  }
}

/// Derives the number of ranks n from the ratio of bus bandwidth to algorithm bandwidth, which is
/// 2(n-1)/n for an all-reduce and (n-1)/n for a gather or an all-to-all. Returns 0 if the ratio
/// fits neither.
std::int32_t ResultReader::ranks_by_ratio() const {
  if (best_.algorithm.bytes_per_second == 0) return 0;
  double ratio = static_cast<double>(best_.bus.bytes_per_second) /
                 static_cast<double>(best_.algorithm.bytes_per_second);
  if (has_reduction_ && ratio > 0.99) ratio /= 2;
  if (ratio < 0.4 || ratio > 0.9999) return 0;
  return static_cast<std::int32_t>(std::lround(1 / (1 - ratio)));
}

void ResultReader::warn_of_oddities() {
  if (has_prefix_) warn("its lines begin with a rank, as srun -l prints them");
  if (!has_average_) warn("it has no average at its end: the run may have been cut off");
  if (!has_reduction_) warn("it has no reduction: a gather or an exchange, not an all-reduce");
  if (!counts_wrong_) warn("its columns are those of an old nccl-tests");
  if (half_rows_ > 0)
    warn(fmt::format("{} of {} rows have only half of the columns", half_rows_, rows_));
  if (runs_ > 1) warn(fmt::format("it has {} runs one after another", runs_));
  if (strange_lines_ > 0)
    warn(fmt::format("lines between the rows are passed over: {}", strange_lines_));
  if (drops_ > 0) {
    warn(
        fmt::format("{} rows have less than half the bandwidth of smaller messages: the machine or "
                    "the network was busy",
                    drops_));
  }
  auto devices = devices_;
  std::sort(devices.begin(), devices.end());
  const auto unique_end = std::unique(devices.begin(), devices.end());
  if (unique_end != devices.end()) warn("several devices of a host have the same bus id");
}

MeasuredCollective ResultReader::run() {
  result_.file = file_.name;
  for (const std::string_view raw : split(file_.text, "\n")) {
    ++line_;
    const std::string_view text = without_prefix(raw, has_prefix_);
    const std::vector<std::string_view> words = words_of(text);
    if (words.empty()) continue;
    if (text.front() == '#') {
      read_comment(words);
    } else if (has_header_) {
      const bool is_row = words.size() >= 3 && parse_decimal(words[0]) && parse_decimal(words[1]);
      if (is_row) {
        read_row(words);
      } else if (rows_ == 0 || !has_average_) {
        ++strange_lines_;
      }
    }
  }
  line_ = 0;
  if (!has_header_) {
    fail("expected a table with the columns size, time, algbw and busbw, got none");
  } else if (faults_.empty() && best_.bus.bytes_per_second == 0) {
    fail("expected a bus bandwidth above zero, got none");
  }
  throw_faults(std::move(faults_), file_.name);
  warn_of_oddities();
  result_.bus = best_.bus;
  result_.ranks = static_cast<std::int32_t>(devices_.size());
  const std::int32_t ranks = ranks_by_ratio();
  // Reductions to a single rank have another ratio, unless there are two ranks.
  const bool is_all_reduce = has_reduction_ && ranks > 0 &&
                             best_.bus.bytes_per_second >= best_.algorithm.bytes_per_second &&
                             (result_.ranks == 0 || result_.ranks == ranks);
  if (!is_all_reduce) result_.times.clear();
  if (result_.ranks == 0) {
    result_.ranks = ranks;
  } else if (ranks > 0 && ranks != result_.ranks) {
    warn(fmt::format("it lists {} devices; its bandwidths are those of {}", result_.ranks, ranks));
  }
  return std::move(result_);
}

}  // namespace

bool is_nccl_tests(std::string_view text) {
  return text.find("busbw") != std::string_view::npos;
}

MeasuredCollective read_nccl_tests(const ForeignFile& file, ImportNotes& notes) {
  return ResultReader(file, notes).run();
}

}  // namespace dapple::interop
