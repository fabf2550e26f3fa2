// Files that were given for something else.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace dapple {

/// What a text is and who takes it: "a topology of ours, which --topo takes", "a file of slurm,
/// which dapple-plan import topology takes". Nothing of a text that no command takes, or that is
/// one of ours with a fault in it. O(length).
std::optional<std::string> looks_like(std::string_view text);

/// Throws Error(BadInput) where the text is another tool's: "expected a topology of ours, got ...".
/// What is ours, or nobody's, is left to the reader of `what`.
void refuse_foreign(std::string_view text, const std::string& source, std::string_view what);

/// Throws Error(BadInput) for a text in none of the formats that are asked for, "a plan of ...":
/// with what it looks like, or with the option that says it.
[[noreturn]] void refuse_unknown(std::string_view text, const std::string& source,
                                 std::string_view what);

}  // namespace dapple
