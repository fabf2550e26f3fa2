#include "dapple/exec/weights/tensor_file.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "../../../support/safetensors_file.h"
#include "dapple/core/error.h"

namespace dapple::exec {
namespace {

namespace fs = std::filesystem;

/// A file of that content, as long as it lives.
class WrittenFile {
 public:
  explicit WrittenFile(const std::string& content)
      : path_(fs::temp_directory_path() / ("tensors-" + std::to_string(getpid()))) {
    std::ofstream(path_, std::ios::binary) << content;
  }
  ~WrittenFile() { fs::remove(path_); }
  WrittenFile(const WrittenFile&) = delete;
  WrittenFile& operator=(const WrittenFile&) = delete;
  std::string path() const { return path_.string(); }

 private:
  fs::path path_;
};

std::string refusal_of(const std::string& path, ErrorKind kind) {
  try {
    read_tensor_file(path, "w");
  } catch (const Error& error) {
    CHECK(error.kind() == kind);
    return error.what();
  }
  return "none";
}

TEST_CASE("a file of tensors is read as it is") {
  const std::string content = small::safetensors_file("{}", 5);
  CHECK(read_tensor_file(WrittenFile(content).path(), "w") == content);
}

TEST_CASE("what cannot be a file of tensors is refused before it is read") {
  CHECK(refusal_of("/dev/zero", ErrorKind::Environment) ==
        "/dev/zero: expected a file, or a pipe, got a device");
  CHECK(refusal_of("/", ErrorKind::Environment) == "/: expected a file, got a directory");
  CHECK(refusal_of("/nowhere/none", ErrorKind::Environment).starts_with("/nowhere/none: cannot"));
  CHECK(refusal_of(WrittenFile("short").path(), ErrorKind::BadInput) ==
        "w: expected a safetensors file, got 5 bytes in all");
  // Larger than any memory, though it takes none on the disk.
  const WrittenFile sparse("");
  fs::resize_file(sparse.path(), std::uintmax_t{1} << 42);
  CHECK(refusal_of(sparse.path(), ErrorKind::BadInput) ==
        "w: bytes 0 to 7: expected the length of a safetensors header, at least 2, got 0");
}

}  // namespace
}  // namespace dapple::exec
