#include "dapple/io/files/output_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <utility>
#include <vector>

#include "dapple/io/files/links.h"
#include "io/files/descriptor.h"
#include "io/files/output_target.h"
#include "io/files/signal_hold.h"
#include "io/files/temporary_file.h"

namespace dapple::io {
namespace {

void write_pieces(int number, const TextSource& text, const std::string& path) {
  text([&](std::string_view piece) { write_output(number, piece, path); });
}

/// Writes to a device or a pipe, which cannot be replaced by another file.
void write_in_place(const std::string& path, const TextSource& text) {
  Descriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  while (file.number() < 0 && errno == EINTR) {  // a pipe waits for its reader
    if (SignalHold::is_over()) refuse_output(path, EINTR);
    file = Descriptor(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  }
  if (file.number() < 0) refuse_output(path, errno);
  write_pieces(file.number(), text, path);
  if (!file.close()) refuse_output(path, errno);
}

/// A file, a device or a pipe to write to.
struct Target {
  // The path with symbolic links resolved.
  std::filesystem::path path;
  // The mode of an existing target; nothing if it does not exist.
  std::optional<mode_t> mode;
  bool is_regular = true;
};

/// Throws Error(Environment) if the target may not be written.
Target find_target(const std::string& path) {
  Target target{.path = follow_links(path), .mode = std::nullopt};
  struct stat status {};
  if (::stat(target.path.c_str(), &status) != 0) {
    if (errno != ENOENT) refuse_output(path, errno);
    return target;
  }
  if (S_ISDIR(status.st_mode)) refuse_output(path, "expected a file, got a directory");
  target.is_regular = S_ISREG(status.st_mode);
  target.mode = status.st_mode & 07777;
  // A write-protected file must not be replaced either.
  if (target.is_regular && ::access(target.path.c_str(), W_OK) != 0) { refuse_output(path, errno); }
  return target;
}

}  // namespace

namespace {

/// A created folder, which is removed at the end of the scope if it is empty, unless it is kept.
class MadeFolder {
 public:
  explicit MadeFolder(std::string path) : path_(std::move(path)) {}
  MadeFolder(MadeFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  MadeFolder(const MadeFolder&) = delete;
  MadeFolder& operator=(const MadeFolder&) = delete;
  ~MadeFolder() {
    if (!path_.empty()) ::rmdir(path_.c_str());
  }
  void keep() { path_.clear(); }

 private:
  std::string path_;
};

}  // namespace

struct OutputFiles::State {
  struct Written {
    std::string path;
    // Null for a device or a pipe.
    std::unique_ptr<TemporaryFile> file;
    // The text for a device or a pipe.
    TextSource text = {};
  };
  SignalHold signals;  // must outlive the files
  std::vector<MadeFolder> folders;
  std::vector<Written> files;
};

OutputFiles::OutputFiles() = default;

OutputFiles::~OutputFiles() = default;

void OutputFiles::add_folder(const std::string& path) {
  if (state_ == nullptr) state_ = std::make_unique<State>();
  if (::mkdir(path.c_str(), 0777) == 0) {
    state_->folders.emplace_back(path);
  } else if (errno != EEXIST) {
    refuse_output(path, errno);
  }
}

void OutputFiles::add(const std::string& path, const TextSource& text) {
  if (state_ == nullptr) state_ = std::make_unique<State>();
  const Target target = find_target(path);
  if (!target.is_regular) {
    state_->files.push_back({.path = path, .file = nullptr, .text = text});
    return;
  }
  auto file = std::make_unique<TemporaryFile>(target.path);
  if (file->number() < 0) refuse_output(path, errno);
  if (target.mode && ::fchmod(file->number(), *target.mode) != 0) refuse_output(path, errno);
  write_pieces(file->number(), text, path);
  if (!file->finish()) refuse_output(path, errno);
  state_->files.push_back({.path = path, .file = std::move(file)});
}

void OutputFiles::commit() {
  if (state_ == nullptr) return;
  for (const State::Written& written : state_->files) {
    if (written.file == nullptr) write_in_place(written.path, written.text);
  }
  if (SignalHold::is_over() && !state_->files.empty()) {
    refuse_output(state_->files.front().path, EINTR);
  }
  for (const State::Written& written : state_->files) {
    if (written.file != nullptr && !written.file->replace_target()) {
      refuse_output(written.path, errno);
    }
  }
  for (MadeFolder& folder : state_->folders) folder.keep();
  state_.reset();
}

void write_file(const std::string& path, std::string_view text) {
  if (path == "-") {
    write_output(STDOUT_FILENO, text, "standard output");
    return;
  }
  OutputFiles files;
  files.add(path, [text](const TextSink& sink) { sink(text); });
  files.commit();
}

}  // namespace dapple::io
