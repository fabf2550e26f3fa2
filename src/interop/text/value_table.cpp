#include "dapple/interop/text/value_table.h"

#include <algorithm>

#include "interop/text/foreign_text.h"

namespace dapple::interop {

std::string_view take_part(std::string_view& text, char separator) {
  const std::size_t end = std::min(text.find(separator), text.size());
  const std::string_view part = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return part;
}

void for_each_row(std::string_view text,
                  const std::function<bool(std::int64_t number, std::string_view line)>& visit) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (begins_with(text, kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  for (std::int64_t number = 1; !text.empty(); ++number) {
    const std::string_view line = trim(take_part(text, '\n'));
    if (line.empty() || line.front() == '#') continue;
    if (!visit(number, line)) return;
  }
}

std::vector<std::string> cells_of_row(std::string_view line, std::size_t most) {
  std::vector<std::string> cells;
  for (bool is_last = false; !is_last && cells.size() <= most;) {
    is_last = line.find(',') == std::string_view::npos;
    std::string_view cell = trim(take_part(line, ','));
    const bool is_quoted = cell.size() > 1 && cell.front() == '"' && cell.back() == '"';
    if (is_quoted) cell = cell.substr(1, cell.size() - 2);
    cells.emplace_back(cell);
  }
  return cells;
}

}  // namespace dapple::interop
