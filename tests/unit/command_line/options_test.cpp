#include "dapple/command_line/options.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

namespace dapple::command_line {
namespace {

std::vector<OptionSpec> table() {
  return {{.name = "format", .value = "KIND", .choices = {"text", "csv", "json"}},
          {.name = "output", .letter = 'o', .value = "FILE", .kind = ValueKind::File},
          {.name = "pin", .value = "WHAT", .repeats = true},
          {.name = "recost"}};
}

TEST_CASE("an option takes a value if its row has a placeholder") {
  const Options options({"a", "--recost", "-o", "b", "--pin=c", "--pin", "d", "-q"}, table());
  CHECK(options.positional() == std::vector<std::string>{"a"});
  CHECK(options.has("recost"));
  CHECK(options.has("quiet"));
  CHECK(options.text("output") == "b");
  CHECK(options.texts("pin") == std::vector<std::string>{"c", "d"});
  CHECK_FALSE(options.has("format"));
  CHECK_THROWS_WITH(Options({"--recost=yes"}, table()), "--recost: expected no value");
  CHECK_THROWS_WITH(Options({"-o", "a", "-o", "b"}, table()), "--output: given twice");
}

TEST_CASE("a choice is one of the row's, and the first of them by default") {
  CHECK(Options({}, table()).choice("format") == "text");
  CHECK(Options({"--format", "json"}, table()).choice("format") == "json");
  CHECK_THROWS_WITH(Options({"--format", "jsn"}, table()).choice("format"),
                    "--format: expected text, csv or json, got \"jsn\", nearest is json");
  CHECK_THROWS_AS(Options({}, table()).choice("colour"), Bug);
}

TEST_CASE("a list has one part more than commas") {
  CHECK(parts_of_list("") == std::vector<std::string>{""});
  CHECK(parts_of_list("1") == std::vector<std::string>{"1"});
  CHECK(parts_of_list("1,,b") == std::vector<std::string>{"1", "", "b"});
  CHECK(parts_of_list("1,") == std::vector<std::string>{"1", ""});
}

TEST_CASE("the nearest word has at most a third of its letters wrong") {
  CHECK(nearest("simulat", {"validate", "simulate"}) == "simulate");
  CHECK(nearest("ZBV", {"zb-h1", "zb-v"}) == "zb-v");
  CHECK_FALSE(nearest("zzzzzz", {"simulate"}));
}

}  // namespace
}  // namespace dapple::command_line
