// Folders into which plan writes further plans than the one it is asked for.
#pragma once

#include <string>
#include <vector>

#include "app/request/inputs.h"

namespace dapple::app {

/// Returns DIR/NAME.plan.json.
std::string plan_file_in(const std::string& directory, const std::string& name);

/// Adds the files of these names that an option may write into a directory, for check_outputs(). If
/// the directory does not exist, it has no files yet, and only whether it can be made is checked.
/// Throws Error(Usage) for "-" and Error(Environment) if the directory could not be made or is a
/// file.
void add_folder_outputs(const std::string& option, const std::string& directory,
                        const std::vector<std::string>& names,
                        std::vector<command_line::NamedPath>& outputs);

}  // namespace dapple::app
