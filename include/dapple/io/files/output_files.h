// Writes files and folders atomically. They are written under temporary names beside their targets
// and take their own names once all of them are complete, so that other processes see either the
// old or the new ones.
//
// SIGHUP, SIGINT and SIGTERM are held back during the writing. If their default action applies,
// they abort the writing and end the process after the temporary files are removed. A process with
// its own handlers receives them after everything is written; ignored signals stay ignored.
// Temporary files left by a killed process (SIGKILL, or a crash of the machine) are removed when
// the same file or folder is written again. Nothing is flushed to the device (fsync(2)); data that
// must survive a crash of the machine needs that in addition.
//
// All functions throw Error(Environment), naming the path, if something cannot be written. What was
// there before is then unchanged, except for devices and pipes already written, and files that have
// taken their names before a later renaming fails.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dapple/core/text_source.h"

namespace dapple::io {

/// Writes a file; "-" is stdout. A symbolic link is followed and preserved, and a file keeps its
/// mode; a device or pipe is written directly.
void write_file(const std::string& path, std::string_view text);

/// Writes several files, which may be in different folders. All texts are written before the first
/// file takes its name, so that if one cannot be written, as on a full disk, none is replaced.
class OutputFiles {
 public:
  OutputFiles();
  OutputFiles(const OutputFiles&) = delete;
  OutputFiles& operator=(const OutputFiles&) = delete;
  /// Removes the files that have not taken their names.
  ~OutputFiles();

  /// Creates a folder, if it does not exist, for files that are added later. A created folder is
  /// removed again, if it is empty, unless commit() succeeds.
  void add_folder(const std::string& path);

  /// Writes the text under a temporary name. A device or a pipe is written by commit(), before the
  /// first file takes its name; until then, the data of the source must stay alive. Requires: all
  /// files are distinct, and `path` is not "-".
  void add(const std::string& path, const TextSource& text);

  /// Gives all files their names, in the order in which they were added. Requires: it is called at
  /// most once.
  void commit();

 private:
  struct State;
  // Null before the first file or folder and after commit().
  std::unique_ptr<State> state_;
};

/// A file of an export folder.
struct FileText {
  /// The name in the folder, without directories; not kExportList.
  std::string name;
  std::string text;
};

/// A folder with all files of one export.
struct ExportFolder {
  /// The format, such as "chakra".
  std::string target;
  /// hash_of() the document of the exported plan.
  std::string plan_sha256;
  std::vector<FileText> files;
};

/// The name of the list of files (dapple-export/1) in an export folder.
inline constexpr std::string_view kExportList = "dapple-export.json";

/// Writes the folder and the list of its files beside the target and then exchanges it with the
/// existing folder atomically (renameat2(2)); if the file system does not support that, the target
/// is missing between two renames. Only an empty folder is replaced, or one with such a list and no
/// other files than those listed. A symbolic link to a folder is preserved, and a folder keeps its
/// mode.
void write_folder(const std::string& path, const ExportFolder& folder);

}  // namespace dapple::io
