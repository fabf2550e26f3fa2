// Symbolic links to files that are read or written.
#pragma once

#include <filesystem>
#include <string>

namespace dapple::io {

/// Returns the path to which `path` leads through symbolic links, whether a file is there or not.
/// Throws Error(Environment) if it is empty, a link cannot be read, or there are more than 40
/// links.
std::filesystem::path follow_links(const std::string& path);

}  // namespace dapple::io
