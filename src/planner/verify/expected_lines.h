// Compares lists of lines in a plan file with those that follow from the request.
#pragma once

#include <string>
#include <vector>

#include "planner/verify/claims.h"

namespace dapple::planner {

/// A line that a list of texts must hold.
struct ExpectedLine {
  std::string text;
  // Whether any number matches each {} (plan/record_text.h).
  bool has_figures = false;
  bool may_be_missing = false;
  // The line that files of older versions have in its place.
  std::string older = {};

  bool matches(const std::string& line) const;
};

std::vector<ExpectedLine> fixed_lines(std::vector<std::string> texts);

/// Returns the same of the warnings of a plan, without those that files of older versions lack.
std::vector<ExpectedLine> expected_warnings(std::vector<std::string> texts);

/// Refuses the first line at `place` that is not the expected one, or that is missing.
void check_lines(Claims& claims, const std::string& place,
                 const std::vector<ExpectedLine>& expected,
                 const std::vector<std::string>& claimed);

}  // namespace dapple::planner
