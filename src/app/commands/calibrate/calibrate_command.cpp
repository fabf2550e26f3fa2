#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <optional>
#include <ostream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "app/commands/calibrate/constants_fit.h"
#include "app/commands/calibrate/measured_operations.h"
#include "app/commands/calibrate/measured_runs.h"
#include "app/commands/calibrate/run_pricing.h"
#include "app/commands/commands.h"
#include "app/request/estimates.h"
#include "dapple/command_line/files.h"
#include "dapple/core/parallel.h"
#include "dapple/io/files/read_file.h"
#include "dapple/io/gpus/gpus_document.h"
#include "dapple/report/show.h"
#include "dapple/report/table.h"

namespace dapple::app {
namespace {

/// Constants whose effects differ by less than this cannot be told apart.
constexpr double kMostCondition = 1000;
/// The largest mean error that is written.
constexpr double kMostError = 1000;

struct CalibrateRequest {
  std::string runs;
  std::string gpu;
  std::optional<std::string> gpus;
  /// Tables of operations, to which the constants that follow are fitted; the others are fitted to
  /// the runs.
  std::vector<std::string> operations = {};
  std::vector<FittedConstant> constants_of_operations = {};
  std::vector<FittedConstant> constants;
  std::optional<std::string> name;
  std::optional<std::string> output;
  bool is_csv = false;
};

std::vector<FittedConstant> constants_in(const std::string& text) {
  std::vector<FittedConstant> constants;
  if (text == "none") return constants;
  for (const std::string& name : command_line::parts_of_list(text)) {
    const auto* const found =
        std::find_if(std::begin(kFittedConstants), std::end(kFittedConstants),
                     [&](FittedConstant some) { return to_string(some) == name; });
    if (found == std::end(kFittedConstants) ||
        std::find(constants.begin(), constants.end(), *found) != constants.end()) {
      throw command_line::usage_error(
          "--fit",
          fmt::format(
              "expected none, or different ones of matrix, attention, memory, launch_floor and "
              "collective_floor with commas between them, got \"{}\"",
              printable(text)));
    }
    constants.push_back(*found);
  }
  return constants;
}

/// Divides the constants between operations and runs. Throws Error(Usage) if operations tell
/// nothing of any.
void set_operations(const std::string& text, CalibrateRequest& request) {
  request.operations = command_line::parts_of_list(text);
  if (request.operations.empty()) {
    throw command_line::usage_error("--ops", "expected files with commas between them, got none");
  }
  const auto is_of_runs = [](FittedConstant constant) {
    return constant != FittedConstant::Matrix && constant != FittedConstant::Memory;
  };
  std::vector<FittedConstant>& all = request.constants;
  const auto others = std::stable_partition(all.begin(), all.end(), is_of_runs);
  request.constants_of_operations.assign(others, all.end());
  all.erase(others, all.end());
  if (request.constants_of_operations.empty()) {
    throw command_line::usage_error("--ops",
                                    "expected matrix or memory in --fit, as operations determine "
                                    "no other constants, got neither");
  }
}

CalibrateRequest calibrate_request(const command_line::Options& options) {
  if (options.positional().size() != 1) {
    throw command_line::usage_error("calibrate", fmt::format("expected one table of runs, got {}",
                                                             options.positional().size()));
  }
  const std::optional<std::string> gpu = options.text("gpu");
  if (!gpu) throw command_line::usage_error("--gpu", "expected the GPU of the runs, got none");
  CalibrateRequest request{.runs = options.positional().front(),
                           .gpu = *gpu,
                           .gpus = options.text("gpus"),
                           .constants = constants_in(options.text("fit").value_or("matrix,memory")),
                           .name = options.text("name"),
                           .output = options.text("output"),
                           .is_csv = options.has("csv")};
  if (const auto operations = options.text("ops")) set_operations(*operations, request);
  if (request.output && request.constants.empty() && request.operations.empty()) {
    throw command_line::usage_error("--output", "expected constants to fit, got --fit none");
  }
  if (request.name && !is_plain_name(*request.name)) {
    throw command_line::usage_error("--name",
                                    "expected 1 to 200 characters that can be printed, got others");
  }
  return request;
}

/// Throws if the runs or operations of a source do not determine the constants.
void require_certainty(const FitCertainty& certainty, const std::vector<FittedConstant>& constants,
                       const std::string& source, const char* what) {
  const auto refuse = [&](const std::string& message) {
    throw Error{ErrorKind::BadInput, source, {{"", message}}};
  };
  for (std::size_t c = 0; c < constants.size(); ++c) {
    if (certainty.matters[c]) continue;
    refuse(fmt::format("expected {} that {} changes, got none: leave it out of --fit", what,
                       to_string(constants[c])));
  }
  if (certainty.condition <= kMostCondition) return;
  refuse(
      fmt::format("expected {} that tell the fitted constants apart, got a condition number of "
                  "{:.3g}, above {:.0f}: leave one out of --fit",
                  what, certainty.condition, kMostCondition));
}

/// What operations tell of a GPU.
struct OperationsFit {
  std::vector<MeasuredOperation> operations;
  estimate::Calibration calibration;
  FitCertainty certainty;
  /// log(estimated / measured) of every operation.
  std::vector<double> errors;
};

/// Fits the constants that operations tell of, starting at a calibration. Throws Error(BadInput)
/// for tables that are none, and where they do not determine a constant.
OperationsFit fit_operations(const CalibrateRequest& request, const estimate::Gpu& gpu,
                             const estimate::Calibration& start) {
  OperationsFit fit;
  for (const std::string& path : request.operations) {
    const std::vector<MeasuredOperation> more =
        read_operations(io::read_file(path), command_line::source_name(path));
    fit.operations.insert(fit.operations.end(), more.begin(), more.end());
  }
  const estimate::Precision precision =
      gpu.peak(estimate::Precision::Fp16) ? estimate::Precision::Fp16 : estimate::Precision::Bf16;
  if (!gpu.peak(precision)) {
    throw command_line::usage_error(
        "--ops", fmt::format("expected a GPU with a peak in fp16 or bf16, got {}", gpu.name));
  }
  const auto errors = [&](const estimate::Calibration& calibration) {
    std::vector<double> found;
    for (const MeasuredOperation& measured : fit.operations) {
      const Duration time =
          estimate::operation_time(measured.operation, gpu, calibration, precision);
      found.push_back(
          std::log(static_cast<double>(time.ns) / static_cast<double>(measured.time.ns)));
    }
    return found;
  };
  const std::vector<FittedConstant>& constants = request.constants_of_operations;
  fit.calibration =
      fitted(start, constants, errors, std::vector<bool>(fit.operations.size(), true));
  fit.certainty = certainty_of(fit.calibration, constants, errors);
  require_certainty(fit.certainty, constants, command_line::source_name(request.operations.front()),
                    "operations");
  fit.errors = errors(fit.calibration);
  return fit;
}

/// The figures of a run.
struct RunFigures {
  RunPrice price;
  /// The iteration by a fit to the runs of other groups.
  std::optional<Duration> left_out;
};

double relative_error(Duration estimated, Duration measured) {
  return static_cast<double>(estimated.ns) / static_cast<double>(measured.ns) - 1;
}

/// Fits and prices the runs of a table.
class Calibrator {
 public:
  Calibrator(const RunPricing& pricing, const CalibrateRequest& request,
             estimate::Calibration start)
      : pricing_(pricing), request_(request), calibration_(std::move(start)) {}

  void fit();
  void price();

  const estimate::Calibration& calibration() const { return calibration_; }
  const std::vector<RunFigures>& figures() const { return figures_; }
  const std::optional<FitCertainty>& certainty() const { return certainty_; }

 private:
  std::vector<double> errors_of(const estimate::Calibration& calibration) const;
  void leave_groups_out();

  const RunPricing& pricing_;
  const CalibrateRequest& request_;
  estimate::Calibration calibration_;
  std::optional<FitCertainty> certainty_;
  std::vector<RunFigures> figures_;
};

std::vector<double> Calibrator::errors_of(const estimate::Calibration& calibration) const {
  const std::vector<RunPrice> prices = pricing_.prices(calibration);
  std::vector<double> errors;
  for (std::size_t i = 0; i < prices.size(); ++i) {
    errors.push_back(std::log(static_cast<double>(prices[i].iteration.ns) /
                              static_cast<double>(pricing_.runs()[i].iteration.ns)));
  }
  return errors;
}

void Calibrator::leave_groups_out() {
  std::map<std::string, std::vector<std::size_t>> groups;
  for (std::size_t i = 0; i < pricing_.runs().size(); ++i) {
    groups[pricing_.runs()[i].group].push_back(i);
  }
  if (groups.size() < 2) return;
  std::vector<std::vector<std::size_t>> left_out;
  for (auto& [name, positions] : groups) left_out.push_back(std::move(positions));
  const auto errors = [&](const estimate::Calibration& some) { return errors_of(some); };
  constexpr int kThreads = 2;
  parallel_for(left_out.size(), kThreads, [&](std::size_t g) {
    std::vector<bool> counts(pricing_.runs().size(), true);
    for (const std::size_t position : left_out[g]) counts[position] = false;
    const estimate::Calibration without = fitted(calibration_, request_.constants, errors, counts);
    const std::vector<RunPrice> prices = pricing_.prices(without);
    for (const std::size_t position : left_out[g]) {
      figures_[position].left_out = prices[position].iteration;
    }
  });
}

void Calibrator::fit() {
  const std::vector<FittedConstant>& constants = request_.constants;
  if (pricing_.runs().size() < constants.size()) {
    throw Error{ErrorKind::BadInput,
                command_line::source_name(request_.runs),
                {{"", fmt::format("expected at least as many runs as constants, {}, got {}",
                                  constants.size(), pricing_.runs().size())}}};
  }
  const auto errors = [&](const estimate::Calibration& some) { return errors_of(some); };
  const std::vector<bool> all(pricing_.runs().size(), true);
  calibration_ = fitted(calibration_, constants, errors, all);
  certainty_ = certainty_of(calibration_, constants, errors);
  require_certainty(*certainty_, constants, command_line::source_name(request_.runs), "runs");
}

void Calibrator::price() {
  for (const RunPrice& price : pricing_.prices(calibration_))
    figures_.push_back({.price = price, .left_out = {}});
  if (!request_.constants.empty()) leave_groups_out();
}

/// Sums over runs.
struct ErrorSums {
  double mean = 0;
  double median = 0;
  double bias = 0;
};

ErrorSums sums_of(std::vector<double> errors) {
  ErrorSums sums;
  for (const double error : errors) {
    sums.mean += std::abs(error) / static_cast<double>(errors.size());
    sums.bias += error / static_cast<double>(errors.size());
  }
  for (double& error : errors) error = std::abs(error);
  std::sort(errors.begin(), errors.end());
  sums.median = (errors[(errors.size() - 1) / 2] + errors[errors.size() / 2]) / 2;
  return sums;
}

std::string with_count(std::size_t count, const char* what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

struct Results {
  ErrorSums all;
  std::optional<ErrorSums> left_out;
  std::size_t groups = 0;
};

Results results_of(const Calibrator& calibrator, const std::vector<MeasuredRun>& runs) {
  std::vector<double> errors;
  std::vector<double> left_out;
  std::map<std::string, int> groups;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const RunFigures& figures = calibrator.figures()[i];
    errors.push_back(relative_error(figures.price.iteration, runs[i].iteration));
    if (figures.left_out) left_out.push_back(relative_error(*figures.left_out, runs[i].iteration));
    ++groups[runs[i].group];
  }
  Results results{.all = sums_of(std::move(errors)), .left_out = {}, .groups = groups.size()};
  if (!left_out.empty()) results.left_out = sums_of(std::move(left_out));
  return results;
}

/// Returns a name as a CSV cell that no spreadsheet takes for a formula, with '_' in place of all
/// characters that have a meaning there.
std::string cell_of(const std::string& name) {
  std::string cell = name;
  for (char& c : cell) {
    const bool is_plain = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' ||
                          c == '-' || c == '_' || c == '/' || c == ' ';
    if (!is_plain) c = '_';
  }
  if (!cell.empty() && cell.front() == '-') cell.front() = '_';
  return cell;
}

std::string csv_of(const Calibrator& calibrator, const std::vector<MeasuredRun>& runs) {
  std::string text =
      "id,group,measured_s,estimated_s,error,left_out_s,memory_bytes,estimated_bytes\n";
  const auto seconds = [](Duration time) {
    return fmt::format("{:.9f}", static_cast<double>(time.ns) / kNanosecondsPerSecond);
  };
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const RunFigures& figures = calibrator.figures()[i];
    text += fmt::format(
        "{},{},{},{},{:.6f},{},{},{}\n", cell_of(runs[i].id), cell_of(runs[i].group),
        seconds(runs[i].iteration), seconds(figures.price.iteration),
        relative_error(figures.price.iteration, runs[i].iteration),
        figures.left_out ? seconds(*figures.left_out) : "",
        runs[i].memory ? fmt::format("{}", runs[i].memory->count) : "", figures.price.memory.count);
  }
  return text;
}

std::string percent(double share) {
  return fmt::format("{:.1f} %", 100 * share);
}

std::string error_line(const char* what, const ErrorSums& sums) {
  return fmt::format("  {:<10} {} off on average, median {}, bias {}{}\n", what, percent(sums.mean),
                     percent(sums.median), sums.bias < 0 ? "-" : "+", percent(std::abs(sums.bias)));
}

/// Says which run or operation changes a constant most.
std::string pin_line(const estimate::Calibration& calibration, FittedConstant constant,
                     const std::string& name) {
  return fmt::format("  {} changes {} most{}\n", to_string(constant), printable(name),
                     is_at_limit(calibration, constant) ? "; it is at its limit" : "");
}

void write_operations(const OperationsFit& fit, const CalibrateRequest& request,
                      std::ostream& words) {
  std::vector<double> errors = fit.errors;
  for (double& error : errors) error = std::exp(error) - 1;
  words << with_count(fit.operations.size(), "operation") << '\n'
        << error_line("fitted", sums_of(std::move(errors)));
  words << fmt::format("  condition number {:.3g} of the constants\n", fit.certainty.condition);
  for (std::size_t c = 0; c < request.constants_of_operations.size(); ++c) {
    words << pin_line(fit.calibration, request.constants_of_operations[c],
                      fit.operations[fit.certainty.pinned_by[c]].name);
  }
}

void write_results(const Calibrator& calibrator, const std::vector<MeasuredRun>& runs,
                   const CalibrateRequest& request, const Results& results, std::ostream& words) {
  words << fmt::format("{} in {}\n", with_count(runs.size(), "run"),
                       with_count(results.groups, "group"));
  words << error_line(request.constants.empty() ? "estimated" : "fitted", results.all);
  if (results.left_out) {
    words << error_line("left out", *results.left_out);
  } else if (!request.constants.empty()) {
    words
        << "  no group can be left out: runs of a second group would tell how far off others are\n";
  }
  const estimate::Calibration& calibration = calibrator.calibration();
  const auto fraction = [](Factor factor) {
    return percent(static_cast<double>(factor.billionths) / static_cast<double>(kOne.billionths));
  };
  words << fmt::format(
      "  matrix {} of the peak, attention {}, memory {}, launch floor {}, collective floor {}\n",
      fraction(calibration.matrix), fraction(calibration.attention), fraction(calibration.memory),
      report::show(calibration.launch_floor), report::show(calibration.collective_floor));
  if (!calibrator.certainty()) return;
  words << fmt::format(
      "  condition number {:.3g} of the constants (1 if each changes other runs)\n",
      calibrator.certainty()->condition);
  for (std::size_t c = 0; c < request.constants.size(); ++c) {
    words << pin_line(calibration, request.constants[c],
                      runs[calibrator.certainty()->pinned_by[c]].id);
  }
}

/// Returns all files that are read, so that none is written over.
std::vector<command_line::NamedPath> inputs_of(const CalibrateRequest& request,
                                               const std::vector<MeasuredRun>& runs) {
  std::vector<command_line::NamedPath> inputs = command_line::numbered_paths({request.runs});
  if (request.gpus) inputs.push_back({"--gpus", *request.gpus});
  for (const std::string& path : request.operations) inputs.push_back({"--ops", path});
  std::set<std::string> named;
  for (const MeasuredRun& run : runs) named.insert({run.configuration, run.topology});
  for (const std::string& path : named) inputs.push_back({"a file of the table", path});
  return inputs;
}

/// Puts the calibration into the table, as that of the GPU.
void set_calibration(estimate::GpuTable& table, const std::string& gpu_name,
                     estimate::Calibration calibration) {
  const auto same = std::find_if(
      table.calibrations.begin(), table.calibrations.end(),
      [&](const estimate::Calibration& some) { return some.name == calibration.name; });
  for (estimate::Gpu& gpu : table.gpus) {
    if (gpu.name == gpu_name) gpu.calibration = calibration.name;
  }
  if (same != table.calibrations.end()) {
    *same = std::move(calibration);
  } else {
    table.calibrations.push_back(std::move(calibration));
  }
}

/// Says so if runs are estimated with constants that were fitted to them before.
void note_runs_seen(const estimate::Calibration& start, const CalibrateRequest& request,
                    const std::vector<MeasuredRun>& runs, std::ostream& words) {
  const std::set<std::string> seen(start.fitted_runs.begin(), start.fitted_runs.end());
  const auto count = std::count_if(runs.begin(), runs.end(),
                                   [&](const MeasuredRun& run) { return seen.count(run.id) > 0; });
  std::set<std::string> kept(start.fitted_constants.begin(), start.fitted_constants.end());
  for (const auto& constants : {request.constants, request.constants_of_operations}) {
    for (const FittedConstant constant : constants) kept.erase(to_string(constant));
  }
  if (count == 0 || (kept.empty() && !start.fitted_constants.empty())) return;
  words << fmt::format(
      "  constants that are kept were fitted to {} of these runs ({}): their errors are too "
      "small\n",
      count, printable(start.name));
}

/// Returns the calibration with its name, and with what it was fitted to.
estimate::Calibration named(estimate::Calibration made, const CalibrateRequest& request,
                            const estimate::Gpu& gpu,
                            const std::optional<OperationsFit>& operations,
                            const std::vector<MeasuredRun>& runs, const Results& results) {
  made.name = request.name.value_or(gpu.name + "-fitted");
  made.gpu = gpu.name;
  const bool is_of_runs = !request.constants.empty();
  const std::string of_runs = fmt::format("{} of {}", with_count(runs.size(), "run"),
                                          printable(command_line::source_name(request.runs)));
  made.source = fmt::format("fitted to {}", of_runs);
  if (operations) {
    made.source = fmt::format("fitted to {} and {} {}",
                              with_count(operations->operations.size(), "operation"),
                              is_of_runs ? "to" : "tried on", of_runs);
  }
  made.fitted_runs.clear();
  if (is_of_runs) {
    for (const MeasuredRun& run : runs) made.fitted_runs.push_back(run.id);
  }
  made.fitted_constants.clear();
  for (const auto& constants : {request.constants, request.constants_of_operations}) {
    for (const FittedConstant constant : constants) {
      made.fitted_constants.push_back(to_string(constant));
    }
  }
  // Runs to which nothing was fitted are as good as left out.
  const std::optional<ErrorSums> unseen = is_of_runs ? results.left_out : results.all;
  made.left_out_error = {};
  if (unseen) {
    made.left_out_error = Factor{
        std::llround(std::min(unseen->mean, kMostError) * static_cast<double>(kOne.billionths))};
  }
  return made;
}

int run_calibrate(const command_line::Options& options, command_line::Console& console) {
  const CalibrateRequest request = calibrate_request(options);
  std::vector<MeasuredRun> runs = read_runs(io::read_file(request.runs), request.runs);
  if (request.output) check_outputs({{"--output", *request.output}}, inputs_of(request, runs));
  estimate::GpuTable table = known_gpus(request.gpus);
  const estimate::Gpu* const gpu = table.find(request.gpu);
  if (gpu == nullptr) {
    throw command_line::usage_error(
        "--gpu",
        fmt::format("expected a GPU that \"dapple-plan estimate\" or --gpus FILE knows, got {}",
                    printable(request.gpu)));
  }
  const RunPricing pricing(std::move(runs), *gpu, table);
  std::optional<OperationsFit> operations;
  if (!request.operations.empty()) {
    operations = fit_operations(request, *gpu, table.calibration_of(*gpu));
  }
  Calibrator calibrator(pricing, request,
                        operations ? operations->calibration : table.calibration_of(*gpu));
  if (!request.constants.empty()) calibrator.fit();
  calibrator.price();
  const Results results = results_of(calibrator, pricing.runs());
  if (request.is_csv) console.documents << csv_of(calibrator, pricing.runs());
  std::ostream& words = console.words(request.is_csv || request.output == "-").stream;
  if (operations) write_operations(*operations, request, words);
  write_results(calibrator, pricing.runs(), request, results, words);
  note_runs_seen(table.calibration_of(*gpu), request, pricing.runs(), words);
  if (!request.output) return command_line::kDone;
  set_calibration(
      table, std::string(gpu->name),
      named(calibrator.calibration(), request, *gpu, operations, pricing.runs(), results));
  const std::string document = io::write_gpus(table);
  io::read_gpus(document, "the calibration");  // throws if it could not be read again
  command_line::write_result(console, *request.output, document);
  if (*request.output != "-") words << "written to " << printable(*request.output) << '\n';
  return command_line::kDone;
}

std::vector<command_line::OptionSection> calibrate_sections() {
  return {
      {"",
       {{.name = "gpu", .value = "NAME", .text = "State the GPU on which the runs were measured."},
        {.name = "fit",
         .value = "CONSTANTS",
         .text = "Fit matrix, attention, memory, launch_floor and collective_floor, or none.",
         .default_value = "matrix,memory",
         .details = "With none the runs are only estimated by the GPU's calibration."},
        {.name = "ops",
         .value = "FILES",
         .text = "Fit matrix and memory to the operations of FILES, and not to the runs.",
         .details = "They are tables of measured operations as Vidur's profiles of linear "
                    "layers, with commas between them; those over 1,024 tokens or more count."},
        {.name = "gpus",
         .value = "FILE",
         .kind = command_line::ValueKind::File,
         .text = "Read GPUs from FILE, which is like topologies/gpus.json."},
        {.name = "name",
         .value = "NAME",
         .text = "Call the calibration NAME.",
         .default_value = "GPU-fitted"},
        command_line::output_option("Write the figures of GPUs with the calibration.", ""),
        {.name = "csv", .text = "Print a row for each run as CSV."}}}};
}

}  // namespace

command_line::Command calibrate_command() {
  std::string columns;
  for (const std::string& column : run_columns()) {
    columns += (columns.empty() ? "" : ", ") + column;
  }
  return {
      .description =
          {.name = "calibrate",
           .summary = "fit a calibration of a GPU to measured training runs",
           .usage = {"dapple-plan calibrate RUNS.csv --gpu NAME [-o FILE] [options]"},
           .about = "RUNS.csv has a row for each run: its configuration, topology and layout, and "
                    "the time of an iteration.",
           .details = {"Columns are " + columns +
                       ", and words of layouts; files are named relative to the table. How far "
                       "off the runs of each group are by a fit to those of all others is "
                       "printed and written (docs/estimate.md)."},
           .takes_files = true,
           .options = calibrate_sections(),
           .examples =
               {"dapple-plan calibrate tests/validation/runs/foundry-h100.csv --gpu H100 \\",
                "    --fit matrix,attention,memory -o gpus.json"}},
      .run = run_calibrate};
}

}  // namespace dapple::app
