#include "app/commands/plan/plan_folder.h"

#include <filesystem>
#include <system_error>

namespace dapple::app {

namespace fs = std::filesystem;

std::string plan_file_in(const std::string& directory, const std::string& name) {
  return (fs::path(directory) / (name + ".plan.json")).string();
}

void add_folder_outputs(const std::string& option, const std::string& directory,
                        const std::vector<std::string>& names,
                        std::vector<command_line::NamedPath>& outputs) {
  if (directory == "-") {
    throw command_line::usage_error(option, "expected a directory, got \"-\"");
  }
  std::error_code fault;
  if (!fs::exists(directory, fault)) {
    // The path "DIR/" has an empty file name.
    fs::path path = fs::path(directory).lexically_normal();
    if (!path.has_filename()) path = path.parent_path();
    command_line::check_outputs({{option, path.string()}}, {});
    return;
  }
  if (!fs::is_directory(directory, fault)) {
    throw Error{ErrorKind::Environment,
                directory,
                {{"", "expected a directory for " + option + ", got a file"}}};
  }
  for (const std::string& name : names) {
    outputs.push_back({option, plan_file_in(directory, name)});
  }
}

}  // namespace dapple::app
