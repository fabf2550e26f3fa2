#include "dapple/command_line/files.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <ostream>
#include <string_view>
#include <system_error>
#include <utility>

#include "dapple/core/characters.h"
#include "dapple/io/documents/documents.h"
#include "dapple/io/files/links.h"
#include "dapple/io/files/read_file.h"

namespace dapple::command_line {
namespace {

namespace fs = std::filesystem;

Error file_error(const std::string& path, const std::string& message) {
  return Error{ErrorKind::Environment, path, {{"", message}}};
}

void check_writable(const std::string& path) {
  std::error_code fault;
  if (fs::is_directory(path, fault)) throw file_error(path, "expected a file, got a directory");
  // Devices and pipes are written to directly; their folder need not be writable.
  if (fs::exists(path, fault) && !fs::is_regular_file(path, fault)) return;
  fs::path directory = fs::path(path).parent_path();
  if (directory.empty()) directory = ".";
  if (!fs::is_directory(directory, fault)) {
    const bool is_there = fs::exists(directory, fault);
    throw file_error(path, fmt::format("expected a directory to write to, got {}",
                                       is_there ? directory.string() + ", which is a file"
                                                : "nothing at " + directory.string()));
  }
  if (access(directory.c_str(), W_OK | X_OK) != 0) {
    throw file_error(
        path, fmt::format("cannot write to {}: {}", directory.string(), std::strerror(errno)));
  }
}

void check_names(const std::vector<NamedPath>& paths) {
  for (const NamedPath& named : paths) {
    if (!named.path.empty()) continue;
    throw usage_error(named.option, "expected the name of a file, got an empty one");
  }
}

bool same_file(const std::string& a, const std::string& b) {
  if (a == "-" || b == "-") return a == b;
  std::error_code fault;
  const auto resolved = [&](const std::string& path) {
    return fs::weakly_canonical(fs::absolute(io::follow_links(path), fault), fault);
  };
  const fs::path first = resolved(a);
  const fs::path second = resolved(b);
  return !first.empty() && first == second;
}

}  // namespace

std::string source_name(const std::string& path) {
  return path == "-" ? "<stdin>" : printable(path);
}

PlanDocument load_plan(const std::string& path) {
  return io::read_plan(io::read_file(path), source_name(path));
}

OptionSpec output_option(const std::string& text, const std::string& default_value) {
  return {.name = "output",
          .letter = 'o',
          .value = "FILE",
          .kind = ValueKind::File,
          .text = text,
          .default_value = default_value,
          .details = "A file of that name is replaced; \"-\" is stdout."};
}

OptionSpec trace_option() {
  return {.name = "trace",
          .value = "FILE",
          .kind = ValueKind::File,
          .text = "Write a trace for chrome://tracing or ui.perfetto.dev.",
          .details =
              "It is the timeline of all devices. A file of that name is replaced; \"-\" is "
              "stdout."};
}

OptionSpec timeline_option(const std::string& text) {
  return {.name = "timeline",
          .value = "FILE",
          .kind = ValueKind::File,
          .text = text,
          .details =
              "The file is of dapple-timeline/1, with times in nanoseconds and sizes in "
              "bytes. A file of that name is replaced; \"-\" is stdout."};
}

std::vector<NamedPath> given_paths(const Options& options, const std::vector<std::string>& names) {
  std::vector<NamedPath> paths;
  for (const std::string& name : names) {
    if (const auto path = options.text(name)) paths.push_back({"--" + name, *path});
  }
  return paths;
}

std::vector<NamedPath> numbered_paths(const std::vector<std::string>& paths) {
  std::vector<NamedPath> numbered;
  for (const std::string& path : paths) {
    numbered.push_back({fmt::format("FILE {}", numbered.size() + 1), path});
  }
  return numbered;
}

void check_inputs(const std::vector<NamedPath>& inputs) {
  check_names(inputs);
  const NamedPath* first = nullptr;
  for (const NamedPath& input : inputs) {
    if (input.path != "-") continue;
    if (first != nullptr) {
      throw usage_error(input.option, fmt::format("expected a file, got \"-\" for {} and {} both",
                                                  first->option, input.option));
    }
    first = &input;
  }
}

void check_outputs(const std::vector<NamedPath>& outputs, const std::vector<NamedPath>& inputs) {
  check_inputs(inputs);
  check_names(outputs);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (same_file(outputs[i].path, outputs[j].path)) {
        throw usage_error(outputs[i].option, "expected another file than that of " +
                                                 outputs[j].option + ", got " + outputs[i].path +
                                                 " for both");
      }
    }
    for (const NamedPath& input : inputs) {
      if (outputs[i].path != "-" && same_file(outputs[i].path, input.path)) {
        throw usage_error(outputs[i].option, "expected another file than that of " + input.option +
                                                 ", which would be overwritten, got " +
                                                 outputs[i].path);
      }
    }
  }
  for (const NamedPath& output : outputs) {
    if (output.path != "-") check_writable(output.path);
  }
}

void check_output_folder(const NamedPath& output, const std::vector<NamedPath>& inputs) {
  check_inputs(inputs);
  check_names({output});
  if (output.path == "-") {
    throw usage_error(output.option, "expected the name of a folder, for several files, got \"-\"");
  }
  std::error_code fault;
  const fs::path folder = fs::weakly_canonical(fs::absolute(output.path, fault), fault);
  for (const NamedPath& input : inputs) {
    if (input.path == "-") continue;
    const fs::path file = fs::weakly_canonical(fs::absolute(input.path, fault), fault);
    const auto [end, rest] = std::mismatch(folder.begin(), folder.end(), file.begin(), file.end());
    if (folder.empty() || end != folder.end()) continue;
    throw usage_error(output.option, "expected a folder without " + input.option +
                                         ", which would be overwritten, got " + output.path);
  }
}

bool takes_stdout(const std::vector<NamedPath>& outputs) {
  return std::any_of(outputs.begin(), outputs.end(),
                     [](const NamedPath& output) { return output.path == "-"; });
}

std::string default_output(const ModelProfile& profile, const std::string& ending) {
  return default_output(profile.name, ending);
}

std::string default_output(const std::string& name, const std::string& ending) {
  std::string plain = name;
  for (char& c : plain) {
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                          (c >= '0' && c <= '9') || c == '.' || c == '_';
    if (!is_plain) c = '-';
  }
  constexpr std::size_t kLongestName = 100;
  plain.resize(std::min(plain.size(), kLongestName));
  return "./" + (plain.empty() ? "model" : plain) + ending;
}

void write_result(Console& console, const std::string& path, const std::string& text) {
  write_result(console, path, [&text](const TextSink& sink) { sink(text); });
}

void write_result(Console& console, const std::string& path, const TextSource& text) {
  Results results(console);
  results.add(path, text);
  results.commit();
}

void Results::add(const std::string& path, std::string text) {
  add(path, source_of(std::move(text)));
}

void Results::add(const std::string& path, TextSource text) {
  if (path == "-") {
    for_stdout_ = std::move(text);
    return;
  }
  files_.add(path, [path, text = std::move(text)](const TextSink& sink) {
    std::size_t bytes = 0;
    text([&](std::string_view piece) {
      sink(piece);
      bytes += piece.size();
    });
    spdlog::info("{} bytes for {}", bytes, printable(path));
  });
}

void Results::commit() {
  files_.commit();
  if (!for_stdout_) return;
  for_stdout_([this](std::string_view piece) {
    console_.documents << piece;
    if (piece.size() >= kTextPiece) console_.deliver();
  });
}

}  // namespace dapple::command_line
