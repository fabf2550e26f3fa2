#include "dapple/report/table.h"

#include <catch2/catch.hpp>

#include <random>
#include <sstream>
#include <string>

namespace dapple {
namespace {

TEST_CASE("columns are aligned by their widest cell, numbers to the right") {
  Table table{{{"name"}, {"time", Align::Right}}};
  table.add_row({{"a"}, {"1.5 ms"}});
  table.add_row({{"longer"}, {"12.5 ms"}});
  CHECK(table.text(2, {.width = 80}) ==
        "  name       time\n"
        "  ------  -------\n"
        "  a        1.5 ms\n"
        "  longer  12.5 ms\n");
}

TEST_CASE("where a table is too wide the widest shortenable column gives way first") {
  Table table{{{"a", Align::Left, 4}, {"b", Align::Left, 4}, {"c"}}};
  table.add_row({{"0123456789"}, {"0123456"}, {"whole"}});
  // 10 + 7 + 5 + two gaps of 2 = 26; at 22 the first column loses 3, then the first of two equals.
  CHECK(table.text(0, {.width = 22}) ==
        "a       b        c\n"
        "------  -------  -----\n"
        "012~89  0123456  whole\n");
}

TEST_CASE("a table never exceeds the width while a column can be shortened") {
  std::mt19937 random{11};
  for (int round = 0; round < 200; ++round) {
    Table table{{{"x", Align::Left, 3}, {"y", Align::Right, 3}, {"z", Align::Left, 3}}};
    for (int row = 0; row < 4; ++row) {
      table.add_row({{std::string(random() % 40, 'x')},
                     {std::string(random() % 40, 'y')},
                     {std::string(random() % 40, 'z')}});
    }
    const int width = 13 + static_cast<int>(random() % 80);  // 3 columns of 3, two gaps of 2
    std::istringstream lines{table.text(0, {.width = width})};
    for (std::string line; std::getline(lines, line);) {
      CHECK(display_width(line) <= static_cast<std::size_t>(width));
    }
  }
}

TEST_CASE("colours do not move the columns") {
  Table table{{{"name"}, {"state", Align::Right}, {"end"}}};
  table.add_row({{"a"}, {"bad", Ink::Bad}, {"xyz"}});
  std::istringstream lines{table.text(0, {.color = true})};
  for (std::string line; std::getline(lines, line);) CHECK(display_width(line) == 16);
}

}  // namespace
}  // namespace dapple
