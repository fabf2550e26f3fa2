// A large file that is looked at where it lies.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace dapple::io {

class FileView {
 public:
  /// A view of bytes that are in memory already, which it keeps.
  explicit FileView(std::string bytes) : own_(std::move(bytes)), bytes_(own_) {}
  FileView(const FileView&) = delete;
  FileView& operator=(const FileView&) = delete;
  ~FileView();

  std::string_view bytes() const { return bytes_; }

 private:
  friend std::shared_ptr<const FileView> view_file(const std::string& path, std::size_t most);
  FileView() = default;

  std::string own_;
  std::string_view bytes_;
  void* mapped_ = nullptr;  // at which they begin, unless they are its own
};

/// A regular file is mapped: its pages are shared by all processes on the host that look at it, are
/// read when they are first looked at, and may be dropped again. What else can be read, a pipe or
/// "-" for stdin, is read whole. Throws as read_file(), also for a device, which may have no end.
/// Requires: nobody makes the file shorter while it is looked at; the system ends a process that
/// then looks at what is gone.
std::shared_ptr<const FileView> view_file(const std::string& path, std::size_t most);

}  // namespace dapple::io
