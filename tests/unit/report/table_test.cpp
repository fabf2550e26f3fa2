#include "dapple/report/table.h"
#include "dapple/core/random.h"

#include <catch2/catch.hpp>

#include <sstream>
#include <string>
#include <vector>

namespace dapple::report {
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

TEST_CASE("where a table is too wide for a terminal its widest columns take more lines") {
  Table table{{{"a", Align::Left, 4}, {"b", Align::Left, 4}, {"c"}}};
  table.add_row({{"abcdefghij"}, {"abcdefg"}, {"whole"}});
  // 10 + 7 + 5 + two gaps of 2 = 26; at 22 the first column loses 3, then the first of two equals.
  CHECK(table.text(0, {.width = 22, .wraps = true}) ==
        "a       b        c\n"
        "------  -------  -----\n"
        "abcdef  abcdefg  whole\n"
        "ghij\n");
  // Elsewhere a row is a line.
  CHECK(table.text(0, {.width = 22}) ==
        "a           b        c\n"
        "----------  -------  -----\n"
        "abcdefghij  abcdefg  whole\n");
}

TEST_CASE("a cell is broken where its parts meet, and never inside a number") {
  using Lines = std::vector<std::string>;
  CHECK(wrap("27: embeddings..encoder.25", 12) == Lines{"27:", "embeddings", "..encoder.25"});
  CHECK(wrap("27: embeddings..encoder.25", 14) == Lines{"27: embeddings", "..encoder.25"});
  CHECK(wrap("bubble 85.92 ms, all-reduce 2.5 ms", 16) ==
        Lines{"bubble 85.92 ms,", "all-reduce 2.5", "ms"});
  CHECK(wrap("8: node0:0-7, node12:1", 14) == Lines{"8: node0:0-7,", "node12:1"});
  CHECK(wrap("123456789 of 10,336,000", 6) == Lines{"123456789", "of", "10,336,000"});
  CHECK(wrap("größenordnung", 5) == Lines{"größe", "nordn", "ung"});
  CHECK(wrap("whole", 5) == Lines{"whole"});
  CHECK(wrap("", 5) == Lines{""});
}

TEST_CASE("wrapped text loses nothing but blanks, and keeps every number whole") {
  RandomSequence random{13};
  const std::string letters = "ab.,: 019";
  for (int round = 0; round < 2'000; ++round) {
    std::string text;
    for (std::size_t i = random() % 40; i > 0; --i) text += letters[random() % letters.size()];
    const std::size_t width = 1 + random() % 12;
    const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
    std::size_t place = 0;
    for (const std::string& line : wrap(text, width)) {
      INFO(text << " at " << width << ": " << line);
      const std::size_t end = place;
      while (place < text.size() && place > 0 && text[place] == ' ') ++place;
      const bool is_at_blank = place > end || place == 0;
      REQUIRE(text.substr(place, line.size()) == line);
      CHECK((is_at_blank || !is_digit(text[place - 1]) || !is_digit(text[place])));
      place += line.size();
    }
    CHECK(text.find_first_not_of(' ', place) == std::string::npos);
  }
}

TEST_CASE("a table never exceeds a terminal's width while a column can be wrapped") {
  RandomSequence random{11};
  for (int round = 0; round < 200; ++round) {
    Table table{{{"x", Align::Left, 3}, {"y", Align::Right, 3}, {"z", Align::Left, 3}}};
    for (int row = 0; row < 4; ++row) {
      table.add_row({{std::string(random() % 40, 'x')},
                     {std::string(random() % 40, 'y')},
                     {std::string(random() % 40, 'z')}});
    }
    const int width = 13 + static_cast<int>(random() % 80);  // 3 columns of 3, two gaps of 2
    std::istringstream lines{table.text(0, {.width = width, .wraps = true})};
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
}  // namespace dapple::report
