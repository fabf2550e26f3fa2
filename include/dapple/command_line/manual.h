// Help texts, manual pages and completions, made from the descriptions of a tool and its commands.
#pragma once

#include <string>
#include <vector>

#include "dapple/command_line/tool.h"

namespace dapple::command_line {

/// Returns the help of the tool as a whole, in lines of at most 80 columns.
std::string help_of(const Tool& tool);

/// Returns the help of a command, in lines of at most 80 columns. `name` is its whole name, such as
/// "dapple-plan import topology".
std::string help_of(const Command& command, const std::string& name);

/// Returns the manual page of the tool, in the macros of man(7). It has no date, so that the same
/// version always has the same page.
std::string manual_page(const Tool& tool);

/// Returns the manual page of a command, whose whole name is `name`.
std::string manual_page(const Tool& tool, const Command& command, const std::string& name);

/// Returns a script that completes the tool's command lines in bash, without needing the package
/// bash-completion.
std::string bash_completion(const Tool& tool);

/// Returns a function that completes the tool's command lines in zsh, for a folder of $fpath.
std::string zsh_completion(const Tool& tool);

struct ManualFile {
  /// The folder below a prefix such as /usr/share, such as "man/man1".
  std::string folder;
  /// The file's name, such as "dapple-plan.1".
  std::string name;
  std::string text;
};

/// Returns all manual pages and completions of the tool, at the places where man, bash and zsh look
/// for them.
std::vector<ManualFile> manual_files(const Tool& tool);

}  // namespace dapple::command_line
