#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "dapple/command_line/files.h"
#include "dapple/command_line/freed_memory.h"
#include "dapple/core/error.h"
#include "dapple/exec/measure/measure.h"
#include "dapple/io/documents/documents.h"
#include "dapple/io/documents/specification.h"
#include "dapple/io/files/read_file.h"
#include "dapple/nn/shared_layers.h"
#include "dapple/profile/doubts.h"
#include "dapple/report/show.h"
#include "dapple/report/table.h"
#include "exec_app/commands/commands.h"
#include "exec_app/commands/rank_process.h"
#include "exec_app/request/compute_device.h"

namespace dapple::exec_app {
namespace {

/// Returns the numbers of an option "N,N,...", which must ascend and be at most `most`.
std::vector<std::int64_t> ascending_numbers(const std::string& option, const std::string& text,
                                            std::int64_t most) {
  std::vector<std::int64_t> numbers;
  for (const std::string& part : command_line::parts_of_list(text)) {
    // Options parses the number and reports errors.
    const command_line::Options one({"--" + option + "=" + part}, {{.name = option, .value = "N"}});
    const std::int64_t number = one.positive_integer(option, most).value_or(0);
    if (!numbers.empty() && number <= numbers.back()) {
      throw command_line::usage_error(
          "--" + option,
          fmt::format("expected ascending numbers, got {} after {}", number, numbers.back()));
    }
    numbers.push_back(number);
  }
  return numbers;
}

/// Returns the degrees of parallelism that an option asks for; none if it is not there.
std::vector<std::int64_t> degrees_of(const std::string& option,
                                     const command_line::Options& options) {
  constexpr std::int64_t kMostRanks = 64;
  const auto text = options.text(option);
  if (!text) return {};
  const std::vector<std::int64_t> degrees = ascending_numbers(option, *text, kMostRanks);
  if (degrees.front() > 1) return degrees;
  throw command_line::usage_error(
      "--" + option, "expected degrees above 1, as whole layers are always measured, got 1");
}

struct ProfileRequest {
  std::string spec;
  ComputeDevice device;
  exec::MeasureOptions measure;
  std::optional<std::string> output;
};

std::vector<RecomputedParts> recomputed_sets(const command_line::Options& options) {
  std::vector<RecomputedParts> sets;
  const auto text = options.text("recompute");
  if (!text) return sets;
  for (const std::string& part : command_line::parts_of_list(*text)) {
    const std::optional<RecomputedParts> parts = recomputed_parts(part);
    const bool is_known =
        parts && !parts->none() && parts->is_sound() && nn::kRecomputable.includes(*parts);
    if (!is_known || std::find(sets.begin(), sets.end(), *parts) != sets.end()) {
      throw command_line::usage_error(
          "--recompute",
          fmt::format(
              "expected full, core_attn, mlp, moe or such with \"+\" between them, each once, "
              "got \"{}\"",
              printable(part)));
    }
    sets.push_back(*parts);
  }
  return sets;
}

ProfileRequest profile_request(const command_line::Options& options) {
  constexpr std::int64_t kMostRepeats = 10'000;
  constexpr std::int64_t kMostCores = 1'024;
  ProfileRequest request{.spec = options.required("spec", "a specification"),
                         .device = {},
                         .measure = {},
                         .output = options.text("output")};
  exec::MeasureOptions& measure = request.measure;
  constexpr std::int64_t kMostSamples = 100'000;
  if (const auto sizes = options.text("batch-sizes")) {
    measure.batch_sizes = ascending_numbers("batch-sizes", *sizes, kMostSamples);
  }
  constexpr std::int64_t kMostRounds = 8;
  measure.most_repeats = kMostRounds * measure.repeats;
  if (const auto n = options.positive_integer("repeat", kMostRepeats)) {
    measure.repeats = *n;
    measure.most_repeats = *n;
  }
  if (const auto n = options.positive_integer("cores", kMostCores)) measure.cores = *n;
  request.device = compute_device(options);
  measure.on_gpu = request.device.kind == ComputeDevice::Kind::Cuda;
  measure.precision = request.device.precision;
  if (measure.on_gpu && options.has("cores")) {
    throw command_line::usage_error("--cores", "needs --device cpu, got cuda");
  }
  measure.tensor_degrees = degrees_of("tensor", options);
  measure.context_degrees = degrees_of("context", options);
  measure.expert_degrees = degrees_of("experts", options);
  measure.divides_experts = options.has("expert-tensor");
  if (measure.divides_experts &&
      (measure.expert_degrees.empty() || measure.tensor_degrees.empty())) {
    throw command_line::usage_error("--expert-tensor", "needs --experts and --tensor");
  }
  measure.recomputes = recomputed_sets(options);
  measure.device = options.name("device-name").value_or(measure.on_gpu ? "cuda" : "cpu");
  return request;
}

void report(const exec::MeasuredModel& measured, std::ostream& out,
            const report::TextStyle& style) {
  report::Table table({{.header = "layer", .least = 8},
                       {.header = "copies", .align = report::Align::Right},
                       {.header = "batch", .align = report::Align::Right},
                       {.header = "forward", .align = report::Align::Right},
                       {.header = "input grad", .align = report::Align::Right},
                       {.header = "weight grad", .align = report::Align::Right},
                       {.header = "spread", .align = report::Align::Right},
                       {.header = "stash", .align = report::Align::Right}});
  for (const exec::MeasuredLayer& layer : measured.layers) {
    const std::size_t first = layer.is_variant ? layer.measurements.size() - 1 : 0;
    for (std::size_t i = first; i < layer.measurements.size(); ++i) {
      const Measurement& figures = layer.measurements[i];
      table.add_row({{i == first ? layer.name : ""},
                     {i == first ? report::show_count(layer.copies) : ""},
                     {report::show_count(figures.batch_size)},
                     {report::show(figures.forward)},
                     {report::show(figures.input_gradient.value_or(Duration{}))},
                     {report::show(figures.weight_gradient.value_or(Duration{}))},
                     {report::show_percent(layer.spreads[i])},
                     {report::show(figures.stash)}});
    }
  }
  const std::string head =
      fmt::format("{}: {}", printable(measured.profile.name), printable(measured.profile.source));
  out << report::fill_lines(head, 0, style) << "\n\n" << table.text(0, style);
}

int run_profile(const command_line::Options& options, command_line::Console& console) {
  options.require_options_only("--spec FILE");
  if (is_rank()) {
    throw command_line::usage_error(
        "", "profile cannot be run by a launcher, as it measures one process");
  }
  ProfileRequest request = profile_request(options);
  const std::string& path = request.spec;
  exec::MeasureOptions& measure = request.measure;
  use_kernels_of(request.device);
  const io::Specification specification =
      io::read_specification(io::read_file(path), command_line::source_name(path));
  const std::string output =
      request.output.value_or(command_line::default_output(specification.profile, ".profile.json"));
  command_line::check_outputs({{"--output", output}}, {{"--spec", path}});
  command_line::keep_freed_memory();
  const command_line::SignalGuard interrupt(
      command_line::text_of_interruption(console, "the pass"));
  measure.should_stop = [&interrupt] { return interrupt.has_received(); };
  const exec::MeasuredModel measured =
      exec::measure_model(specification, command_line::source_name(path), measure);
  command_line::write_result(console, output, io::write_profile(measured.profile));
  const auto [stream, style] = console.words(output == "-");
  report(measured, stream, style);
  const bool is_number_given = measure.most_repeats == measure.repeats;
  if (measured.was_stopped && !(is_number_given && measured.passes == measure.repeats)) {
    command_line::print_warning(
        console,
        fmt::format("interrupted: the profile has the medians of {}{} passes", measured.passes,
                    is_number_given ? fmt::format(" of {}", measure.repeats) : ""));
  }
  for (const std::string& doubt : doubts_about(measured.profile))
    command_line::print_warning(console, doubt);
  if (output != "-") stream << "profile written to " << printable(output) << '\n';
  return command_line::kDone;
}

std::vector<command_line::OptionSpec> variant_rows() {
  return {{.name = "tensor",
           .value = "N,N,...",
           .text = "Also measure layers shared by N tensor-parallel ranks.",
           .details = "Each layer has one more variant for every degree, and one with sequence "
                      "parallelism, as one rank computes it. Plans add the time of the ranks' "
                      "collectives by the topology's links."},
          {.name = "context",
           .value = "N,N,...",
           .text = "Also measure layers on one of N parts of each sequence.",
           .details = "These are context-parallel ranks, and with --tensor there are variants for "
                      "every pair of degrees too."},
          {.name = "experts",
           .value = "N,N,...",
           .text = "Also measure blocks with experts on N ranks.",
           .details = "There are variants with every degree above, but for tensor-parallel ranks "
                      "only with sequence parallelism. Times are as if all experts had as many "
                      "positions."},
          {.name = "expert-tensor",
           .text = "Also measure these with each expert divided among tensor ranks.",
           .details = "As many ranks as the tensor-parallel degree have a part each of an expert. "
                      "This needs --experts and --tensor."},
          {.name = "recompute",
           .value = "PARTS,...",
           .text = "Also measure blocks that compute again full, core_attn, mlp or moe.",
           .details =
               "PARTS are full, core_attn, mlp, moe, or core_attn with one of the last two, as in "
               "core_attn+mlp; there are variants for each of them and for each with the "
               "degrees above."}};
}

std::vector<command_line::OptionSection> profile_options() {
  return {{"",
           {{.name = "spec",
             .value = "FILE",
             .kind = command_line::ValueKind::File,
             .text = "Measure the layers of this specification or profile.",
             .details = "A specification is described in profiles/README.md; \"-\" is stdin."},
            command_line::output_option("Write the profile.", "./MODEL.profile.json")}},
          {"Measurement",
           {{.name = "batch-sizes",
             .value = "N,N,...",
             .text = "Measure N samples at once, ascending.",
             .default_value = "1,2,4,8",
             .details = "N is at most 100,000."},
            {.name = "repeat",
             .value = "N",
             .text = "Take the median of N passes over all layers.",
             .default_value = "as many as it takes",
             .details = "N is at most 10,000. By default there are 15, and up to 120 until the "
                        "medians of the first and of the second half of the passes differ by 2 % "
                        "of a pass at most, added up over the layers. If they differ by more, a "
                        "warning says so."},
            {.name = "cores",
             .value = "N",
             .text = "Measure on N cores at once, each with its passes.",
             .default_value = "1",
             .details = "That is for plans whose devices are cores of this machine."}}},
          {"Variants", variant_rows()},
          {"Device",
           {device_option("Measure on {}, the first GPU."),
            precision_option(),
            kernels_option(),
            {.name = "device-name",
             .value = "NAME",
             .text = "Call the device NAME, as topologies do.",
             .default_value = "the kind"}}}};
}

}  // namespace

command_line::Command profile_command() {
  return {
      .description =
          {.name = "profile",
           .summary = "measure the times of a model's layers on this machine",
           .usage = {"dapple-exec profile --spec MODEL [options]"},
           .about = "Every layer is run forward and backward, and the profile is what dapple-plan "
                    "can plan from and dapple-exec can run. Ctrl-C ends the measurement after the "
                    "current pass, with what it has.",
           .details = {"Layers that do the same on the same input count as one. The memory that is "
                       "needed is that of four of each at the largest batch size, on each core."},
           .options = profile_options(),
           .examples = {"dapple-exec profile --spec profiles/mlp.json -o profile.json "
                        "--batch-sizes 2,4"}},
      .run = run_profile};
}

}  // namespace dapple::exec_app
