// Variants of a sound text, each with one thing wrong in it, and what is said of them.
#pragma once

#include <catch2/catch.hpp>
#include <functional>
#include <string>
#include <vector>

#include "dapple/core/error.h"
#include "files.h"

namespace dapple::test {

/// A file of tests/golden/interop.
inline std::string sample(const std::string& name) {
  return source_file("tests/golden/interop/" + name);
}

/// The text with the first `from` in it replaced. Fails the test if there is none.
inline std::string changed(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  INFO(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

/// What an Error says, or "accepted".
inline std::string refusal_of(const std::function<void()>& import) {
  try {
    import();
  } catch (const Error& error) { return error.what(); }
  return "accepted";
}

struct Malformed {
  std::string from;  // all of the text, if empty
  std::string to;
  std::string refusal;  // a part of it
};

inline bool warns(const std::vector<std::string>& warnings, const std::string& words) {
  for (const std::string& warning : warnings) {
    if (warning.find(words) != std::string::npos) return true;
  }
  return false;
}

/// Each of at least fifteen variants of a text is refused with its reason.
inline void check_variants(const std::string& text, const std::vector<Malformed>& cases,
                           const std::function<void(const std::string& text)>& import) {
  CHECK(cases.size() >= 15);
  for (const Malformed& variant : cases) {
    INFO(variant.from << " -> " << variant.to);
    const std::string broken =
        variant.from.empty() ? variant.to : changed(text, variant.from, variant.to);
    const std::string refusal = refusal_of([&] { import(broken); });
    INFO(refusal);
    CHECK(refusal.find(variant.refusal) != std::string::npos);
  }
}

/// The same of a text that is sound.
inline void check_refusals(const std::string& text, const std::vector<Malformed>& cases,
                           const std::function<void(const std::string& text)>& import) {
  CHECK(refusal_of([&] { import(text); }) == "accepted");
  check_variants(text, cases, import);
}

}  // namespace dapple::test
