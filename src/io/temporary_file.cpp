#include "temporary_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <string>
#include <string_view>
#include <system_error>

namespace dapple {
namespace {

namespace fs = std::filesystem;

constexpr const char* kEnding = ".part";

/// What the names of all temporary files of a target begin with.
std::string beginning_of(const fs::path& target) {
  constexpr std::size_t kLongest = 200;  // of the 255 bytes that most file systems allow
  return "." + target.filename().string().substr(0, kLongest) + ".";
}

/// "PROCESS-COUNT" and the ending.
bool is_rest_of_name(std::string_view rest) {
  return rest.ends_with(kEnding) && rest.find_first_not_of("0123456789-") == rest.rfind('.');
}

bool lock(int number) {
  return ::flock(number, LOCK_EX | LOCK_NB) == 0;
}

/// Of what others have left. What cannot be removed stays.
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

/// Nobody else has taken it for abandoned between its making and its lock. Where files cannot be
/// locked, nobody can.
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

/// Opens what was not there before, and says its name.
Descriptor make_beside(const fs::path& target, fs::path& name, int (*make)(const char* name)) {
  static std::atomic<int> count{0};
  remove_abandoned(target);
  while (true) {
    name = target.parent_path() /
           fmt::format("{}{}-{}{}", beginning_of(target), ::getpid(), count.fetch_add(1), kEnding);
    Descriptor file(make(name.c_str()));
    if (file.number() < 0 && errno == EEXIST) continue;
    if (file.number() < 0 || is_there(file.number())) return file;
  }
}

}  // namespace

TemporaryFile::TemporaryFile(const fs::path& target)
    : target_(target), file_(make_beside(target, name_, make_file)) {}

TemporaryFile::~TemporaryFile() {
  if (!is_done_ && file_.number() >= 0) ::unlink(name_.c_str());
}

bool TemporaryFile::replace_target() {
  // What could not be written is told when a descriptor is closed; this one keeps the lock.
  Descriptor other(::dup(file_.number()));
  if (other.number() < 0 || !other.close()) return false;
  is_done_ = ::rename(name_.c_str(), target_.c_str()) == 0;
  return is_done_;
}

TemporaryFolder::TemporaryFolder(const fs::path& target)
    : folder_(make_beside(target, name_, make_folder)) {}

TemporaryFolder::~TemporaryFolder() {
  std::error_code kept;
  if (folder_.number() >= 0) fs::remove_all(name_, kept);
}

}  // namespace dapple
