#include "app/commands/calibrate/measured_operations.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "dapple/core/characters.h"
#include "dapple/core/decimal.h"
#include "dapple/core/error.h"
#include "dapple/interop/text/value_table.h"

namespace dapple::app {
namespace {

constexpr std::size_t kMostOperations = 1'000'000;
constexpr std::size_t kMostOperationFaults = 20;
constexpr std::int64_t kLeastTokens = 1'024;

/// The columns that say what a row is of.
constexpr std::string_view kHeads = "n_head";
constexpr std::string_view kKeyHeads = "n_kv_head";
constexpr std::string_view kHidden = "n_embd";
constexpr std::string_view kInner = "n_expanded_embd";
constexpr std::string_view kIsGated = "use_gated_mlp";
constexpr std::string_view kTokens = "num_tokens";
constexpr std::string_view kDegree = "num_tensor_parallel_workers";

/// The dimensions of a row.
struct Dimensions {
  std::int64_t heads = 1;
  std::int64_t key_heads = 1;
  std::int64_t hidden = 1;
  std::int64_t inner = 1;
  bool is_gated = false;
  std::int64_t tokens = 1;
  std::int64_t degree = 1;

  /// The columns of the projection to queries, keys and values on a tensor rank.
  std::int64_t projected() const {
    const std::int64_t width = hidden / heads;
    return (heads / degree + 2 * divide_up(key_heads, degree)) * width;
  }
};

/// An operation of the tables.
struct OperationColumn {
  std::string_view name;
  estimate::Operation (*operation)(const Dimensions& of);
};

constexpr OperationColumn kOperationColumns[] = {
    {"attn_pre_proj",
     [](const Dimensions& of) -> estimate::Operation {
       return {.rows = of.tokens, .columns = of.projected(), .inner = of.hidden};
     }},
    {"attn_post_proj",
     [](const Dimensions& of) -> estimate::Operation {
       return {.rows = of.tokens, .columns = of.hidden, .inner = of.hidden / of.degree};
     }},
    {"mlp_up_proj",
     [](const Dimensions& of) -> estimate::Operation {
       const std::int64_t matrices = of.is_gated ? 2 : 1;
       return {.rows = of.tokens, .columns = matrices * of.inner / of.degree, .inner = of.hidden};
     }},
    {"mlp_down_proj",
     [](const Dimensions& of) -> estimate::Operation {
       return {.rows = of.tokens, .columns = of.hidden, .inner = of.inner / of.degree};
     }},
    {"mlp_act",
     [](const Dimensions& of) -> estimate::Operation {
       const std::int64_t tensors = of.is_gated ? 3 : 2;
       return {.numbers = tensors * of.tokens * (of.inner / of.degree)};
     }},
    {"add",
     [](const Dimensions& of) -> estimate::Operation {
       return {.numbers = 3 * of.tokens * of.hidden};
     }},
};

std::string time_column(std::string_view operation) {
  return fmt::format("time_stats.{}.median", operation);
}

class OperationsReader {
 public:
  explicit OperationsReader(std::string source) : source_(std::move(source)) {}

  std::vector<MeasuredOperation> read(std::string_view text);

 private:
  void read_header(std::string_view line);
  void read_row(std::string_view line);
  const std::string& cell(std::string_view column) const {
    return cells_[columns_.find(column)->second];
  }
  std::int64_t count(std::string_view column);
  void add(std::string message) {
    faults_.push_back({fmt::format("line {}", line_), std::move(message)});
  }

  std::string source_;
  std::map<std::string, std::size_t, std::less<>> columns_;
  std::size_t width_ = 0;
  std::vector<std::string> cells_;
  std::vector<MeasuredOperation> operations_;
  std::vector<Violation> faults_;
  std::int64_t line_ = 0;
};

void OperationsReader::read_header(std::string_view line) {
  const std::vector<std::string> names = interop::cells_of_row(line);
  width_ = names.size();
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (columns_.emplace(names[i], i).second || faults_.size() >= kMostOperationFaults) continue;
    add(fmt::format("expected each column once, got \"{}\" twice", printable(names[i])));
  }
  std::vector<std::string> wanted;
  for (const std::string_view name :
       {kHeads, kKeyHeads, kHidden, kInner, kIsGated, kTokens, kDegree}) {
    wanted.emplace_back(name);
  }
  for (const OperationColumn& column : kOperationColumns)
    wanted.push_back(time_column(column.name));
  for (const std::string& name : wanted) {
    if (columns_.count(name) == 0) add(fmt::format("expected a column \"{}\", got none", name));
  }
}

/// Returns the value of a column that counts something, or 1 with a fault.
std::int64_t OperationsReader::count(std::string_view column) {
  constexpr Wide kMost = 1'000'000'000;
  const std::string& text = cell(column);
  const auto found = is_plain_decimal(text) ? scaled_exactly(text, 1) : std::nullopt;
  if (found && *found >= 1 && *found <= kMost) return static_cast<std::int64_t>(*found);
  add(fmt::format("{}: expected a whole number from 1 to 1000000000, got \"{}\"", column,
                  printable(text)));
  return 1;
}

void OperationsReader::read_row(std::string_view line) {
  cells_ = interop::cells_of_row(line);
  if (cells_.size() != width_) {
    return add(
        fmt::format("expected {} cells, as the first row has, got {}", width_, cells_.size()));
  }
  const std::size_t before = faults_.size();
  Dimensions of{.heads = count(kHeads),
                .key_heads = count(kKeyHeads),
                .hidden = count(kHidden),
                .inner = count(kInner),
                .tokens = count(kTokens),
                .degree = count(kDegree)};
  const std::string& gated = cell(kIsGated);
  of.is_gated = gated == "True";
  if (!of.is_gated && gated != "False") {
    add(fmt::format("{}: expected True or False, got \"{}\"", kIsGated, printable(gated)));
  }
  if (faults_.size() == before &&
      (of.hidden % of.heads != 0 || of.heads % of.degree != 0 || of.inner % of.degree != 0)) {
    add(
        fmt::format("expected heads that divide {}, and a tensor degree that divides heads and {}, "
                    "got {} heads and degree {}",
                    kHidden, kInner, of.heads, of.degree));
  }
  if (faults_.size() != before || of.tokens < kLeastTokens) return;
  for (const OperationColumn& column : kOperationColumns) {
    const std::string name = time_column(column.name);
    const std::string& text = cell(name);
    constexpr std::int64_t kNanosecondsPerMillisecond = 1'000'000;
    const RoundedCount time = scaled_up(text, kNanosecondsPerMillisecond);
    if (time.fault != DecimalFault::None || time.count == 0) {
      add(fmt::format("{}: expected milliseconds above 0, got \"{}\"", name, printable(text)));
      continue;
    }
    operations_.push_back({.name = fmt::format("{} line {} {}", source_, line_, column.name),
                           .operation = column.operation(of),
                           .time = {time.count}});
  }
}

std::vector<MeasuredOperation> OperationsReader::read(std::string_view text) {
  interop::for_each_row(text, [&](std::int64_t number, std::string_view line) {
    line_ = number;
    if (width_ == 0) {
      read_header(line);
      return faults_.empty();
    }
    if (operations_.size() >= kMostOperations) {
      add(fmt::format("expected at most {} operations, got more", kMostOperations));
      return false;
    }
    read_row(line);
    return faults_.size() < kMostOperationFaults;
  });
  if (faults_.empty() && operations_.empty()) {
    faults_.push_back(
        {"", fmt::format("expected operations over {} tokens or more, got none", kLeastTokens)});
  }
  if (!faults_.empty()) throw Error{ErrorKind::BadInput, source_, std::move(faults_)};
  return std::move(operations_);
}

}  // namespace

std::vector<MeasuredOperation> read_operations(const std::string& text,
                                               const std::string& source_name) {
  return OperationsReader(source_name).read(text);
}

}  // namespace dapple::app
