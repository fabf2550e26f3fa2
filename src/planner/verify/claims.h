// Collects the claims of a plan file that verification found false, with their places in the file.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "dapple/core/error.h"
#include "dapple/core/quantity.h"

namespace dapple::planner {

class Claims {
 public:
  template <class Figure>
  void expect(const std::string& place, const Figure& expected, const Figure& claimed) {
    if (claimed == expected) return;
    refuse(place, fmt::format("expected {}, got {}", expected, claimed));
  }
  void expect(const std::string& place, Duration expected, Duration claimed) {
    expect(place, expected.ns, claimed.ns);
  }
  void expect(const std::string& place, Bytes expected, Bytes claimed) {
    expect(place, expected.count, claimed.count);
  }
  void expect_text(const std::string& place, std::string_view expected, std::string_view claimed) {
    if (claimed == expected) return;
    refuse(place, fmt::format("expected \"{}\", got \"{}\"", expected, claimed));
  }
  void refuse(const std::string& place, std::string message) {
    violations_.push_back({place, std::move(message)});
  }
  bool empty() const { return violations_.empty(); }
  std::vector<Violation> take() { return std::move(violations_); }

 private:
  std::vector<Violation> violations_;
};

}  // namespace dapple::planner
