#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include "documents_under_test.h"

namespace dapple::test {
namespace {

namespace fs = std::filesystem;
using Faults = std::vector<std::string>;

/// An empty folder, gone with all that is in it at the end of the test.
class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "dapple-files-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string file(const std::string& name) const { return (path_ / name).string(); }
  std::size_t count() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(path_), {}));
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

std::string content(const std::string& path) {
  std::ifstream stream(path);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

ErrorKind kind_of_failure(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) { return error.kind(); }
  FAIL("expected an error");
  return ErrorKind::Usage;
}

TEST_CASE("what was written is read, every byte of it") {
  const Folder folder;
  std::string text;
  for (int i = 0; i < 300'000; ++i) text += static_cast<char>(i * 7);
  write_file(folder.file("a"), text);
  CHECK(read_file(folder.file("a")) == text);
  write_file(folder.file("a"), "");
  CHECK(read_file(folder.file("a")).empty());
  CHECK(folder.count() == 1);
}

TEST_CASE("a file is looked at before it is read") {
  const Folder folder;
  write_file(folder.file("a"), "12345");
  const std::optional<FileStart> start = look_at_file(folder.file("a"), 3);
  REQUIRE(start);
  CHECK(start->bytes == "123");
  CHECK(start->size == 5);
  CHECK(look_at_file(folder.file("a"), 9)->bytes == "12345");
  // Who waits for a reader of a pipe still waits.
  REQUIRE(mkfifo(folder.file("pipe").c_str(), 0600) == 0);
  CHECK_FALSE(look_at_file(folder.file("pipe"), 3));
  const auto look = [](const std::string& path) { return faults([&] { look_at_file(path, 3); }); };
  CHECK(look("/dev/zero") == Faults{"expected a file, or a pipe, got a device"});
  CHECK(look(folder.path().string()) == Faults{"expected a file, got a directory"});
  CHECK(look(folder.file("missing")) == Faults{"cannot be read: No such file or directory"});
}

TEST_CASE("a file that is too large is refused before it is read") {
  const Folder folder;
  write_file(folder.file("a"), "12345");
  CHECK(read_file(folder.file("a"), 5) == "12345");
  CHECK(faults([&] { read_file(folder.file("a"), 4); }) ==
        Faults{"expected at most 4 B, got more"});
}

TEST_CASE("a file that cannot be read is named, with the reason") {
  const Folder folder;
  const auto read = [](const std::string& path) { return faults([&path] { read_file(path); }); };
  CHECK(read(folder.file("missing")) == Faults{"cannot be read: No such file or directory"});
  CHECK(read(folder.path().string()) == Faults{"expected a file, got a directory"});
  CHECK(read("") == Faults{"expected the name of a file, got an empty one"});
  CHECK(read("/dev/zero") == Faults{"expected at most 256 MiB, got more"});
  CHECK(kind_of_failure([&folder] { read_file(folder.file("missing")); }) ==
        ErrorKind::Environment);
}

TEST_CASE("a file that cannot be written leaves nothing behind") {
  const Folder folder;
  const auto write = [](const std::string& path) {
    return faults([&path] { write_file(path, "text"); });
  };
  CHECK(write(folder.file("no/such/folder")) ==
        Faults{"cannot be written: No such file or directory"});
  CHECK(write(folder.path().string()) == Faults{"expected a file, got a directory"});
  CHECK(write(folder.file(std::string(300, 'x'))) ==
        Faults{"cannot be written: File name too long"});
  CHECK(write("/dev/full") == Faults{"cannot be written: No space left on device"});
  CHECK(write("") == Faults{"expected the name of a file, got an empty one"});
  CHECK(folder.count() == 0);
  CHECK(kind_of_failure([] { write_file("/dev/full", "text"); }) == ErrorKind::Environment);
}

TEST_CASE("a file that may not be written is kept as it is") {
  if (::geteuid() == 0) {
    WARN("skipped: nothing is forbidden to the superuser");
    return;
  }
  const Folder folder;
  write_file(folder.file("a"), "old");
  ::chmod(folder.file("a").c_str(), 0444);
  CHECK(faults([&folder] { write_file(folder.file("a"), "new"); }) ==
        Faults{"cannot be written: Permission denied"});
  ::chmod(folder.path().c_str(), 0555);
  CHECK(faults([&folder] { write_file(folder.file("b"), "new"); }) ==
        Faults{"cannot be written: Permission denied"});
  ::chmod(folder.path().c_str(), 0755);
  CHECK(content(folder.file("a")) == "old");
  CHECK(folder.count() == 1);
}

TEST_CASE("a file keeps its mode, and a link stays a link") {
  const Folder folder;
  write_file(folder.file("a"), "old");
  ::chmod(folder.file("a").c_str(), 0640);
  fs::create_symlink("a", folder.file("link"));
  write_file(folder.file("link"), "new");
  CHECK(fs::is_symlink(folder.file("link")));
  CHECK(content(folder.file("a")) == "new");
  struct stat status {};
  REQUIRE(::stat(folder.file("a").c_str(), &status) == 0);
  CHECK((status.st_mode & 07777) == 0640);
  fs::create_symlink("made", folder.file("dangling"));
  write_file(folder.file("dangling"), "made");
  CHECK(content(folder.file("made")) == "made");
  fs::create_symlink("loop", folder.file("loop"));
  CHECK(faults([&folder] { write_file(folder.file("loop"), "x"); }) ==
        Faults{"cannot be written: Too many levels of symbolic links"});
}

TEST_CASE("of several files all are written or none") {
  const Folder folder;
  write_file(folder.file("a"), "old");
  ::chmod(folder.file("a").c_str(), 0640);
  write_files({{folder.file("a"), "new"}, {folder.file("b"), "other"}});
  CHECK(content(folder.file("a")) == "new");
  CHECK(content(folder.file("b")) == "other");
  struct stat status {};
  REQUIRE(::stat(folder.file("a").c_str(), &status) == 0);
  CHECK((status.st_mode & 07777) == 0640);
  fs::create_directory(folder.file("c"));
  CHECK(faults([&] {
          write_files({{folder.file("a"), "newer"}, {folder.file("c"), "x"}});
        }) == Faults{"expected a file, got a directory"});
  CHECK(faults([&] {
          write_files({{folder.file("a"), "newer"}, {"/dev/full", "x"}});
        }) == Faults{"expected a file, as several are written together, got a device or a pipe"});
  CHECK(faults([&] {
          write_files({{folder.file("a"), "newer"}, {folder.file("no/b"), "x"}});
        }) == Faults{"cannot be written: No such file or directory"});
  CHECK(content(folder.file("a")) == "new");
  CHECK(folder.count() == 3);
  fs::create_directory(folder.file(".a.77-3.part"));
  std::ofstream(folder.file(".a.77-3.part/0")) << "half";
  write_files({{folder.file("a"), "newest"}});
  CHECK_FALSE(fs::exists(folder.file(".a.77-3.part")));
}

TEST_CASE("what a killed process has left of a file is removed when that is written again") {
  const Folder folder;
  const auto is_there = [&](const std::string& name) { return fs::exists(folder.file(name)); };
  for (const char* name :
       {".a.77-3.part", ".ab.77-3.part", ".a.b.77-3.part", ".a.part", ".a.x.part"}) {
    std::ofstream(folder.file(name)) << "half";
  }
  // One that is being written is locked.
  std::ofstream(folder.file(".a.78-0.part")) << "half";
  const int other = ::open(folder.file(".a.78-0.part").c_str(), O_RDONLY | O_CLOEXEC);
  REQUIRE(::flock(other, LOCK_EX | LOCK_NB) == 0);
  write_file(folder.file("a"), "whole");
  CHECK(content(folder.file("a")) == "whole");
  CHECK_FALSE(is_there(".a.77-3.part"));
  CHECK(is_there(".a.78-0.part"));
  ::close(other);
  write_file(folder.file("a"), "whole");
  CHECK_FALSE(is_there(".a.78-0.part"));
  // Those of other files are none of its business.
  for (const char* name : {".ab.77-3.part", ".a.b.77-3.part", ".a.part", ".a.x.part"}) {
    INFO(name);
    CHECK(is_there(name));
  }
  CHECK(folder.count() == 5);
}

TEST_CASE("a file that grows beyond the limit is refused, and the old one stays whole") {
  const Folder folder;
  write_file(folder.file("a"), "old");
  struct rlimit before {};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);  // as the tools do
  const struct rlimit small { 1000, before.rlim_max };
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  const Faults found = faults([&] { write_file(folder.file("a"), std::string(2000, 'x')); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, handler);
  CHECK(found == Faults{"cannot be written: File too large"});
  CHECK(content(folder.file("a")) == "old");
  CHECK(folder.count() == 1);
}

TEST_CASE("a device is written to and not replaced") {
  write_file("/dev/null", "text");
  CHECK(fs::is_character_file("/dev/null"));
}

}  // namespace
}  // namespace dapple::test
