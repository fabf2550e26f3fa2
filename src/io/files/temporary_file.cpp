#include "io/files/temporary_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace dapple::io {
namespace {

namespace fs = std::filesystem;

constexpr const char* kEnding = ".part";

/// Returns the prefix of the names of all temporary files of a target.
std::string beginning_of(const fs::path& target) {
  constexpr std::size_t kLongest = 200;  // of the 255 bytes that most file systems allow
  return "." + target.filename().string().substr(0, kLongest) + ".";
}

/// Whether `rest`, the name without the prefix, has the form "PROCESS-COUNT.part".
bool is_rest_of_name(std::string_view rest) {
  return rest.ends_with(kEnding) && rest.find_first_not_of("0123456789-") == rest.rfind('.');
}

bool lock(int number) {
  return ::flock(number, LOCK_EX | LOCK_NB) == 0;
}

/// Removes temporary files and folders of the target that other processes have abandoned. Errors
/// are ignored.
void remove_abandoned(const fs::path& target) {
  const std::string beginning = beginning_of(target);
  const fs::path folder = target.has_parent_path() ? target.parent_path() : ".";
  std::error_code fault;
  for (fs::directory_iterator entry(folder, fault), end; !fault && entry != end;
       entry.increment(fault)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with(beginning)) continue;
    if (!is_rest_of_name(std::string_view(name).substr(beginning.size()))) continue;
    const Descriptor file(
        ::open(entry->path().c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW));
    std::error_code kept;
    if (file.number() >= 0 && lock(file.number())) fs::remove_all(entry->path(), kept);
  }
}

/// Locks a new file or folder. Returns whether it still exists, which is false if another process
/// removed it as abandoned between its creation and its lock. On file systems without locks nobody
/// can do that.
bool is_there(int number) {
  struct stat status {};
  if (!lock(number) && errno == EWOULDBLOCK) return false;
  return ::fstat(number, &status) == 0 && status.st_nlink > 0;
}

int make_file(const char* name) {
  return ::open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
}

int make_folder(const char* name) {
  return ::mkdir(name, 0777) == 0 ? ::open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
}

/// Returns a new temporary name; it is different at each call.
fs::path next_name(const fs::path& target) {
  static std::atomic<int> count{0};
  return target.parent_path() /
         fmt::format("{}{}-{}{}", beginning_of(target), ::getpid(), count.fetch_add(1), kEnding);
}

/// Creates and opens a file or folder with a new name, which it stores in `name`.
Descriptor make_beside(const fs::path& target, fs::path& name, int (*make)(const char* name)) {
  while (true) {
    name = next_name(target);
    Descriptor file(make(name.c_str()));
    if (file.number() < 0 && errno == EEXIST) continue;
    if (file.number() < 0 || is_there(file.number())) return file;
  }
}

/// Returns the path by which linkat(2) can give an open file a name.
std::string handle_of(int number) {
  return fmt::format("/proc/self/fd/{}", number);
}

/// Creates a file without a name that can be given one later; the descriptor is negative if the
/// system does not support that.
Descriptor make_nameless(const fs::path& target) {
  const fs::path folder = target.has_parent_path() ? target.parent_path() : ".";
  Descriptor file(::open(folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666));
  if (file.number() < 0) return file;
  const bool can_be_named = ::access(handle_of(file.number()).c_str(), F_OK) == 0;
  if (can_be_named && lock(file.number())) return file;
  return Descriptor(-1);
}

Descriptor make_file_beside(const fs::path& target, fs::path& name) {
  remove_abandoned(target);
  Descriptor file = make_nameless(target);
  if (file.number() >= 0) return file;
  return make_beside(target, name, make_file);
}

Descriptor make_folder_beside(const fs::path& target, fs::path& name) {
  remove_abandoned(target);
  return make_beside(target, name, make_folder);
}

}  // namespace

TemporaryFile::TemporaryFile(const fs::path& target)
    : target_(target), file_(make_file_beside(target, name_)) {}

TemporaryFile::~TemporaryFile() {
  if (!name_.empty() && file_.number() >= 0) ::unlink(name_.c_str());
}

bool TemporaryFile::finish() const {
  // Write errors are reported when a descriptor is closed. A duplicate is closed, because file_
  // must keep the lock.
  Descriptor other(::dup(file_.number()));
  return other.number() >= 0 && other.close();
}

bool TemporaryFile::take_name() {
  const std::string handle = handle_of(file_.number());
  while (true) {
    fs::path name = next_name(target_);
    if (::linkat(AT_FDCWD, handle.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0) {
      name_ = std::move(name);
      return true;
    }
    if (errno != EEXIST) return false;
  }
}

bool TemporaryFile::replace_target() {
  if (name_.empty()) {
    // If there is no file to replace, the file gets its final name at once.
    const std::string handle = handle_of(file_.number());
    if (::linkat(AT_FDCWD, handle.c_str(), AT_FDCWD, target_.c_str(), AT_SYMLINK_FOLLOW) == 0) {
      return true;
    }
    if (!take_name()) return false;
  }
  if (::rename(name_.c_str(), target_.c_str()) != 0) return false;
  name_.clear();
  return true;
}

TemporaryFolder::TemporaryFolder(const fs::path& target)
    : target_(target), folder_(make_folder_beside(target, name_)) {}

TemporaryFolder::~TemporaryFolder() {
  std::error_code kept;
  if (folder_.number() >= 0 && !name_.empty()) fs::remove_all(name_, kept);
}

bool TemporaryFolder::take_place() {
  if (::rename(name_.c_str(), target_.c_str()) != 0) return false;
  name_.clear();
  return true;
}

bool TemporaryFolder::exchange() {
  if (::renameat2(AT_FDCWD, name_.c_str(), AT_FDCWD, target_.c_str(), RENAME_EXCHANGE) == 0) {
    return true;
  }
  return (errno == EINVAL || errno == ENOSYS) && exchange_in_steps();
}

bool TemporaryFolder::exchange_in_steps() {
  const fs::path aside = next_name(target_);
  if (::rename(target_.c_str(), aside.c_str()) != 0) return false;
  if (::rename(name_.c_str(), target_.c_str()) != 0) {
    const int error = errno;
    ::rename(aside.c_str(), target_.c_str());
    errno = error;
    return false;
  }
  name_ = aside;
  return true;
}

}  // namespace dapple::io
