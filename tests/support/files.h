// Files that tests read: the project's own, and other people's real ones, which may be absent.
#pragma once

#include <optional>
#include <string>

namespace dapple::test {

/// Where a file of the source tree is, and one of the real files of others, by their paths there.
std::string source_path(const std::string& path);
std::string shared_path(const std::string& path);

/// A whole file, or nothing if it cannot be opened.
std::optional<std::string> file_text(const std::string& path);

/// A file of the project, by its path in the source tree. Fails the test if it is not there.
std::string source_file(const std::string& path);

/// A real file of others, or nothing and a warning that the test is skipped.
std::optional<std::string> shared_file(const std::string& path);

}  // namespace dapple::test
