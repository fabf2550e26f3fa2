// Reads files, whole or their beginnings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace dapple::io {

/// Returns the content of a file; "-" is stdin. Throws Error(Environment) if it cannot be read (a
/// directory, missing, no permission) or is larger than `most` bytes.
std::string read_file(const std::string& path, std::size_t most = std::size_t{256} << 20);

/// The beginning and the size of a file, which may be large.
struct FileStart {
  /// The first bytes: the requested number, or fewer if the file is shorter.
  std::string bytes;
  /// The size of the whole file, for stdin from its current position.
  std::uint64_t size = 0;
};
/// Returns the first `count` bytes of a regular file without consuming them, or nothing if it is a
/// pipe, which can be read only once; "-" is stdin. Throws Error(Environment) if the file cannot be
/// read or is a device, which may be endless.
std::optional<FileStart> look_at_file(const std::string& path, std::size_t count);

}  // namespace dapple::io
