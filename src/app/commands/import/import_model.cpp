#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <ostream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "app/commands/import/import_parts.h"
#include "app/request/file_kinds.h"
#include "app/request/inputs.h"
#include "dapple/interop/profiles/foreign_profile.h"
#include "dapple/io/documents/documents.h"
#include "dapple/report/show.h"

namespace dapple::app {
namespace {

constexpr const char* kImportModelHelp =
    R"(dapple-plan import model: other planners' profiles as a layer profile.

Usage: dapple-plan import model FILE... [-o FILE] [options]

A graph of PipeDream or of Piper, a Metis folder or its files, a profile of
Sailor, or the two files of Galvatron (computation and memory).

  -o, --output FILE       the profile, in place of a file of that name
                                               (default: ./NAME.profile.json)
  --format KIND           pipedream, piper, metis, sailor or galvatron
                                               (default: told by each file)
  --name NAME             of the model         (default: the file's)
What a file does not say; what it does say is refused:
  --optimizer NAME        sgd, momentum, rmsprop or adam
  --global-batch N        samples per iteration         (Piper's says it)
  --profile-device D      kind of device that was measured, or which of several
  --profile-batch N       samples at which it was measured   (PipeDream)
  --batch-scaling proportional|floor  of times measured at one batch size
  --stash output|X        times the output, kept for the backward
                                               (PipeDream, Metis)
  --backward-ratio X      backward as a multiple of forward (Piper, Metis,
                          Galvatron)
  --output-size SIZE      of a layer, for a sample   (Metis, Galvatron)
  --layers N              of each kind               (Galvatron)
  --time-unit s|ms|us|ns  of times, where no key says it
                          (PipeDream, Galvatron: ms; Piper: s)
  --tensor-parallel N     whose figures are taken    (default: 1)
A device is then a group of N GPUs. What is left out or taken to be so is a
warning.

Example
  dapple-plan import model tests/golden/interop/DeviceType.card_tp1_bs*.json \
    --optimizer adam --global-batch 128 --backward-ratio 2 --output-size 8MiB
)";

/// Replaces folders by the regular files in them, in the order of their names.
std::vector<std::string> files_among(const std::vector<std::string>& paths) {
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    std::error_code fault;
    if (!std::filesystem::is_directory(path, fault)) {
      files.push_back(path);
      continue;
    }
    const std::size_t first = files.size();
    for (const auto& entry : std::filesystem::directory_iterator(path, fault)) {
      if (entry.is_regular_file(fault)) files.push_back(entry.path().string());
    }
    if (files.size() == first) {
      throw command_line::usage_error("import model",
                                      fmt::format("expected a folder with files, got {}, which "
                                                  "has none",
                                                  printable(path)));
    }
    std::sort(files.begin() + static_cast<std::ptrdiff_t>(first), files.end());
  }
  return files;
}

std::vector<interop::ForeignModelFile> read_files(const std::vector<std::string>& paths,
                                                  const command_line::Options& options) {
  std::optional<interop::ModelFormat> forced;
  std::vector<std::string> names{"detect"};
  for (const interop::ModelFormat format : interop::all_model_formats())
    names.emplace_back(name_of(format));
  const std::string choice = options.choice("format", names);
  for (const interop::ModelFormat format : interop::all_model_formats()) {
    if (choice == name_of(format)) forced = format;
  }
  std::vector<interop::ForeignModelFile> files;
  for (const std::string& path : paths) {
    interop::ForeignModelFile file{.text = io::read_file(path),
                                   .name = command_line::source_name(path)};
    const std::optional<interop::ModelFormat> format =
        forced ? forced : interop::detect_model_format(file.text);
    if (!format) {
      refuse_unknown(file.text, file.name,
                     "a profile of PipeDream, Piper, Metis, Sailor or Galvatron");
    }
    file.format = *format;
    files.push_back(std::move(file));
  }
  return files;
}

/// Prints sums over all layers, at the largest batch size that was measured.
void write_summary(const ModelProfile& profile, std::ostream& words) {
  Bytes parameters;
  Measurement sum;
  for (const Layer& layer : profile.layers) {
    const Measurement& largest = layer.measurements.back();
    parameters += layer.parameters;
    sum.batch_size = largest.batch_size;
    sum.forward += largest.forward;
    sum.backward += largest.backward;
    sum.stash += largest.stash;
  }
  words << fmt::format(
      "{}: {} layer{} measured on {}\n"
      "  parameters      {}\n"
      "  forward         {} for {} sample{}\n"
      "  backward        {}\n"
      "  kept for it     {}\n",
      printable(profile.name), profile.layers.size(), profile.layers.size() == 1 ? "" : "s",
      printable(profile.device), report::show(parameters), report::show(sum.forward),
      sum.batch_size, sum.batch_size == 1 ? "" : "s", report::show(sum.backward),
      report::show(sum.stash));
}

int run(const command_line::Options& options, command_line::Console& console) {
  if (options.positional().empty()) {
    throw command_line::usage_error("import model", "expected one file or more, got none");
  }
  const std::vector<std::string> paths = files_among(options.positional());
  interop::ImportedProfile imported =
      interop::import_model(read_files(paths, options), foreign_options(options));
  ModelProfile& profile = imported.profile;
  if (profile.device.empty()) {
    throw command_line::usage_error(
        "--profile-device",
        "expected the kind of device that was measured, which the file does not say, "
        "got nothing");
  }
  profile.name = options.text("name").value_or(profile.name);
  const std::string output =
      options.text("output").value_or(command_line::default_output(profile, ".profile.json"));
  check_outputs({{"--output", output}}, command_line::numbered_paths(paths));
  const std::string document = io::write_profile(profile);
  io::read_profile(document, "the imported profile");  // throws if it could not be read again

  for (const std::string& warning : imported.warnings)
    command_line::print_warning(console, warning);
  std::ostream& words = console.words(output == "-").stream;
  write_summary(profile, words);
  command_line::write_result(console, output, document);
  if (output != "-") words << "profile written to " << printable(output) << '\n';
  return command_line::kDone;
}

}  // namespace

command_line::Command import_model_command() {
  std::vector<command_line::OptionSpec> specs{
      {.name = "output", .letter = 'o'}, {.name = "format"},          {.name = "name"},
      {.name = "global-batch"},          {.name = "tensor-parallel"}, {.name = "backward-ratio"},
      {.name = "output-size"},           {.name = "layers"}};
  for (const command_line::OptionSpec& spec : foreign_profile_options()) specs.push_back(spec);
  return {.name = "model", .help = kImportModelHelp, .options = std::move(specs), .run = run};
}

}  // namespace dapple::app
