// The targets of output: resolving paths, writing, and the errors of both.
#pragma once

#include <string>
#include <string_view>

namespace dapple::io {

/// Throws Error(Environment) about the path with that message.
[[noreturn]] void refuse_output(const std::string& path, std::string message);
/// Throws Error(Environment) about the path with the message "cannot be written: " and the system's
/// description of the error number.
[[noreturn]] void refuse_output(const std::string& path, int error);

/// Writes all of the text to an open file. Throws Error(Environment) about `path` if that fails or
/// a signal that will end the process has arrived (SignalHold::is_over()).
void write_output(int number, std::string_view text, const std::string& path);

}  // namespace dapple::io
