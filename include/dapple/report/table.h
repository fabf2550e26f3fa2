// A table with aligned columns that fits a terminal and loses nothing anywhere.
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
  std::size_t least = 0;  // characters below which cells are never wrapped; 0: not wrapped at all
};

struct Cell {
  std::string text;
  Ink ink = Ink::Plain;
};

class Table {
 public:
  /// Requires: at least one column.
  explicit Table(std::vector<Column> columns);

  /// Cells are shown as printable() has them. Requires: one cell for each column.
  void add_row(std::vector<Cell> cells);

  /// Header, a rule, and the rows, each line indented by `indent` blanks. Where the style wraps and
  /// its width is too small, cells of the widest of the columns that may be are broken into lines
  /// first; a table that is still too wide stays so. Nothing is ever cut.
  std::string text(std::size_t indent, const TextStyle& style) const;

 private:
  std::vector<std::size_t> fitted_widths(std::size_t indent, const TextStyle& style) const;
  /// A row's lines.
  std::string row_text(const std::vector<Cell>& row, const std::vector<std::size_t>& widths,
                       const std::string& margin, const TextStyle& style) const;

  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

}  // namespace dapple::report
