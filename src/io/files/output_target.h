// Where output goes: what a path leads to, the writing itself, and the errors of both.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace dapple::io {

/// Throws Error(Environment) with that message about the path.
[[noreturn]] void refuse_output(const std::string& path, std::string message);
/// "cannot be written: " and the system's word for the error number.
[[noreturn]] void refuse_output(const std::string& path, int error);

/// What `path` leads to over symbolic links, which stay as they are. Throws where it is empty, or
/// the links never end.
std::filesystem::path follow_links(const std::string& path);

/// All of the text to an open file, or throws about `path`; also where a signal says in the
/// meantime that nobody wants it any more (signal_hold.h).
void write_output(int number, std::string_view text, const std::string& path);

}  // namespace dapple::io
