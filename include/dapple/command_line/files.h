// Files that commands read and write.
#pragma once

#include <string>
#include <vector>

#include "dapple/command_line/console.h"
#include "dapple/plan/plan.h"
#include "dapple/profile/model_profile.h"

namespace dapple {

/// A path for messages: "<stdin>" for "-".
std::string source_name(const std::string& path);

PlanDocument load_plan(const std::string& path);

/// Refuses outputs that could only fail later or would destroy an input: a directory that is
/// missing or not writable, two outputs of the same name, an output over an input.
struct NamedPath {
  std::string option;
  std::string path;
};
void check_outputs(const std::vector<NamedPath>& outputs, const std::vector<NamedPath>& inputs);

/// "./bert-48.plan.json" for ".plan.json"; what does not belong into a file's name becomes '-'.
std::string default_output(const ModelProfile& profile, const std::string& ending);

/// Whole text to a file, or to the console's out for "-".
void write_result(Console& console, const std::string& path, const std::string& text);

}  // namespace dapple
