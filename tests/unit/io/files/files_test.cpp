#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>

#include "../../../support/temporary_folder.h"
#include "../documents/documents_under_test.h"
#include "dapple/io/files/file_view.h"
#include "dapple/io/files/read_file.h"

namespace dapple::test {
namespace {

namespace fs = std::filesystem;
using Faults = std::vector<std::string>;
using Folder = TemporaryFolder;

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

TEST_CASE("a file is looked at where it lies, and what is none is read") {
  const Folder folder;
  const std::string path = folder.file("tokens");
  const std::string text = "every" + std::string(100'000, '\0') + "byte";
  io::write_file(path, text);
  {
    const auto view = io::view_file(path, text.size());
    CHECK(view->bytes() == text);
    CHECK(content("/proc/self/maps").find(path) != std::string::npos);
  }
  CHECK(content("/proc/self/maps").find(path) == std::string::npos);
  CHECK(kind_of_failure([&] { io::view_file(path, text.size() - 1); }) == ErrorKind::Environment);
  CHECK(kind_of_failure([&] { io::view_file(folder.file("none"), 9); }) == ErrorKind::Environment);
  CHECK(kind_of_failure([&] { io::view_file("/dev/zero", 9); }) == ErrorKind::Environment);
  CHECK(kind_of_failure([&] { io::view_file(folder.path(), 9); }) == ErrorKind::Environment);
  io::write_file(folder.file("empty"), "");
  CHECK(io::view_file(folder.file("empty"), 9)->bytes().empty());
  CHECK(io::FileView("in memory").bytes() == "in memory");
  const std::string pipe = folder.file("pipe");
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  const int both = ::open(pipe.c_str(), O_RDWR | O_CLOEXEC);
  REQUIRE(::write(both, "piped", 5) == 5);
  const std::jthread closer([both] {
    // Once the reader is there: a pipe without a writer has ended, and one without both is empty.
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    ::close(both);
  });
  CHECK(io::view_file(pipe, 9)->bytes() == "piped");
}

TEST_CASE("what was written is read, every byte of it") {
  const Folder folder;
  std::string text;
  for (int i = 0; i < 300'000; ++i) text += static_cast<char>(i * 7);
  io::write_file(folder.file("a"), text);
  CHECK(io::read_file(folder.file("a")) == text);
  io::write_file(folder.file("a"), "");
  CHECK(io::read_file(folder.file("a")).empty());
  CHECK(folder.count() == 1);
}

TEST_CASE("a file is looked at before it is read") {
  const Folder folder;
  io::write_file(folder.file("a"), "12345");
  const std::optional<io::FileStart> start = io::look_at_file(folder.file("a"), 3);
  REQUIRE(start);
  CHECK(start->bytes == "123");
  CHECK(start->size == 5);
  CHECK(io::look_at_file(folder.file("a"), 9)->bytes == "12345");
  // Who waits for a reader of a pipe still waits.
  REQUIRE(mkfifo(folder.file("pipe").c_str(), 0600) == 0);
  CHECK_FALSE(io::look_at_file(folder.file("pipe"), 3));
  const auto look = [](const std::string& path) {
    return faults([&] { io::look_at_file(path, 3); });
  };
  CHECK(look("/dev/zero") == Faults{"expected a file, or a pipe, got a device"});
  CHECK(look(folder.path().string()) == Faults{"expected a file, got a directory"});
  CHECK(look(folder.file("missing")) == Faults{"cannot be read: No such file or directory"});
}

TEST_CASE("a file that is too large is refused before it is read") {
  const Folder folder;
  io::write_file(folder.file("a"), "12345");
  CHECK(io::read_file(folder.file("a"), 5) == "12345");
  CHECK(faults([&] { io::read_file(folder.file("a"), 4); }) ==
        Faults{"expected at most 4 B, got more"});
}

TEST_CASE("a file that cannot be read is named, with the reason") {
  const Folder folder;
  const auto read = [](const std::string& path) {
    return faults([&path] { io::read_file(path); });
  };
  CHECK(read(folder.file("missing")) == Faults{"cannot be read: No such file or directory"});
  CHECK(read(folder.path().string()) == Faults{"expected a file, got a directory"});
  CHECK(read("") == Faults{"expected the name of a file, got an empty one"});
  CHECK(read("/dev/zero") == Faults{"expected at most 256 MiB, got more"});
  CHECK(kind_of_failure([&folder] { io::read_file(folder.file("missing")); }) ==
        ErrorKind::Environment);
}

TEST_CASE("a file that cannot be written leaves nothing behind") {
  const Folder folder;
  const auto write = [](const std::string& path) {
    return faults([&path] { io::write_file(path, "text"); });
  };
  CHECK(write(folder.file("no/such/folder")) ==
        Faults{"cannot be written: No such file or directory"});
  CHECK(write(folder.path().string()) == Faults{"expected a file, got a directory"});
  CHECK(write(folder.file(std::string(300, 'x'))) ==
        Faults{"cannot be written: File name too long"});
  CHECK(write("/dev/full") == Faults{"cannot be written: No space left on device"});
  CHECK(write("") == Faults{"expected the name of a file, got an empty one"});
  CHECK(folder.count() == 0);
  CHECK(kind_of_failure([] { io::write_file("/dev/full", "text"); }) == ErrorKind::Environment);
}

TEST_CASE("a file that may not be written is kept as it is") {
  if (::geteuid() == 0) {
    WARN("skipped: nothing is forbidden to the superuser");
    return;
  }
  const Folder folder;
  io::write_file(folder.file("a"), "old");
  ::chmod(folder.file("a").c_str(), 0444);
  CHECK(faults([&folder] { io::write_file(folder.file("a"), "new"); }) ==
        Faults{"cannot be written: Permission denied"});
  ::chmod(folder.path().c_str(), 0555);
  CHECK(faults([&folder] { io::write_file(folder.file("b"), "new"); }) ==
        Faults{"cannot be written: Permission denied"});
  ::chmod(folder.path().c_str(), 0755);
  CHECK(content(folder.file("a")) == "old");
  CHECK(folder.count() == 1);
}

TEST_CASE("a file keeps its mode, and a link stays a link") {
  const Folder folder;
  io::write_file(folder.file("a"), "old");
  ::chmod(folder.file("a").c_str(), 0640);
  fs::create_symlink("a", folder.file("link"));
  io::write_file(folder.file("link"), "new");
  CHECK(fs::is_symlink(folder.file("link")));
  CHECK(content(folder.file("a")) == "new");
  struct stat status {};
  REQUIRE(::stat(folder.file("a").c_str(), &status) == 0);
  CHECK((status.st_mode & 07777) == 0640);
  fs::create_symlink("made", folder.file("dangling"));
  io::write_file(folder.file("dangling"), "made");
  CHECK(content(folder.file("made")) == "made");
  fs::create_symlink("loop", folder.file("loop"));
  CHECK(faults([&folder] { io::write_file(folder.file("loop"), "x"); }) ==
        Faults{"cannot be written: Too many levels of symbolic links"});
}

TEST_CASE("of several files all are written or none") {
  const Folder folder;
  const Folder other;
  io::write_file(folder.file("a"), "old");
  ::chmod(folder.file("a").c_str(), 0640);
  {
    io::OutputFiles files;
    files.add(folder.file("a"), source_of("new"));
    files.add(other.file("b"), source_of("other"));
    CHECK(content(folder.file("a")) == "old");
    CHECK_FALSE(fs::exists(other.file("b")));
    files.commit();
  }
  CHECK(content(folder.file("a")) == "new");
  CHECK(content(other.file("b")) == "other");
  struct stat status {};
  REQUIRE(::stat(folder.file("a").c_str(), &status) == 0);
  CHECK((status.st_mode & 07777) == 0640);
  fs::create_directory(folder.file("c"));
  const auto write_both = [&](const std::string& second) {
    return faults([&] {
      io::OutputFiles files;
      files.add(folder.file("a"), source_of("newer"));
      files.add(second, source_of("x"));
      files.commit();
    });
  };
  CHECK(write_both(folder.file("c")) == Faults{"expected a file, got a directory"});
  CHECK(write_both("/dev/full") == Faults{"cannot be written: No space left on device"});
  CHECK(write_both(folder.file("no/b")) == Faults{"cannot be written: No such file or directory"});
  CHECK(content(folder.file("a")) == "new");
  {
    io::OutputFiles forgotten;
    forgotten.add(folder.file("a"), source_of("newest"));
  }
  CHECK(content(folder.file("a")) == "new");
  CHECK(folder.count() == 2);
  CHECK(write_both("/dev/null").empty());
  CHECK(content(folder.file("a")) == "newer");
}

TEST_CASE("a folder that was made for files is gone unless they are all written") {
  const Folder parent;
  const std::string made = parent.file("made");
  const auto write_into = [&](const std::string& other) {
    return faults([&] {
      io::OutputFiles files;
      files.add_folder(made);
      files.add(made + "/a", source_of("a"));
      files.add(other, source_of("x"));
      files.commit();
    });
  };
  CHECK(write_into("/dev/full") == Faults{"cannot be written: No space left on device"});
  CHECK(parent.count() == 0);
  CHECK(write_into("/dev/null").empty());
  CHECK(content(made + "/a") == "a");
  CHECK_FALSE(write_into("/dev/full").empty());
  CHECK(content(made + "/a") == "a");
  CHECK(faults([&] { io::OutputFiles().add_folder(parent.file("no/b")); }) ==
        Faults{"cannot be written: No such file or directory"});
}

/// What a child process does to a pipe that nobody reads yet, with a file beside it that is on
/// disk.
pid_t write_file_and_pipe(const Folder& folder) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // Without the handlers that Catch has.
  for (const int number : {SIGHUP, SIGINT, SIGTERM}) ::signal(number, SIG_DFL);
  io::OutputFiles files;
  files.add(folder.file("a"), source_of("new"));
  files.add(folder.file("pipe"), source_of("new"));
  files.commit();
  ::_exit(0);
}

TEST_CASE("a signal that ends the process leaves nothing of what it was writing") {
  for (const int number : {SIGHUP, SIGINT, SIGTERM}) {
    const Folder folder;
    io::write_file(folder.file("a"), "old");
    REQUIRE(mkfifo(folder.file("pipe").c_str(), 0600) == 0);
    const pid_t child = write_file_and_pipe(folder);
    REQUIRE(child > 0);
    // It waits for a reader of the pipe, in a system call that is not started again.
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    REQUIRE(::kill(child, number) == 0);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status));
    CHECK(WTERMSIG(status) == number);
    CHECK(content(folder.file("a")) == "old");
    CHECK(folder.count() == 2);
  }
}

std::atomic<int> signals_seen{0};

TEST_CASE("a signal with a handler comes when all is written") {
  const Folder folder;
  const auto before = ::signal(SIGTERM, [](int) { ++signals_seen; });
  {
    io::OutputFiles files;
    files.add(folder.file("a"), source_of("new"));
    ::raise(SIGTERM);
    CHECK(signals_seen == 0);
    files.commit();
    CHECK(signals_seen == 1);
  }
  ::raise(SIGTERM);
  ::signal(SIGTERM, before);
  CHECK(signals_seen == 2);
  CHECK(content(folder.file("a")) == "new");
}

const std::string kHash(64, '0');

/// What replacing a folder with one of these files says.
Faults replace_folder(const std::string& path, std::vector<io::FileText> files) {
  return faults([&] { io::write_folder(path, {"chakra", kHash, std::move(files)}); });
}

TEST_CASE("a folder of an export takes the place of another one") {
  const Folder parent;
  const std::string out = parent.file("out");
  CHECK(replace_folder(out, {{"a", "1"}, {"b", "2"}}).empty());
  ::chmod(out.c_str(), 0750);
  fs::create_directory_symlink("out", parent.file("link"));
  CHECK(replace_folder(parent.file("link/"), {{"a", "3"}, {"c", "4"}}).empty());
  CHECK(fs::is_symlink(parent.file("link")));
  CHECK(content(out + "/a") == "3");
  CHECK(content(out + "/c") == "4");
  CHECK_FALSE(fs::exists(out + "/b"));
  CHECK(content(out + "/dapple-export.json") ==
        "{\n  \"schema\": \"dapple-export/1\",\n  \"target\": \"chakra\",\n  \"plan_sha256\": \"" +
            kHash + "\",\n  \"files\": [\n    \"a\",\n    \"c\"\n  ]\n}\n");
  struct stat status {};
  REQUIRE(::stat(out.c_str(), &status) == 0);
  CHECK((status.st_mode & 07777) == 0750);
  CHECK(parent.count() == 2);
  fs::create_directory(parent.file("empty"));
  CHECK(replace_folder(parent.file("empty"), {{"a", "5"}}).empty());
  CHECK(content(parent.file("empty/a")) == "5");
  // What a killed export has left is removed by the next one.
  fs::create_directory(parent.file(".out.77-3.part"));
  std::ofstream(parent.file(".out.77-3.part/0")) << "half";
  CHECK(replace_folder(out, {{"a", "6"}}).empty());
  CHECK(parent.count() == 3);
}

TEST_CASE("a folder that holds anything else is not replaced") {
  const Folder parent;
  const std::string out = parent.file("out");
  CHECK(replace_folder(out, {{"a", "1"}}).empty());
  std::ofstream(out + "/notes") << "mine";
  CHECK(replace_folder(out, {{"a", "2"}}) ==
        Faults{"expected nothing but what export has made there, which it would replace, got "
               "notes"});
  CHECK(content(out + "/a") == "1");
  CHECK(content(out + "/notes") == "mine");
  fs::remove(out + "/a");
  fs::rename(out + "/notes", out + "/a");
  CHECK(replace_folder(out, {{"a", "2"}}).empty());
  const std::string no_list =
      "expected a folder that is empty, not there, or made by export, got one without a "
      "dapple-export.json that says so";
  for (const char* list : {"", "{}", "{\"schema\": \"dapple-export/2\"}", "nonsense"}) {
    std::ofstream(out + "/dapple-export.json") << list;
    CHECK(replace_folder(out, {{"a", "3"}}) == Faults{no_list});
  }
  fs::remove(out + "/dapple-export.json");
  CHECK(replace_folder(out, {{"a", "3"}}) == Faults{no_list});
  CHECK(content(out + "/a") == "2");
  io::write_file(parent.file("file"), "text");
  CHECK(replace_folder(parent.file("file"), {{"a", "3"}}) ==
        Faults{"expected a folder, got a file"});
  CHECK(replace_folder(parent.file("no/out"), {{"a", "3"}}) ==
        Faults{"cannot be written: No such file or directory"});
  for (const std::string& name : {out + "/.", out + "/..", std::string("."), std::string("/")}) {
    CHECK(replace_folder(name, {{"a", "3"}}) ==
          Faults{"expected the name of a folder, got one without a name of its own"});
  }
  CHECK(parent.count() == 2);
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
  io::write_file(folder.file("a"), "whole");
  CHECK(content(folder.file("a")) == "whole");
  CHECK_FALSE(is_there(".a.77-3.part"));
  CHECK(is_there(".a.78-0.part"));
  ::close(other);
  io::write_file(folder.file("a"), "whole");
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
  io::write_file(folder.file("a"), "old");
  struct rlimit before {};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);  // as the tools do
  const struct rlimit small { 1000, before.rlim_max };
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  const Faults found = faults([&] { io::write_file(folder.file("a"), std::string(2000, 'x')); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, handler);
  CHECK(found == Faults{"cannot be written: File too large"});
  CHECK(content(folder.file("a")) == "old");
  CHECK(folder.count() == 1);
}

TEST_CASE("a device is written to and not replaced") {
  io::write_file("/dev/null", "text");
  CHECK(fs::is_character_file("/dev/null"));
}

}  // namespace
}  // namespace dapple::test
