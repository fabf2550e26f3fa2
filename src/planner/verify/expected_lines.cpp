#include "planner/verify/expected_lines.h"

#include <fmt/format.h>

#include <cstddef>
#include <utility>

#include "dapple/plan/record_text.h"
#include "dapple/profile/doubts.h"

namespace dapple::planner {

bool ExpectedLine::matches(const std::string& line) const {
  if (!older.empty() && line == older) return true;
  return has_figures ? figures_in(text, line).has_value() : text == line;
}

std::vector<ExpectedLine> fixed_lines(std::vector<std::string> texts) {
  std::vector<ExpectedLine> lines;
  for (std::string& text : texts) lines.push_back({.text = std::move(text)});
  return lines;
}

std::vector<ExpectedLine> expected_warnings(std::vector<std::string> texts) {
  std::vector<ExpectedLine> lines = fixed_lines(std::move(texts));
  for (ExpectedLine& line : lines) {
    line.may_be_missing = line.may_be_missing || line.text.starts_with(kMissingCore);
  }
  return lines;
}

void check_lines(Claims& claims, const std::string& place,
                 const std::vector<ExpectedLine>& expected,
                 const std::vector<std::string>& claimed) {
  std::size_t next = 0;
  for (std::size_t i = 0; i < claimed.size(); ++i) {
    while (next < expected.size() && expected[next].may_be_missing &&
           !expected[next].matches(claimed[i])) {
      ++next;
    }
    const std::string here = fmt::format("{}/{}", place, i);
    if (next == expected.size()) {
      claims.refuse(here, fmt::format("expected no more lines, got \"{}\"", claimed[i]));
      return;
    }
    if (!expected[next].matches(claimed[i])) {
      claims.expect_text(here, expected[next].text, claimed[i]);
      return;
    }
    ++next;
  }
  for (; next < expected.size(); ++next) {
    if (expected[next].may_be_missing) continue;
    claims.refuse(place, fmt::format("expected also \"{}\", got {} line{}", expected[next].text,
                                     claimed.size(), claimed.size() == 1 ? "" : "s"));
    return;
  }
}

}  // namespace dapple::planner
