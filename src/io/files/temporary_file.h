// Temporary files and folders, which are written beside their targets, under temporary names or
// without any, and then replace them. A SignalHold must surround their lifetimes.
#pragma once

#include <filesystem>
#include <string>

#include "io/files/descriptor.h"

namespace dapple::io {

/// A file that is to replace a target. It has no name while it is written if the file system
/// supports that (O_TMPFILE). Otherwise, and during the replacement, its name is
/// ".TARGET.PROCESS-COUNT.part" in the folder of the target, with at most the first 200 bytes of
/// the target's name. It is locked (flock(2)) all the time: a file of such a name without a lock
/// was left by a killed process and is removed when another one is created for the same target. The
/// file is removed at the end of the scope unless it has replaced the target.
class TemporaryFile {
 public:
  /// Creates and opens the file. If that fails, number() is negative and errno is set.
  explicit TemporaryFile(const std::filesystem::path& target);
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile();

  int number() const { return file_.number(); }
  /// Whether all data was written. Returns false with errno set if some of it was lost.
  bool finish() const;
  /// Gives the file the name of the target. Returns false with errno set if that fails.
  bool replace_target();

 private:
  bool take_name();

  const std::filesystem::path target_;
  // Empty while the file has no name.
  std::filesystem::path name_;
  Descriptor file_;
};

/// A folder ".TARGET.PROCESS-COUNT.part" beside the target, locked as a TemporaryFile is. At the
/// end of the scope, the folder of that name, which may be the one exchanged with the target, is
/// removed with all of its contents.
class TemporaryFolder {
 public:
  /// Creates and opens the folder. If that fails, number() is negative and errno is set.
  explicit TemporaryFolder(const std::filesystem::path& target);
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder();

  int number() const { return folder_.number(); }
  const std::filesystem::path& name() const { return name_; }

  /// Gives the folder the name of the target, which must be missing or an empty folder. Returns
  /// false with errno set if it is neither or the renaming fails.
  bool take_place();
  /// Exchanges the folder with the target, which then has the temporary name: atomically if the
  /// file system supports it, else by renaming through a third name. Returns false with errno set
  /// if that fails; nothing has changed then.
  bool exchange();

 private:
  bool exchange_in_steps();

  const std::filesystem::path target_;
  std::filesystem::path name_;
  Descriptor folder_;
};

}  // namespace dapple::io
