#include "io/files/output_target.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "dapple/core/error.h"
#include "dapple/core/text_source.h"
#include "dapple/io/files/links.h"
#include "io/files/signal_hold.h"

namespace dapple::io {

namespace fs = std::filesystem;

void refuse_output(const std::string& path, std::string message) {
  throw Error(ErrorKind::Environment, path, {{"", std::move(message)}});
}

void refuse_output(const std::string& path, int error) {
  refuse_output(path, fmt::format("cannot be written: {}", std::generic_category().message(error)));
}

fs::path follow_links(const std::string& path) {
  if (path.empty()) refuse_output("", "expected the name of a file, got an empty one");
  constexpr int kMaxLinks = 40;
  fs::path target = path;
  std::error_code error;
  for (int links = 0; fs::is_symlink(target, error); ++links) {
    if (links == kMaxLinks) refuse_output(path, ELOOP);
    const fs::path next = fs::read_symlink(target, error);
    if (error) refuse_output(path, error.value());
    target = next.is_absolute() ? next : target.parent_path() / next;
  }
  return target;
}

void write_output(int number, std::string_view text, const std::string& path) {
  while (!text.empty()) {
    if (SignalHold::is_over()) refuse_output(path, EINTR);
    const ssize_t count = ::write(number, text.data(), std::min(text.size(), kTextPiece));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) refuse_output(path, errno);
    text.remove_prefix(static_cast<std::size_t>(count));
  }
}

}  // namespace dapple::io
