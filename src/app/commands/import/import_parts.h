// The parts of the command import, one file each, and what they share.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "app/request/file_kinds.h"
#include "dapple/command_line/files.h"
#include "dapple/command_line/options.h"
#include "dapple/command_line/tool.h"
#include "dapple/interop/text/foreign_format.h"
#include "dapple/io/files/read_file.h"

namespace dapple::app {

command_line::Command import_topology_command();
command_line::Command import_model_command();
command_line::Command import_plan_command();

/// Returns lines for --version: for each part, whose files it takes.
std::string imports_text();

/// The formats that one part of import takes, and how it tells them apart.
template <class Format>
struct ForeignKind {
  std::vector<interop::ForeignFormat<Format>> formats;
  std::optional<Format> (*detect)(std::string_view text);
  /// "a profile of", before the formats.
  std::string_view what;
};

/// Returns one of the names of every format.
template <class Format>
std::vector<std::string> names_of(const std::vector<interop::ForeignFormat<Format>>& formats,
                                  std::string_view interop::ForeignFormat<Format>::*name) {
  std::vector<std::string> names;
  for (const interop::ForeignFormat<Format>& format : formats) names.emplace_back(format.*name);
  return names;
}

/// Returns the option --format, of which "detect" is the default.
template <class Format>
command_line::OptionSpec format_option(const std::vector<interop::ForeignFormat<Format>>& formats) {
  std::vector<std::string> choices = names_of(formats, &interop::ForeignFormat<Format>::name);
  choices.insert(choices.begin(), "detect");
  return {.name = "format",
          .value = "KIND",
          .choices = std::move(choices),
          .text = "Take the files as {}.",
          .default_value = "detect",
          .details = "With detect the content of each file tells it."};
}

/// Returns the format that --format says, or nothing if the files tell it.
template <class Format>
std::optional<Format> forced_format(const command_line::Options& options,
                                    const std::vector<interop::ForeignFormat<Format>>& formats) {
  const std::string choice = options.choice("format");
  for (const interop::ForeignFormat<Format>& names : formats) {
    if (choice == names.name) return names.format;
  }
  return std::nullopt;
}

/// Reads the files and tells the format of each, unless it is `forced`. Throws Error(BadInput) for
/// a file of none of the formats.
template <class File>
std::vector<File> read_foreign(const std::vector<std::string>& paths,
                               const std::optional<decltype(File::format)>& forced,
                               const ForeignKind<decltype(File::format)>& kind) {
  using Format = decltype(File::format);
  std::vector<File> files;
  for (const std::string& path : paths) {
    File file{.text = io::read_file(path), .name = command_line::source_name(path)};
    const std::optional<Format> format = forced ? forced : kind.detect(file.text);
    if (!format) {
      refuse_unknown(file.text, file.name,
                     fmt::format("{} {}", kind.what,
                                 command_line::list_of(names_of(
                                     kind.formats, &interop::ForeignFormat<Format>::file))));
    }
    file.format = *format;
    files.push_back(std::move(file));
  }
  return files;
}

}  // namespace dapple::app
