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

/// A path for messages: printable(), and "<stdin>" for "-".
std::string source_name(const std::string& path);

PlanDocument load_plan(const std::string& path);

struct NamedPath {
  std::string option;
  std::string path;
};

/// The options of those names that were given, in that order: {"--model", FILE}.
std::vector<NamedPath> given_paths(const Options& options, const std::vector<std::string>& names);

/// Those that were given without an option, in that order: {"FILE 1", FILE}.
std::vector<NamedPath> numbered_paths(const std::vector<std::string>& paths);

/// Refuses names that are empty, and standard input for two of them, which can be read only once.
void check_inputs(const std::vector<NamedPath>& inputs);

/// Also refuses outputs that could only fail later or would destroy an input: a directory that is
/// missing or not writable, two outputs of the same name, an output over an input.
void check_outputs(const std::vector<NamedPath>& outputs, const std::vector<NamedPath>& inputs);

/// The same of a folder of outputs: also refuses a name of stdout, a folder over an input or around
/// one. What is there already is looked at when it is to be replaced (write_folder()).
void check_output_folder(const NamedPath& output, const std::vector<NamedPath>& inputs);

/// Whether one of them is stdout.
bool takes_stdout(const std::vector<NamedPath>& outputs);

/// "./bert-48.plan.json" for ".plan.json"; what does not belong into a file's name becomes '-'.
std::string default_output(const std::string& name, const std::string& ending);
std::string default_output(const ModelProfile& profile, const std::string& ending);

/// A text to a file, or to the console's documents for "-".
void write_result(Console& console, const std::string& path, const std::string& text);
void write_result(Console& console, const std::string& path, const TextSource& text);

/// Several results, of which the files take their names together (io/files/output_files.h), and the
/// one for "-" is delivered behind them.
class Results {
 public:
  explicit Results(Console& console) : console_(console) {}

  void add_folder(const std::string& path) { files_.add_folder(path); }
  void add(const std::string& path, std::string text);
  /// What the source refers to must be there until commit().
  void add(const std::string& path, TextSource text);
  /// Once, behind the last one.
  void commit();

 private:
  Console& console_;
  io::OutputFiles files_;
  TextSource for_stdout_;  // empty for none
};

}  // namespace dapple::command_line
