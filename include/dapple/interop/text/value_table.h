// Reads tables of values that commas separate: a line for each row, such as layouts and runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace dapple::interop {

/// Takes the text before the next separator from the text, or all of it. O(length).
std::string_view take_part(std::string_view& text, char separator);

/// Calls `visit` with the number, from 1, of every line that is neither empty nor a comment, which
/// "#" begins, and with the line without blanks around it, until it returns false. A byte order
/// mark in front is skipped. O(length), without the calls.
void for_each_row(std::string_view text,
                  const std::function<bool(std::int64_t number, std::string_view line)>& visit);

/// Returns the cells of a row without blanks and quotes around them, and at most `most` + 1 of
/// them. O(length).
std::vector<std::string> cells_of_row(std::string_view line,
                                      std::size_t most = std::numeric_limits<std::size_t>::max() -
                                                         1);

}  // namespace dapple::interop
