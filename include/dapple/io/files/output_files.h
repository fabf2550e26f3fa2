// Files and folders that others see whole or not at all. They are written under temporary names
// beside where they belong and take their own names once all of them are complete: whoever looks
// sees the old ones or the new ones.
//
// SIGHUP, SIGINT and SIGTERM end a process that handles them no otherwise; while something is
// written here they end it after the temporary files are gone, at once where a long text is being
// written. A process that handles them, or is to ignore them, gets them when all is written. What a
// process has left that was killed (SIGKILL, or the machine's end) is removed when the same file or
// folder is written again. Nothing is flushed to the device (fsync(2)): whoever must outlive the
// machine asks for that.
//
// All throw Error(Environment), naming the path, where something cannot be written: what was there
// stays as it was.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dapple/core/text_source.h"

namespace dapple::io {

/// Writes a file; "-" is stdout. A symbolic link stays one, a file keeps its mode; a device or a
/// pipe is written to as it is.
void write_file(const std::string& path, std::string_view text);

/// Several files, wherever each is: all texts are on disk before the first takes its name, so that
/// where one cannot be written, as on a full disk, none is.
class OutputFiles {
 public:
  OutputFiles();
  OutputFiles(const OutputFiles&) = delete;
  OutputFiles& operator=(const OutputFiles&) = delete;
  /// Removes what has not taken its name.
  ~OutputFiles();

  /// Makes a folder, for files that are added behind it, where there is none. Unless commit() ends
  /// well, what was made is removed again.
  void add_folder(const std::string& path);

  /// Writes the text under a temporary name. A device or a pipe is written by commit(), before the
  /// first file takes its name: what the source refers to must be there until then. Requires: no
  /// two are the same file, and `path` is not "-".
  void add(const std::string& path, const TextSource& text);

  /// Gives all of them their names, in the order in which they were added. Once.
  void commit();

 private:
  struct State;
  std::unique_ptr<State> state_;  // none before the first file and behind the last one
};

/// A file of a folder, by its name there: no directory, and not that of the list below.
struct FileText {
  std::string name;
  std::string text;
};

/// A folder with all that one export makes.
struct ExportFolder {
  std::string target;       // "chakra"
  std::string plan_sha256;  // hash_of() the plan that it was made from
  std::vector<FileText> files;
};

/// The list of files in such a folder, dapple-export/1.
inline constexpr std::string_view kExportList = "dapple-export.json";

/// Writes the folder and the list of its files beside where it belongs and exchanges it with what
/// is there, in one step (renameat2(2)); where the file system has no such step, the old folder is
/// out of the way for the moment between two. Replaced is only an empty folder, or one with such a
/// list and nothing that is not on it; a link to a folder stays one, a folder keeps its mode.
void write_folder(const std::string& path, const ExportFolder& folder);

}  // namespace dapple::io
