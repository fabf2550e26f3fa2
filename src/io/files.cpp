#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "dapple/core/error.h"
#include "dapple/io/documents.h"
#include "descriptor.h"
#include "temporary_file.h"

namespace dapple {
namespace {

[[noreturn]] void refuse(const std::string& path, std::string message) {
  throw Error(ErrorKind::Environment, path, {{"", std::move(message)}});
}

[[noreturn]] void refuse_system(const std::string& path, std::string_view what, int error) {
  refuse(path, fmt::format("{}: {}", what, std::generic_category().message(error)));
}

constexpr std::string_view kNotRead = "cannot be read";
constexpr std::string_view kNotWritten = "cannot be written";

std::string read_all(int number, const std::string& name, std::size_t most) {
  std::string text;
  std::array<char, 1 << 16> block;
  while (true) {
    const ssize_t count = ::read(number, block.data(), block.size());
    if (count == 0) return text;
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) refuse_system(name, kNotRead, errno);
    text.append(block.data(), static_cast<std::size_t>(count));
    if (text.size() > most)
      refuse(name, fmt::format("expected at most {} MiB, got more", most >> 20));
  }
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

void replace(const std::string& path, const std::filesystem::path& target, std::string_view text,
             std::optional<mode_t> mode) {
  TemporaryFile file(target);
  if (file.number() < 0) refuse_system(path, kNotWritten, errno);
  if (mode && ::fchmod(file.number(), *mode) != 0) refuse_system(path, kNotWritten, errno);
  if (const int error = write_all(file.number(), text); error != 0)
    refuse_system(path, kNotWritten, error);
  if (!file.replace_target()) refuse_system(path, kNotWritten, errno);
}

}  // namespace

std::string read_file(const std::string& path, std::size_t most) {
  if (path.empty()) refuse("", "expected the name of a file, got an empty one");
  if (path == "-") return read_all(STDIN_FILENO, "standard input", most);
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.number() < 0) refuse_system(path, kNotRead, errno);
  struct stat status {};
  if (::fstat(file.number(), &status) == 0 && S_ISDIR(status.st_mode))
    refuse(path, "expected a file, got a directory");
  return read_all(file.number(), path, most);
}

void write_file(const std::string& path, std::string_view text) {
  if (path.empty()) refuse("", "expected the name of a file, got an empty one");
  if (path == "-") {
    if (const int error = write_all(STDOUT_FILENO, text); error != 0)
      refuse_system("standard output", kNotWritten, error);
    return;
  }
  const std::filesystem::path target = follow_links(path);
  struct stat status {};
  if (::stat(target.c_str(), &status) != 0) {
    if (errno != ENOENT) refuse_system(path, kNotWritten, errno);
    replace(path, target, text, std::nullopt);
    return;
  }
  if (S_ISDIR(status.st_mode)) refuse(path, "expected a file, got a directory");
  if (!S_ISREG(status.st_mode)) {
    write_in_place(path, text);
    return;
  }
  // A file that may not be written must not be replaced either.
  if (::access(target.c_str(), W_OK) != 0) refuse_system(path, kNotWritten, errno);
  replace(path, target, text, status.st_mode & 07777);
}

}  // namespace dapple
