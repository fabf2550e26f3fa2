#include "exec/ranks/tcp/shared_words.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "dapple/core/error.h"

namespace dapple::exec {
namespace {

constexpr std::size_t kBytes = (SharedWords::kCount + 1) * sizeof(std::int64_t);

[[noreturn]] void refuse() {
  throw Error(ErrorKind::Environment, "",
              {{"", fmt::format("expected memory that the ranks of a host share, got \"{}\"",
                                std::strerror(errno))}});
}

}  // namespace

SharedWords::~SharedWords() {
  if (words_ != nullptr) munmap(words_, kBytes);
  if (file_ >= 0) close(file_);
}

SharedWords::SharedWords(SharedWords&& other) noexcept
    : file_(std::exchange(other.file_, -1)), words_(std::exchange(other.words_, nullptr)) {}

SharedWords& SharedWords::operator=(SharedWords&& other) noexcept {
  std::swap(file_, other.file_);
  std::swap(words_, other.words_);
  return *this;
}

SharedWords SharedWords::mapped(int file) {
  SharedWords shared;
  if (file < 0) refuse();
  shared.file_ = file;
  void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) refuse();
  shared.words_ = static_cast<std::int64_t*>(memory);
  return shared;
}

SharedWords SharedWords::create(std::uint64_t tag) {
  const int file = memfd_create("dapple-ranks", MFD_CLOEXEC);
  if (file >= 0 && ftruncate(file, static_cast<off_t>(kBytes)) != 0) {
    close(file);
    refuse();
  }
  SharedWords shared = mapped(file);
  shared.words_[kCount] = static_cast<std::int64_t>(tag);
  return shared;
}

SharedWords SharedWords::attach(std::int64_t process, std::int64_t number, std::uint64_t tag) {
  const std::string path = fmt::format("/proc/{}/fd/{}", process, number);
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file >= 0 && lseek(file, 0, SEEK_END) != static_cast<off_t>(kBytes)) {
    close(file);
    errno = ENOENT;
    refuse();
  }
  SharedWords shared = mapped(file);
  if (shared.words_[kCount] != static_cast<std::int64_t>(tag)) {
    errno = ENOENT;
    refuse();
  }
  return shared;
}

}  // namespace dapple::exec
