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
      measured_devices(profile), report::show(parameters), report::show(sum.forward),
      sum.batch_size, sum.batch_size == 1 ? "" : "s", report::show(sum.backward),
      report::show(sum.stash));
}

/// Prints how wide the cuts of the layers' order are, for graphs that have several orders.
void write_arrangement(const interop::LayerArrangement& arrangement, std::ostream& words) {
  const auto percent_below = [](Bytes less, Bytes more) {
    return 100 * (1 - static_cast<double>(less.count) / static_cast<double>(more.count));
  };
  words << fmt::format("  mean cut        {}", report::show(arrangement.mean_cut));
  if (!arrangement.down_sets) {
    words << ", in a greedy order, as the graph has too many down-sets to find the least\n";
    return;
  }
  if (arrangement.mean_cut < arrangement.greedy_mean_cut) {
    words << fmt::format(", {:.1f} % below the greedy order's, and the least",
                         percent_below(arrangement.mean_cut, arrangement.greedy_mean_cut));
  } else if (*arrangement.least_mean_cut == arrangement.mean_cut) {
    words << ", the least";
  } else {
    words << fmt::format(", within {:.1f} % of the least",
                         percent_below(*arrangement.least_mean_cut, arrangement.mean_cut));
  }
  words << fmt::format(" of any order ({} down-sets)\n", *arrangement.down_sets);
}

struct ModelRequest {
  std::vector<std::string> paths;
  /// Empty if the files tell it.
  std::optional<interop::ModelFormat> format;
  interop::ForeignProfileOptions foreign;
  std::optional<std::string> name;
  std::optional<std::string> output;
};

interop::ForeignProfileOptions foreign_figures(const command_line::Options& options) {
  interop::ForeignProfileOptions figures = foreign_request(options).options;
  figures.model = options.text("of-model");
  return figures;
}

ModelRequest model_request(const command_line::Options& options) {
  if (options.positional().empty()) {
    throw command_line::usage_error("import model", "expected one file or more, got none");
  }
  return {.paths = files_among(options.positional()),
          .format = forced_format(options, interop::model_formats()),
          .foreign = foreign_figures(options),
          .name = options.name("name"),
          .output = options.text("output")};
}

int run(const command_line::Options& options, command_line::Console& console) {
  const ModelRequest request = model_request(options);
  interop::ImportedProfile imported = interop::import_model(
      read_foreign<interop::ForeignModelFile>(request.paths, request.format,
                                              {.formats = interop::model_formats(),
                                               .detect = interop::detect_model_format,
                                               .what = "a profile of"}),
      request.foreign);
  ModelProfile& profile = imported.profile;
  if (profile.device.empty()) {
    throw command_line::usage_error(
        "--profile-device",
        "the kind of device that was measured is required, as the file does not state it");
  }
  profile.name = request.name.value_or(profile.name);
  const std::string output =
      request.output.value_or(command_line::default_output(profile, ".profile.json"));
  check_outputs({{"--output", output}}, command_line::numbered_paths(request.paths));
  const std::string document = io::write_profile(profile);
  io::read_profile(document, "the imported profile");  // throws if it could not be read again

  for (const std::string& warning : imported.warnings)
    command_line::print_warning(console, warning);
  std::ostream& words = console.words(output == "-").stream;
  write_summary(profile, words);
  if (imported.arrangement) write_arrangement(*imported.arrangement, words);
  command_line::write_result(console, output, document);
  if (output != "-") words << "profile written to " << printable(output) << '\n';
  return command_line::kDone;
}

/// Returns the options for what profiles of some formats do not say.
std::vector<command_line::OptionSpec> missing_figures() {
  std::vector<command_line::OptionSpec> rows = foreign_profile_options();
  const std::vector<command_line::OptionSpec> more{
      {.name = "global-batch",
       .value = "N",
       .text = "Use N samples per iteration.",
       .details = "Files of Piper say it."},
      {.name = "backward-ratio",
       .value = "X",
       .text = "Take backward times as X times the forward ones.",
       .details = "Files of Piper, Metis and Galvatron do not say them."},
      {.name = "output-size",
       .value = "SIZE",
       .text = "Set the size of a layer's output for one sample.",
       .details = "Files of Metis and Galvatron do not say it."},
      {.name = "layers",
       .value = "N",
       .text = "Take N layers of each kind.",
       .details = "Files of Galvatron do not say it."},
      {.name = "of-model",
       .value = "NAME",
       .text = "Take the model NAME of files with several.",
       .details = "Files of Sailor may have several."},
      {.name = "tensor-parallel",
       .value = "N|all",
       .choices = {"all"},
       .text = "Take the figures of N GPUs, which are then one device.",
       .default_value = "1",
       .details =
           "With \"all\" the figures of every number of GPUs become variants of the layers; a "
           "plan chooses among them. Files of Piper have them."}};
  rows.insert(rows.end(), more.begin(), more.end());
  return rows;
}

std::vector<command_line::OptionSection> model_options() {
  return {{"",
           {command_line::output_option("Write the profile.", "./NAME.profile.json"),
            format_option(interop::model_formats()),
            {.name = "name",
             .value = "NAME",
             .text = "Call the model NAME.",
             .default_value = "the file's"}}},
          {"What a file does not say", missing_figures()}};
}

}  // namespace

command_line::Command import_model_command() {
  return {.description =
              {.name = "model",
               .summary = "make a layer profile from other planners' profiles",
               .usage = {"dapple-plan import model FILE... [-o FILE] [options]"},
               .about = "A FILE is a graph of PipeDream or of Piper, a folder of Metis or its "
                        "files, a profile of Sailor or both files of its planner (times and "
                        "sizes), or one of the two files of Galvatron (computation and memory).",
               .details = {"An option for something that the files do say is refused. What is left "
                           "out of the profile, or is assumed, is a warning."},
               .takes_files = true,
               .options = model_options(),
               .examples = {"dapple-plan import model "
                            "tests/golden/interop/DeviceType.card_tp1_bs*.json \\",
                            "  --optimizer adam --global-batch 128 --backward-ratio 2 "
                            "--output-size 8MiB"}},
          .run = run};
}

}  // namespace dapple::app
