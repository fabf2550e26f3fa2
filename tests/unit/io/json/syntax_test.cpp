#include <catch2/catch.hpp>

#include "../documents/documents_under_test.h"
#include "dapple/core/random.h"

namespace dapple::test {
namespace {

using Faults = std::vector<std::string>;

struct BadText {
  std::string text;
  std::string fault;
};

TEST_CASE("a fault of syntax is told with its line and column") {
  const std::vector<BadText> cases{
      {"", "expected a JSON document, got an empty file"},
      {" \n\t", "expected a JSON document, got an empty file"},
      {"{", "line 1, column 2: expected string literal, got end of input"},
      {"{\"a\": 1,\n}", "line 1, column 8: expected no comma before '}', got one"},
      {"[1 , ]", "line 1, column 4: expected no comma before ']', got one"},
      {"[]]", "line 1, column 3: expected end of input, got ']'"},
      {"{\"a\" 1}", "line 1, column 6: expected ':', got number literal"},
      {"[1, 2", "line 1, column 6: expected ']', got end of input"},
      {"{}\n{}", "line 2, column 1: expected end of input, got '{'"},
      {"{\"a\":\n  NaN}", "line 2, column 3: expected a JSON value, got \"NaN\""},
      {"[-Infinity]", "line 1, column 2: expected a JSON value, got \"-Infinity\""},
      {"[Infinity]", "line 1, column 2: expected a JSON value, got \"Infinity\""},
      {"[tru]", "line 1, column 2: expected a JSON value, got \"tru\""},
      {"['a']", "line 1, column 2: expected text in double quotes, got a single one"},
      {"[01]", "line 1, column 3: expected ']', got number literal"},
      {"[1.]", "line 1, column 2: expected a JSON value, got \"1.\""},
      {"[\"a\nb\"]",
       "line 1, column 4: expected valid JSON, got an invalid string: control character U+000A "
       "(LF) "
       "must be escaped to \\u000A or \\n"},
      {"[\"\xff\"]", "line 1, column 3: expected UTF-8 text, got an ill-formed byte"},
      {"[\"\xc0\xaf\"]", "line 1, column 3: expected UTF-8 text, got an ill-formed byte"},
      {"[\"\xed\xa0\x80\"]", "line 1, column 4: expected UTF-8 text, got an ill-formed byte"},
      {std::string("{}\0{", 4), "line 1, column 3: expected JSON text, got a zero byte"},
      {"// comment\n{}", "line 1, column 1: expected no comment, as JSON has none, got one"},
      {"{\"a\": 1, # one\n}", "line 1, column 10: expected no comment, as JSON has none, got one"},
      {"[1 /* one */]", "line 1, column 4: expected no comment, as JSON has none, got one"},
      {"[1 / 2]", "line 1, column 4: expected a JSON value, got \"/\""},
      {"[1e999]", "line 1, column 2: expected a number in the range of a double, got \"1e999\""},
      {"\"just text\"", "expected an object, got \"just text\""},
      {"[]", "expected an object, got an empty array"},
      {"null", "expected an object, got null"},
      {std::string(100, '[') + std::string(100, ']'),
       "expected at most 64 levels of nesting, got more"},
      {std::string(1'000'000, '['), "expected at most 64 levels of nesting, got more"},
  };
  for (const BadText& bad : cases) {
    INFO(bad.text.substr(0, 80));
    CHECK(profile_faults(bad.text) == Faults{bad.fault});
    CHECK(topology_faults(bad.text) == Faults{bad.fault});
    CHECK(plan_faults(bad.text) == Faults{bad.fault});
  }
}

TEST_CASE("a byte order mark is no fault") {
  CHECK(profile_faults("\xef\xbb\xbf" + kProfileText).empty());
}

TEST_CASE("a document cut off anywhere is refused") {
  const std::string plan = io::write_plan(small_plan());
  for (std::size_t size = 0; size + 1 < plan.size(); ++size)
    REQUIRE(plan_faults(plan.substr(0, size)).size() == 1);
  for (std::size_t size = 0; size + 2 < kTopologyText.size(); ++size)
    REQUIRE(topology_faults(kTopologyText.substr(0, size)).size() == 1);
}

/// A few bytes of `text` overwritten, left out, doubled, or replaced by pieces that readers trip
/// on.
std::string mutated(std::string text, RandomSequence& random) {
  static const std::vector<std::string> kPieces{
      "-1", "1e18", "9223372036854775807", "null", "\"\"", "[]", "{}", "true", "0.5", "\xff", "\\",
      ",",  "\"-\""};
  for (std::uint64_t edits = 1 + random() % 3; edits > 0; --edits) {
    const std::size_t at = random() % text.size();
    const std::size_t size = std::min<std::size_t>(random() % 12, text.size() - at);
    switch (random() % 4) {
      case 0:
        text[at] = static_cast<char>(random() % 256);
        break;
      case 1:
        text.erase(at, size);
        break;
      case 2:
        text.insert(at, text.substr(at, size));
        break;
      default:
        text.replace(at, size, kPieces[random() % kPieces.size()]);
        break;
    }
    if (text.empty()) text = " ";
  }
  return text;
}

TEST_CASE("a mutated document is read, or refused with at least one fault, and nothing else") {
  RandomSequence random(7);
  const std::string plan = io::write_plan(small_plan());
  int refused = 0;
  for (int i = 0; i < 6'000; ++i) {
    try {
      switch (i % 3) {
        case 0:
          io::read_profile(mutated(kProfileText, random), "f.json");
          break;
        case 1:
          io::read_topology(mutated(kTopologyText, random), "f.json");
          break;
        default:
          io::read_plan(mutated(plan, random), "f.json");
          break;
      }
    } catch (const Error& error) {
      ++refused;
      REQUIRE(error.kind() == ErrorKind::BadInput);
      REQUIRE_FALSE(error.violations().empty());
      REQUIRE_FALSE(error.violations().front().message.empty());
    }
  }
  CHECK(refused > 3'000);
}

}  // namespace
}  // namespace dapple::test
