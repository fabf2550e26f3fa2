// Writes export folders. A list of files in each marks it as an export, which may be replaced.

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <set>
#include <system_error>
#include <vector>

#include "dapple/core/error.h"
#include "dapple/io/files/links.h"
#include "dapple/io/files/output_files.h"
#include "dapple/io/files/read_file.h"
#include "dapple/io/json/json_reader.h"
#include "io/files/descriptor.h"
#include "io/files/output_target.h"
#include "io/files/signal_hold.h"
#include "io/files/temporary_file.h"
#include "io/json/json_writer.h"

namespace dapple::io {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSchema = "dapple-export/1";

std::string list_of(const ExportFolder& folder) {
  JsonWriter writer;
  writer.open_object(JsonWriter::Layout::Lines);
  writer.key("schema").text(kSchema);
  writer.key("target").text(folder.target);
  writer.key("plan_sha256").text(folder.plan_sha256);
  writer.key("files").open_array(JsonWriter::Layout::Lines);
  for (const FileText& file : folder.files) writer.text(file.name);
  writer.close();
  writer.close();
  return writer.finish();
}

/// Returns the names in a list of files, or nothing if it is not a valid list.
std::optional<std::set<std::string>> listed_files(const fs::path& list) {
  constexpr std::size_t kMost = std::size_t{64} << 20;
  try {
    const std::string text = read_file(list.string(), kMost);
    const auto names =
        read_document<std::vector<std::string>>(text, list.string(), [](const Field& root) {
          ObjectReader object(root);
          check_schema(object, kSchema);
          read_name(object.field("target"));
          read_hash(object.field("plan_sha256"));
          std::vector<std::string> files = read_texts(object.field("files"));
          object.finish();
          return files;
        });
    return std::set<std::string>(names.begin(), names.end());
  } catch (const Error&) { return std::nullopt; }
}

/// Returns why a folder may not be replaced, or an empty text if it may.
std::string fault_of(const fs::path& folder) {
  std::error_code error;
  std::set<std::string> names;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    names.insert(entry->path().filename().string());
  }
  if (error) return "cannot be read: " + error.message();
  if (names.empty()) return "";
  const auto listed = listed_files(folder / kExportList);
  if (!listed) {
    return fmt::format(
        "expected a folder that is empty, not there, or made by export, got one without a {} that "
        "says so",
        kExportList);
  }
  for (const std::string& name : names) {
    const bool is_own = name == kExportList || listed->count(name) > 0;
    if (is_own && !fs::is_directory(fs::symlink_status(folder / name, error))) continue;
    return fmt::format(
        "expected nothing but what export has made there, which it would replace, "
        "got {}",
        printable(name));
  }
  return "";
}

/// Returns the path that the folder will take, which does not end in "/", "." or "..". Throws
/// Error(Environment) if `path` has no such name.
fs::path target_of(const std::string& path) {
  std::string name = path;
  while (name.size() > 1 && name.back() == '/') name.pop_back();
  const fs::path target = follow_links(name);
  const fs::path last = target.filename();
  if (last.empty() || last == "." || last == "..") {
    refuse_output(path, "expected the name of a folder, got one without a name of its own");
  }
  return target;
}

void write_new(const fs::path& name, std::string_view text, const std::string& path) {
  const Descriptor open(::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (open.number() < 0) refuse_output(path, errno);
  write_output(open.number(), text, path);
  // Closing a duplicate reports delayed write errors.
  Descriptor other(::dup(open.number()));
  if (other.number() < 0 || !other.close()) refuse_output(path, errno);
}

void fill(const TemporaryFolder& made, const ExportFolder& folder, const std::string& path) {
  for (const FileText& file : folder.files) {
    check(file.name != kExportList && file.name.find('/') == std::string::npos,
          "a file of an export has a name of its own in its folder");
    write_new(made.name() / file.name, file.text, path);
  }
  write_new(made.name() / kExportList, list_of(folder), path);
}

/// Returns the mode of the existing folder, or nothing if there is none. Throws Error(Environment)
/// if it may not be replaced.
std::optional<mode_t> check_place(const fs::path& target, const std::string& path) {
  struct stat status {};
  if (::stat(target.c_str(), &status) != 0) {
    if (errno != ENOENT) refuse_output(path, errno);
    return std::nullopt;
  }
  if (!S_ISDIR(status.st_mode)) refuse_output(path, "expected a folder, got a file");
  if (::access(target.c_str(), W_OK) != 0) refuse_output(path, errno);
  if (const std::string fault = fault_of(target); !fault.empty()) refuse_output(path, fault);
  return status.st_mode & 07777;
}

}  // namespace

void write_folder(const std::string& path, const ExportFolder& folder) {
  const fs::path target = target_of(path);
  const std::optional<mode_t> mode = check_place(target, path);
  const SignalHold signals;
  TemporaryFolder made(target);
  if (made.number() < 0) refuse_output(path, errno);
  fill(made, folder, path);
  if (mode && ::fchmod(made.number(), *mode) != 0) refuse_output(path, errno);
  // rename(2) replaces a missing or empty folder, and checks again that it is.
  if (made.take_place()) return;
  if (errno != ENOTEMPTY && errno != EEXIST) refuse_output(path, errno);
  if (!made.exchange()) refuse_output(path, errno);
  // If other files have been added to the old folder in the meantime, the exchange is undone.
  const std::string fault = fault_of(made.name());
  if (fault.empty()) return;
  made.exchange();
  refuse_output(path, fault);
}

}  // namespace dapple::io
