// Errors. Bad input throws one Error that carries every violation found in it; main is the only
// catcher. A plan that does not exist is a value (`Infeasible`), not an error. Our own mistakes
// throw a Bug, through a check that is on in every build.
#pragma once

#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace dapple {

/// One fault of an input. `place` is a JSON pointer, "line 12", an option's name, or empty for the
/// whole input; `message` reads "expected X, got Y".
struct Violation {
  std::string place;
  std::string message;

  friend bool operator==(const Violation&, const Violation&) = default;
};

/// A key as a step of a JSON pointer: "~" becomes "~0" and "/" becomes "~1" (RFC 6901). O(length).
std::string pointer_step(std::string_view key);

enum class ErrorKind {
  Usage,        // exit code 2: the command line
  BadInput,     // exit code 3: what a file says
  Environment,  // exit code 5: files, MPI, CUDA, NCCL
};

/// What is wrong with one input; what() is one line per violation, "source: place: message".
class Error : public std::exception {
 public:
  /// `source` is what the user calls the input, empty if it has no name. Requires: at least one
  /// violation.
  Error(ErrorKind kind, std::string source, std::vector<Violation> violations);

  const char* what() const noexcept override { return text_.c_str(); }
  ErrorKind kind() const { return kind_; }
  const std::string& source() const { return source_; }
  const std::vector<Violation>& violations() const { return violations_; }

 private:
  ErrorKind kind_;
  std::string source_;  // a file's name as the user gave it
  std::vector<Violation> violations_;
  std::string text_;
};

/// A mistake of this program; exit code 1.
class Bug : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

/// Throws Bug with `what` unless `condition` holds. On in every build.
inline void check(bool condition, const char* what) {
  if (!condition) throw Bug(what);
}

}  // namespace dapple
