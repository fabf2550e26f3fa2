// Error handling. Invalid input throws one Error that carries every violation found in it. The
// absence of a feasible plan is a value (`Infeasible`), not an error. Programming errors throw a
// Bug through check(), which is active in every build.
#pragma once

#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace dapple {

/// One fault of an input. `place` is a JSON pointer, "line 12", the name of an option, or empty for
/// the whole input; `message` reads "expected X, got Y".
struct Violation {
  std::string place;
  std::string message;

  friend bool operator==(const Violation&, const Violation&) = default;
};

/// Returns a key as a reference token of a JSON pointer: "~" becomes "~0" and "/" becomes "~1"
/// (RFC 6901). O(length).
std::string pointer_step(std::string_view key);

enum class ErrorKind {
  /// The command line is invalid (exit code 2).
  Usage,
  /// The contents of a file are invalid (exit code 3).
  BadInput,
  /// A failure of the file system, MPI, CUDA or NCCL (exit code 5).
  Environment,
};

/// The violations of one input. what() has one line per violation, "source: place: message".
class Error : public std::exception {
 public:
  /// `source` is the name by which the user knows the input, such as a file name as given; it is
  /// empty if the input has no name. Requires: at least one violation.
  Error(ErrorKind kind, std::string source, std::vector<Violation> violations);

  const char* what() const noexcept override { return text_.c_str(); }
  ErrorKind kind() const { return kind_; }
  const std::string& source() const { return source_; }
  const std::vector<Violation>& violations() const { return violations_; }

 private:
  ErrorKind kind_;
  std::string source_;
  std::vector<Violation> violations_;
  std::string text_;
};

/// A programming error in this program (exit code 1).
class Bug : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

/// Throws Bug with `what` unless `condition` holds. Active in every build.
inline void check(bool condition, const char* what) {
  if (!condition) throw Bug(what);
}

}  // namespace dapple
