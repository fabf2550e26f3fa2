// Recognizes files of another kind than the one requested, for error messages.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace dapple::app {

/// Returns what a text is and which command takes it: "a topology, which --topo takes", "a
/// file of slurm, which dapple-plan import topology takes". Returns nothing for a text that no
/// command takes, or that is one of our documents with a fault in it. If two commands take the
/// text, prefers the `expected` kind: "profile", "topology" or "plan". O(length).
std::optional<std::string> looks_like(std::string_view text, std::string_view expected);

/// Throws Error(BadInput) if the text is another tool's, or one of our documents of another kind:
/// "expected a topology, got ...". `kind`: "profile", "topology" or "plan". Texts of that
/// kind, of any version, and unrecognized texts are left to their reader.
void refuse_others(std::string_view text, const std::string& source, std::string_view kind);

/// Throws Error(BadInput) for a text in none of the expected formats (`what`: "a plan of ..."),
/// saying what it looks like or, if that is unknown, which option gives its format. A text that
/// begins as JSON and is not has its syntax error named instead.
[[noreturn]] void refuse_unknown(std::string_view text, const std::string& source,
                                 std::string_view what);

}  // namespace dapple::app
