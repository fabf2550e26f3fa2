#include <fmt/format.h>

#include <algorithm>
#include <ostream>
#include <string>
#include <vector>

#include "dapple/command_line/files.h"
#include "dapple/core/error.h"
#include "dapple/exec/measure/measure.h"
#include "dapple/exec/run/freed_memory.h"
#include "dapple/io/documents/documents.h"
#include "dapple/io/documents/specification.h"
#include "dapple/profile/doubts.h"
#include "dapple/report/show.h"
#include "dapple/report/table.h"
#include "exec_app/commands/commands.h"
#include "exec_app/commands/rank_process.h"
#include "exec_app/request/compute_device.h"

namespace dapple {
namespace {

constexpr const char* kProfileHelp =
    R"(dapple-exec profile: the times of a model's layers on this machine.

Usage: dapple-exec profile --spec MODEL [options]

Runs every layer forward and backward and writes a profile that dapple-plan can
plan from and dapple-exec can run. Layers that do the same on the same input
count as one. The memory that is needed is that of four of each at the largest
batch size, on each core. Ctrl-C ends it after the pass that it is at, with what
it has.

  --spec FILE            a specification (profiles/README.md), or a profile that
                         is to be measured anew; "-" is stdin
  -o, --output FILE      the profile, in place of a file of that name; "-" is
                         stdout, and then the table is on stderr
                                               (default: ./MODEL.profile.json)
  --batch-sizes N,N,...  samples at once, ascending, up to 100,000
                                                           (default: 1,2,4,8)
  --repeat N             passes over all layers, up to 10,000; their median
                         counts                                 (default: 15)
  --cores N              at once, each with passes of its own: for plans whose
                         devices are cores of this machine      (default: 1)
  --device KIND          cpu or cuda, the first GPU            (default: cpu)
  --precision KIND       of a GPU: fp32, bf16, fp16           (default: fp32)
  --kernels KIND         avx512, avx2, baseline or portable, the same as train's
                                     (default: the quickest that the CPU has)
  --device-name NAME     what topologies call it          (default: the kind)
  -v, --verbose          what is done, on stderr
  -h, --help             this

Example
  dapple-exec profile --spec profiles/mlp.json -o profile.json --batch-sizes 2,4

Exit code: 0 done, 2 usage, 3 bad input, 5 files, GPUs.
)";

std::vector<std::int64_t> batch_sizes_of(const std::string& text) {
  std::vector<std::int64_t> sizes;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    // The reader of options knows whole numbers and says what is wrong with others.
    const Options one({"--batch-sizes=" + part}, {{.name = "batch-sizes"}});
    constexpr std::int64_t kMostSamples = 100'000;
    const std::int64_t size = one.positive_integer("batch-sizes", kMostSamples).value_or(0);
    if (!sizes.empty() && size <= sizes.back()) {
      throw usage_error("--batch-sizes", fmt::format("expected ascending numbers, got {} after {}",
                                                     size, sizes.back()));
    }
    sizes.push_back(size);
    begin = end + 1;
  }
  return sizes;
}

MeasureOptions measure_options(const Options& options) {
  constexpr std::int64_t kMostRepeats = 10'000;
  constexpr std::int64_t kMostCores = 1'024;
  MeasureOptions measure;
  if (const auto sizes = options.text("batch-sizes")) measure.batch_sizes = batch_sizes_of(*sizes);
  if (const auto n = options.positive_integer("repeat", kMostRepeats)) measure.repeats = *n;
  if (const auto n = options.positive_integer("cores", kMostCores)) measure.cores = *n;
  const ComputeDevice device = compute_device(options);
  measure.on_gpu = device.kind == ComputeDevice::Kind::Cuda;
  measure.precision = device.precision;
  if (measure.on_gpu && options.has("cores")) {
    throw usage_error("--cores", "expected --device cpu beside it, got cuda");
  }
  measure.device = options.name("device-name").value_or(measure.on_gpu ? "cuda" : "cpu");
  return measure;
}

void report(const MeasuredModel& measured, std::ostream& out, const TextStyle& style) {
  Table table({{.header = "layer", .least = 8},
               {.header = "copies", .align = Align::Right},
               {.header = "batch", .align = Align::Right},
               {.header = "forward", .align = Align::Right},
               {.header = "input grad", .align = Align::Right},
               {.header = "weight grad", .align = Align::Right},
               {.header = "spread", .align = Align::Right},
               {.header = "stash", .align = Align::Right}});
  for (const MeasuredLayer& layer : measured.layers) {
    for (std::size_t i = 0; i < layer.measurements.size(); ++i) {
      const Measurement& figures = layer.measurements[i];
      table.add_row({{i == 0 ? layer.name : ""},
                     {i == 0 ? show_count(layer.copies) : ""},
                     {show_count(figures.batch_size)},
                     {show(figures.forward)},
                     {show(figures.input_gradient.value_or(Duration{}))},
                     {show(figures.weight_gradient.value_or(Duration{}))},
                     {show_percent(layer.spreads[i])},
                     {show(figures.stash)}});
    }
  }
  const std::string head =
      fmt::format("{}: {}", printable(measured.profile.name), printable(measured.profile.source));
  out << fill_lines(head, 0, style) << "\n\n" << table.text(0, style);
}

int run_profile(const Options& options, Console& console) {
  options.require_options_only("--spec FILE");
  if (is_rank()) {
    throw usage_error("", "expected no launcher: the times are of one process on one core");
  }
  const std::string path = options.required("spec", "a specification");
  MeasureOptions measure = measure_options(options);
  use_kernels_of(options);
  const Specification specification = read_specification(read_file(path), source_name(path));
  const std::string output =
      options.text("output").value_or(default_output(specification.profile, ".profile.json"));
  check_outputs({{"--output", output}}, {{"--spec", path}});
  keep_freed_memory();
  const SignalGuard interrupt(text_of_interruption(console, "the pass"));
  measure.should_stop = [&interrupt] { return interrupt.has_received(); };
  const MeasuredModel measured = measure_model(specification, source_name(path), measure);
  write_result(console, output, write_profile(measured.profile));
  const auto [stream, style] = console.words(output == "-");
  report(measured, stream, style);
  if (measured.passes < measure.repeats) {
    print_warning(console,
                  fmt::format("interrupted: the profile has the medians of {} of {} passes",
                              measured.passes, measure.repeats));
  }
  for (const std::string& doubt : doubts_about(measured.profile)) print_warning(console, doubt);
  if (output != "-") stream << "profile written to " << printable(output) << '\n';
  return kDone;
}

}  // namespace

Command profile_command() {
  return {.name = "profile",
          .help = kProfileHelp,
          .options = {{.name = "spec"},
                      {.name = "output", .letter = 'o'},
                      {.name = "batch-sizes"},
                      {.name = "repeat"},
                      {.name = "cores"},
                      {.name = "device"},
                      {.name = "precision"},
                      {.name = "kernels"},
                      {.name = "device-name"}},
          .run = run_profile};
}

}  // namespace dapple
