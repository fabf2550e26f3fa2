// Files and folders that are not there yet: written where they belong, under names that nobody asks
// for or under none, until they take the place of others. Used with a SignalHold around them.
#pragma once

#include <filesystem>
#include <string>

#include "io/files/descriptor.h"

namespace dapple::io {

/// Has no name while it is written where the file system can (O_TMPFILE), else, and for the moment
/// in which it takes the target's, ".TARGET.PROCESS-COUNT.part" beside that, of a long name its
/// first 200 bytes. It is locked (flock(2)) all the time, so that one without a lock is what a
/// process has left that was killed: making another one of the same target removes it. Gone at the
/// end of the scope unless it has replaced the target.
class TemporaryFile {
 public:
  /// Makes and opens it; where that cannot be, number() is negative and errno set.
  explicit TemporaryFile(const std::filesystem::path& target);
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile();

  int number() const { return file_.number(); }
  /// Whether all that was written is there; false, with errno set, where it is not.
  bool finish() const;
  /// Gives it the target's name; false, with errno set, where that fails.
  bool replace_target();

 private:
  bool take_name();

  const std::filesystem::path target_;
  std::filesystem::path name_;  // empty while it has none
  Descriptor file_;
};

/// A folder ".TARGET.PROCESS-COUNT.part" beside the target, locked likewise. What has that name at
/// the end of the scope is removed with all that is in it: the folder, or what it was exchanged
/// with.
class TemporaryFolder {
 public:
  /// As TemporaryFile.
  explicit TemporaryFolder(const std::filesystem::path& target);
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder();

  int number() const { return folder_.number(); }
  const std::filesystem::path& name() const { return name_; }

  /// Gives it the name of the target, which is not there or an empty folder; false, with errno set,
  /// where it is neither.
  bool take_place();
  /// The same where the target is a folder, which then has this one's name. In one step if the file
  /// system has it, else over a third name; false, with errno set, where nothing has changed.
  bool exchange();

 private:
  bool exchange_in_steps();

  const std::filesystem::path target_;
  std::filesystem::path name_;
  Descriptor folder_;
};

}  // namespace dapple::io
