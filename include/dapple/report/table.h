// A text table with aligned columns that fits a terminal without truncating any cell.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "dapple/report/show.h"

namespace dapple::report {

enum class Align { Left, Right };

struct Column {
  std::string header;
  Align align = Align::Left;
  /// The least width in columns to which cells may be wrapped; 0 if they must not be wrapped.
  std::size_t least = 0;
};

struct Cell {
  std::string text;
  Ink ink = Ink::Plain;
};

class Table {
 public:
  /// Requires: there is at least one column.
  explicit Table(std::vector<Column> columns);

  /// Adds a row, whose texts pass through printable(). Requires: there is one cell for each column.
  void add_row(std::vector<Cell> cells);

  /// Returns the header, a rule and the rows, each line indented by `indent` blanks. If the style
  /// wraps and the table is too wide for it, the widest of the columns that may be wrapped are
  /// narrowed first, and their cells broken into lines. A table that is still too wide remains so:
  /// no cell is ever truncated.
  std::string text(std::size_t indent, const TextStyle& style) const;

 private:
  std::vector<std::size_t> fitted_widths(std::size_t indent, const TextStyle& style) const;
  /// Returns the lines of a row.
  std::string row_text(const std::vector<Cell>& row, const std::vector<std::size_t>& widths,
                       const std::string& margin, const TextStyle& style) const;

  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

}  // namespace dapple::report
