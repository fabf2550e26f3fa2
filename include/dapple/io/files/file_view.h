// A read-only view of a large file, mapped into memory where possible.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace dapple::io {

class FileView {
 public:
  /// Creates a view that owns the given bytes.
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
  // The address of the mapping; null if the view owns the bytes.
  void* mapped_ = nullptr;
};

/// Returns a view of a file. A regular file is mapped: its pages are shared by all processes on the
/// host that view it, are read when they are first accessed, and may be evicted again. A pipe or
/// "-" for stdin is read completely. Throws as read_file() does, and also for a device, which may
/// be endless. Requires: the file is not truncated while it is viewed, because the system kills a
/// process that then accesses the lost part.
std::shared_ptr<const FileView> view_file(const std::string& path, std::size_t most);

}  // namespace dapple::io
