#include <fmt/format.h>

#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "app/commands/commands.h"
#include "app/request/estimates.h"
#include "app/request/file_kinds.h"
#include "app/request/inputs.h"
#include "dapple/command_line/files.h"
#include "dapple/interop/profiles/configuration.h"
#include "dapple/io/documents/documents.h"
#include "dapple/io/files/read_file.h"
#include "dapple/profile/limits.h"
#include "dapple/profile/variants.h"
#include "dapple/report/show.h"

namespace dapple::app {
namespace {

constexpr std::int64_t kMostSamples = 2'147'483'647;

/// Prints what the profile says, for one sample on one device.
void write_estimate(const ModelProfile& profile, std::ostream& words) {
  Bytes parameters;
  Bytes stash;
  Duration forward;
  Duration backward;
  for (const Layer& layer : profile.layers) {
    parameters += layer.parameters;
    stash += stash_size(layer, 1);
    forward += forward_time(layer, 1, profile.batch_scaling, kOne);
    backward += backward_time(layer, 1, profile.batch_scaling, kOne);
  }
  words << fmt::format(
      "{}: {} layers estimated for {}\n"
      "  parameters      {}\n"
      "  forward         {} for 1 sample on 1 device, estimated\n"
      "  backward        {}\n"
      "  kept for it     {}\n"
      "  forms           {} ways to run every layer\n",
      printable(profile.name), profile.layers.size(), measured_devices(profile),
      report::show(parameters), report::show(forward), report::show(backward), report::show(stash),
      parallelisms_of(profile).size());
}

int run_estimate(const command_line::Options& options, command_line::Console& console) {
  if (options.positional().size() != 1) {
    throw command_line::usage_error(
        "estimate",
        fmt::format("expected one configuration, got {} files", options.positional().size()));
  }
  const std::string& path = options.positional().front();
  EstimateRequest request = estimate_request(options);
  request.options.max_tensor =
      options.positive_integer("max-tensor", kMaxTensorParallel).value_or(8);
  const std::string text = io::read_file(path);
  if (!io::document_kind(text).empty()) {
    refuse_unknown(text, command_line::source_name(path),
                   "a model's configuration with \"model_type\"");
  }
  ModelProfile profile = estimated_profile(text, path, request, nullptr);
  profile.name = options.name("name").value_or(profile.name);
  profile.global_batch_size = options.positive_integer("global-batch", kMostSamples);
  const std::string output =
      options.text("output").value_or(command_line::default_output(profile, ".profile.json"));
  std::vector<command_line::NamedPath> inputs = command_line::numbered_paths({path});
  if (request.gpus) inputs.push_back({"--gpus", *request.gpus});
  check_outputs({{"--output", output}}, inputs);
  const std::string document = io::write_profile(profile);
  io::read_profile(document, "the estimated profile");  // throws if it could not be read again
  for (const std::string& warning : profile.warnings) command_line::print_warning(console, warning);
  std::ostream& words = console.words(output == "-").stream;
  write_estimate(profile, words);
  command_line::write_result(console, output, document);
  if (output != "-") words << "profile written to " << printable(output) << '\n';
  return command_line::kDone;
}

std::vector<command_line::OptionSection> estimate_sections() {
  std::vector<command_line::OptionSpec> estimated = more_estimate_options();
  estimated.push_back({.name = "max-tensor",
                       .value = "N",
                       .text = "Make variants up to tensor degree N.",
                       .default_value = "8"});
  return {{"",
           {command_line::output_option("Write the profile.", "./NAME.profile.json"),
            {.name = "name",
             .value = "NAME",
             .text = "Call the model NAME.",
             .default_value = "its file's or folder's"},
            {.name = "global-batch", .value = "N", .text = "Use N samples per iteration."}}},
          {"How the model is trained", estimate_options()},
          {"What is estimated", std::move(estimated)}};
}

}  // namespace

command_line::Command estimate_command() {
  return {
      .description =
          {.name = "estimate",
           .summary = "estimate a layer profile from a model's configuration",
           .usage = {"dapple-plan estimate CONFIG --gpu NAMES --sequence N [-o FILE] [options]"},
           .about = "CONFIG is the config.json of a model's Hugging Face repository. Times are "
                    "estimated by closed forms (docs/estimate.md).",
           .details = {"Families that are read: " +
                       fmt::format("{}", fmt::join(interop::configuration_families(), ", ")) +
                       ". The profile has variants of every layer for every degree of tensor, "
                       "context and expert parallelism that divides it."},
           .takes_files = true,
           .options = estimate_sections(),
           .examples = {"dapple-plan estimate "
                        "profiles/configurations/llama-3-8b.json \\",
                        "    --gpu H100 --sequence 8192 -o llama-3-8b.profile.json"}},
      .run = run_estimate};
}

}  // namespace dapple::app
