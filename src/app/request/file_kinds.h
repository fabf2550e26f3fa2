// Files that were given for something else.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace dapple::app {

/// What a text is and who takes it: "a topology of ours, which --topo takes", "a file of slurm,
/// which dapple-plan import topology takes". Nothing of a text that no command takes, or that is
/// one of ours with a fault in it. What two commands take is said to be of the kind that was
/// `expected`, if it may be: "profile", "topology" or "plan". O(length).
std::optional<std::string> looks_like(std::string_view text, std::string_view expected);

/// Throws Error(BadInput) where the text is another tool's, or another kind of document of ours:
/// "expected a topology of ours, got ...". `kind`: "profile", "topology" or "plan". What is of that
/// kind, whatever its version, or nobody's is left to its reader.
void refuse_others(std::string_view text, const std::string& source, std::string_view kind);

/// Throws Error(BadInput) for a text in none of the formats that are asked for, "a plan of ...":
/// with what it looks like, or with the option that says it.
[[noreturn]] void refuse_unknown(std::string_view text, const std::string& source,
                                 std::string_view what);

}  // namespace dapple::app
