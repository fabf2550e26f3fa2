#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "dapple/core/error.h"
#include "dapple/io/documents.h"
#include "descriptor.h"
#include "temporary_file.h"
#include "units.h"

namespace dapple {
namespace {

[[noreturn]] void refuse(const std::string& path, std::string message) {
  throw Error(ErrorKind::Environment, path, {{"", std::move(message)}});
}

[[noreturn]] void refuse_system(const std::string& path, std::string_view what, int error) {
  refuse(path, fmt::format("{}: {}", what, std::generic_category().message(error)));
}

constexpr const char* kStandardInput = "standard input";
constexpr std::string_view kNotRead = "cannot be read";
constexpr std::string_view kNotWritten = "cannot be written";

[[noreturn]] void refuse_larger(const std::string& name, std::size_t most) {
  refuse(name, fmt::format("expected at most {}, got more",
                           io::size_text({static_cast<std::int64_t>(most)})));
}

std::string read_all(int number, const std::string& name, std::size_t most) {
  std::string text;
  struct stat status {};
  if (::fstat(number, &status) == 0 && S_ISREG(status.st_mode)) {
    const auto size = static_cast<std::size_t>(status.st_size);
    if (size > most) refuse_larger(name, most);
    text.reserve(size);
  }
  std::array<char, 1 << 16> block;
  while (true) {
    const ssize_t count = ::read(number, block.data(), block.size());
    if (count == 0) return text;
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) refuse_system(name, kNotRead, errno);
    text.append(block.data(), static_cast<std::size_t>(count));
    if (text.size() > most) refuse_larger(name, most);
  }
}

Descriptor open_to_read(const std::string& path) {
  if (path.empty()) refuse("", "expected the name of a file, got an empty one");
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.number() < 0) refuse_system(path, kNotRead, errno);
  struct stat status {};
  if (::fstat(file.number(), &status) == 0 && S_ISDIR(status.st_mode))
    refuse(path, "expected a file, got a directory");
  return file;
}

/// From where it will be read.
std::optional<FileStart> start_of(int number, const std::string& name, std::size_t count) {
  struct stat status {};
  if (::fstat(number, &status) != 0) refuse_system(name, kNotRead, errno);
  if (S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode)) return std::nullopt;
  if (!S_ISREG(status.st_mode)) refuse(name, "expected a file, or a pipe, got a device");
  const off_t begin = std::max<off_t>(0, ::lseek(number, 0, SEEK_CUR));
  FileStart start{.bytes = std::string(count, '\0'),
                  .size = static_cast<std::uint64_t>(std::max<off_t>(0, status.st_size - begin))};
  const ssize_t read = ::pread(number, start.bytes.data(), count, begin);
  if (read < 0) refuse_system(name, kNotRead, errno);
  start.bytes.resize(static_cast<std::size_t>(read));
  return start;
}

/// The error number, or 0.
int write_all(int number, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(number, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno;
    text.remove_prefix(static_cast<std::size_t>(count));
  }
  return 0;
}

/// The file that `path` leads to over symbolic links, which stay as they are.
std::filesystem::path follow_links(const std::string& path) {
  constexpr int kMaxLinks = 40;
  std::filesystem::path target = path;
  std::error_code error;
  for (int links = 0; std::filesystem::is_symlink(target, error); ++links) {
    if (links == kMaxLinks) refuse_system(path, kNotWritten, ELOOP);
    const std::filesystem::path next = std::filesystem::read_symlink(target, error);
    if (error) refuse_system(path, kNotWritten, error.value());
    target = next.is_absolute() ? next : target.parent_path() / next;
  }
  return target;
}

/// Devices and pipes, which cannot be replaced by another file.
void write_in_place(const std::string& path, std::string_view text) {
  Descriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (file.number() < 0) refuse_system(path, kNotWritten, errno);
  if (const int error = write_all(file.number(), text); error != 0)
    refuse_system(path, kNotWritten, error);
  if (!file.close()) refuse_system(path, kNotWritten, errno);
}

/// Whose place a file can take: its path over links, and its mode where it is there.
struct Target {
  std::filesystem::path path;
  std::optional<mode_t> mode;
  bool is_regular = true;
};

/// Throws where it may not be written: a directory, or a file without the permission.
Target find_target(const std::string& path) {
  if (path.empty()) refuse("", "expected the name of a file, got an empty one");
  Target target{.path = follow_links(path), .mode = std::nullopt};
  struct stat status {};
  if (::stat(target.path.c_str(), &status) != 0) {
    if (errno != ENOENT) refuse_system(path, kNotWritten, errno);
    return target;
  }
  if (S_ISDIR(status.st_mode)) refuse(path, "expected a file, got a directory");
  target.is_regular = S_ISREG(status.st_mode);
  target.mode = status.st_mode & 07777;
  // A file that may not be written must not be replaced either.
  if (target.is_regular && ::access(target.path.c_str(), W_OK) != 0) {
    refuse_system(path, kNotWritten, errno);
  }
  return target;
}

void replace(const std::string& path, const Target& target, std::string_view text) {
  TemporaryFile file(target.path);
  if (file.number() < 0) refuse_system(path, kNotWritten, errno);
  if (target.mode && ::fchmod(file.number(), *target.mode) != 0) {
    refuse_system(path, kNotWritten, errno);
  }
  if (const int error = write_all(file.number(), text); error != 0)
    refuse_system(path, kNotWritten, error);
  if (!file.replace_target()) refuse_system(path, kNotWritten, errno);
}

void write_new(const std::filesystem::path& name, const Target& target, const FileText& content) {
  Descriptor file(::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (file.number() < 0) refuse_system(content.path, kNotWritten, errno);
  if (target.mode && ::fchmod(file.number(), *target.mode) != 0) {
    refuse_system(content.path, kNotWritten, errno);
  }
  if (const int error = write_all(file.number(), content.text); error != 0) {
    refuse_system(content.path, kNotWritten, error);
  }
  if (!file.close()) refuse_system(content.path, kNotWritten, errno);
}

}  // namespace

std::string read_file(const std::string& path, std::size_t most) {
  if (path == "-") return read_all(STDIN_FILENO, kStandardInput, most);
  return read_all(open_to_read(path).number(), path, most);
}

std::optional<FileStart> look_at_file(const std::string& path, std::size_t count) {
  if (path == "-") return start_of(STDIN_FILENO, kStandardInput, count);
  // Who writes to a pipe does not outlive a first reader that closes it.
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0 && S_ISFIFO(status.st_mode)) return std::nullopt;
  return start_of(open_to_read(path).number(), path, count);
}

void write_file(const std::string& path, std::string_view text) {
  if (path == "-") {
    if (const int error = write_all(STDOUT_FILENO, text); error != 0)
      refuse_system("standard output", kNotWritten, error);
    return;
  }
  const Target target = find_target(path);
  if (target.is_regular) {
    replace(path, target, text);
  } else {
    write_in_place(path, text);
  }
}

void write_files(const std::vector<FileText>& files) {
  if (files.empty()) return;
  std::vector<Target> targets;
  for (const FileText& file : files) {
    targets.push_back(find_target(file.path));
    const std::filesystem::path folder = targets.back().path.parent_path();
    if (!folder.empty() && ::access(folder.c_str(), W_OK | X_OK) != 0) {
      refuse_system(file.path, kNotWritten, errno);
    }
    if (targets.back().is_regular) continue;
    refuse(file.path, "expected a file, as several are written together, got a device or a pipe");
  }
  const TemporaryFolder folder(targets.front().path);
  if (folder.number() < 0) refuse_system(files.front().path, kNotWritten, errno);
  const auto name_of = [&folder](std::size_t i) { return folder.file(fmt::format("{}", i)); };
  for (std::size_t i = 0; i < files.size(); ++i) write_new(name_of(i), targets[i], files[i]);
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (::rename(name_of(i).c_str(), targets[i].path.c_str()) == 0) continue;
    refuse_system(files[i].path, kNotWritten, errno);
  }
}

}  // namespace dapple
