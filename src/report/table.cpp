#include "dapple/report/table.h"

#include <algorithm>
#include <utility>

#include "dapple/core/error.h"

namespace dapple::report {
namespace {

constexpr std::size_t kGap = 2;  // blanks between columns

std::string align(const std::string& text, Align side, std::size_t width) {
  const std::size_t length = display_width(text);
  const std::string blanks(width > length ? width - length : 0, ' ');
  return side == Align::Left ? text + blanks : blanks + text;
}

void trim_end(std::string& line) {
  while (!line.empty() && line.back() == ' ') line.pop_back();
}

}  // namespace

Table::Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

void Table::add_row(std::vector<Cell> cells) {
  check(cells.size() == columns_.size(), "a table's row has a cell for each column");
  for (Cell& cell : cells) cell.text = printable(cell.text);
  rows_.push_back(std::move(cells));
}

std::vector<std::size_t> Table::fitted_widths(std::size_t indent, const TextStyle& style) const {
  std::vector<std::size_t> widths;
  std::size_t total = indent + kGap * (columns_.size() - 1);
  for (std::size_t column = 0; column < columns_.size(); ++column) {
    std::size_t width = display_width(columns_[column].header);
    for (const auto& row : rows_) width = std::max(width, display_width(row[column].text));
    widths.push_back(width);
    total += width;
  }
  const auto limit = static_cast<std::size_t>(std::max(style.width, 1));
  while (style.wraps && total > limit) {
    std::size_t widest = columns_.size();
    for (std::size_t column = 0; column < columns_.size(); ++column) {
      const std::size_t least = columns_[column].least;
      if (least == 0 || widths[column] <= std::max(least, display_width(columns_[column].header))) {
        continue;
      }
      if (widest == columns_.size() || widths[column] > widths[widest]) widest = column;
    }
    if (widest == columns_.size()) break;
    --widths[widest];
    --total;
  }
  return widths;
}

std::string Table::text(std::size_t indent, const TextStyle& style) const {
  const std::vector<std::size_t> widths = fitted_widths(indent, style);
  const std::string margin(indent, ' ');
  const std::string gap(kGap, ' ');
  std::string header = margin;
  std::string rule = margin;
  for (std::size_t column = 0; column < columns_.size(); ++column) {
    if (column > 0) header += gap, rule += gap;
    header += align(columns_[column].header, columns_[column].align, widths[column]);
    for (std::size_t i = 0; i < widths[column]; ++i) rule += style.unicode ? "─" : "-";
  }
  trim_end(header);
  std::string result =
      paint(header, Ink::Strong, style) + '\n' + paint(rule, Ink::Faint, style) + '\n';
  for (const auto& row : rows_) result += row_text(row, widths, margin, style);
  return result;
}

std::string Table::row_text(const std::vector<Cell>& row, const std::vector<std::size_t>& widths,
                            const std::string& margin, const TextStyle& style) const {
  std::vector<std::vector<std::string>> cells;
  std::size_t lines = 1;
  for (std::size_t column = 0; column < columns_.size(); ++column) {
    cells.push_back(wrap(row[column].text, std::max<std::size_t>(widths[column], 1)));
    lines = std::max(lines, cells.back().size());
  }
  std::string result;
  for (std::size_t i = 0; i < lines; ++i) {
    std::string line = margin;
    for (std::size_t column = 0; column < columns_.size(); ++column) {
      if (column > 0) line += std::string(kGap, ' ');
      const std::string& text = i < cells[column].size() ? cells[column][i] : std::string{};
      line += paint(align(text, columns_[column].align, widths[column]),
                    text.empty() ? Ink::Plain : row[column].ink, style);
    }
    trim_end(line);
    result += line + '\n';
  }
  return result;
}

}  // namespace dapple::report
