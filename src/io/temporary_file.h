// A file, or several, that take others' places once they are written, so that nobody ever sees half
// of them.
#pragma once

#include <filesystem>
#include <string>

#include "descriptor.h"

namespace dapple {

/// ".TARGET.PROCESS-COUNT.part" beside the target, of a long name its first 200 bytes. It is locked
/// (flock(2)) as long as it is written, so that one without a lock is what a process has left that
/// was killed: making another one of the same target removes it. Gone at the end of the scope
/// unless it has replaced the target.
class TemporaryFile {
 public:
  /// Makes and opens it; where that cannot be, number() is negative and errno set.
  explicit TemporaryFile(const std::filesystem::path& target);
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile();

  int number() const { return file_.number(); }
  /// Gives it the target's name once all is written; false, with errno set, where that fails.
  bool replace_target();

 private:
  const std::filesystem::path target_;
  std::filesystem::path name_;
  Descriptor file_;
  bool is_done_ = false;
};

/// The same for a folder ".TARGET.PROCESS-COUNT.part" beside the first of several targets, where
/// all of them are written before the first is given its name.
class TemporaryFolder {
 public:
  /// As TemporaryFile.
  explicit TemporaryFolder(const std::filesystem::path& target);
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  /// Removes it with all that is left in it.
  ~TemporaryFolder();

  int number() const { return folder_.number(); }
  std::filesystem::path file(const std::string& name) const { return name_ / name; }

 private:
  std::filesystem::path name_;
  Descriptor folder_;
};

}  // namespace dapple
