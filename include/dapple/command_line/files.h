// Files that commands read and write.
#pragma once

#include <string>
#include <vector>

#include "dapple/command_line/console.h"
#include "dapple/command_line/options.h"
#include "dapple/core/text_source.h"
#include "dapple/io/files/output_files.h"
#include "dapple/plan/document.h"
#include "dapple/profile/model_profile.h"

namespace dapple::command_line {

/// Returns a path for messages: printable(), and "<stdin>" for "-".
std::string source_name(const std::string& path);

PlanDocument load_plan(const std::string& path);

struct NamedPath {
  std::string option;
  std::string path;
};

/// Returns the paths of those of the named options that were given, in the order of `names`:
/// {"--model", FILE}.
std::vector<NamedPath> given_paths(const Options& options, const std::vector<std::string>& names);

/// Names paths that were given without an option, in their order: {"FILE 1", FILE}.
std::vector<NamedPath> numbered_paths(const std::vector<std::string>& paths);

/// Returns the rows of --output, --trace and --timeline, which several commands have.
OptionSpec output_option(const std::string& text, const std::string& default_value);
OptionSpec trace_option();
OptionSpec timeline_option(const std::string& text);

/// Throws Error(Usage) if a name is empty, or if two inputs are stdin, which can be read only once.
void check_inputs(const std::vector<NamedPath>& inputs);

/// Also throws Error if an output would fail later or would destroy an input: a directory that is
/// missing or not writable, two outputs of the same name, an output over an input.
void check_outputs(const std::vector<NamedPath>& outputs, const std::vector<NamedPath>& inputs);

/// Checks a folder of outputs: throws Error(Usage) if its name is "-", or if an input is the folder
/// or inside it. Existing files are checked when they are replaced (write_folder()).
void check_output_folder(const NamedPath& output, const std::vector<NamedPath>& inputs);

/// Whether one of the outputs is stdout.
bool takes_stdout(const std::vector<NamedPath>& outputs);

/// Returns a default name, such as "./bert-48.plan.json" for the ending ".plan.json"; characters
/// that do not belong in a file's name become '-'.
std::string default_output(const std::string& name, const std::string& ending);
std::string default_output(const ModelProfile& profile, const std::string& ending);

/// Writes a text to a file, or to the console's documents for "-".
void write_result(Console& console, const std::string& path, const std::string& text);
void write_result(Console& console, const std::string& path, const TextSource& text);

/// Several results. The files appear under their names together (io/files/output_files.h), and the
/// one for "-" is written after them.
class Results {
 public:
  explicit Results(Console& console) : console_(console) {}

  void add_folder(const std::string& path) { files_.add_folder(path); }
  void add(const std::string& path, std::string text);
  /// Whatever the source refers to must exist until commit().
  void add(const std::string& path, TextSource text);
  /// Writes all results. To be called once, after the last add().
  void commit();

 private:
  Console& console_;
  io::OutputFiles files_;
  TextSource for_stdout_;  // empty for none
};

}  // namespace dapple::command_line
