#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

#include "dapple/core/error.h"
#include "dapple/io/files/file_view.h"
#include "dapple/io/files/read_file.h"
#include "io/files/descriptor.h"
#include "io/units/units.h"

namespace dapple::io {
namespace {

[[noreturn]] void refuse(const std::string& path, std::string message) {
  throw Error(ErrorKind::Environment, path, {{"", std::move(message)}});
}

[[noreturn]] void refuse_system(const std::string& path, std::string_view what, int error) {
  refuse(path, fmt::format("{}: {}", what, std::generic_category().message(error)));
}

constexpr const char* kStandardInput = "standard input";
constexpr std::string_view kNotRead = "cannot be read";

[[noreturn]] void refuse_larger(const std::string& name, std::size_t most) {
  refuse(name, fmt::format("expected at most {}, got more",
                           size_text({static_cast<std::int64_t>(most)})));
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

/// Returns the beginning of an open file from its current position, or nothing for a pipe or
/// socket.
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

}  // namespace

std::string read_file(const std::string& path, std::size_t most) {
  if (path == "-") return read_all(STDIN_FILENO, kStandardInput, most);
  return read_all(open_to_read(path).number(), path, most);
}

FileView::~FileView() {
  if (mapped_ != nullptr) ::munmap(mapped_, bytes_.size());
}

std::shared_ptr<const FileView> view_file(const std::string& path, std::size_t most) {
  const std::optional<FileStart> start = look_at_file(path, 0);
  // An empty file cannot be mapped, and some of stdin may have been consumed already.
  if (!start || start->size == 0 || path == "-") {
    return std::make_shared<const FileView>(read_file(path, most));
  }
  const Descriptor file = open_to_read(path);
  struct stat status {};
  if (::fstat(file.number(), &status) != 0) refuse_system(path, kNotRead, errno);
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size > most) refuse_larger(path, most);
  void* bytes = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.number(), 0);
  // Some file systems do not support mapping.
  if (bytes == MAP_FAILED) return std::make_shared<const FileView>(read_file(path, most));
  std::shared_ptr<FileView> view(new FileView);
  view->mapped_ = bytes;
  view->bytes_ = {static_cast<const char*>(bytes), size};
  return view;
}

std::optional<FileStart> look_at_file(const std::string& path, std::size_t count) {
  if (path == "-") return start_of(STDIN_FILENO, kStandardInput, count);
  // A pipe must not be opened here: if its reader closed it again, the writer would be killed.
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0 && S_ISFIFO(status.st_mode)) return std::nullopt;
  return start_of(open_to_read(path).number(), path, count);
}

}  // namespace dapple::io
