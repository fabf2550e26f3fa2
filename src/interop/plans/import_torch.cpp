// Imports plans from torchtitan's options, which state the modules of each stage, and from a CSV
// schedule of PyTorch's pipelining runtime, which has a row of cells like "2F0" per pipeline rank.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dapple/core/error.h"
#include "dapple/io/json/json_reader.h"
#include "interop/graphs/counted_blocks.h"
#include "interop/graphs/torchtitan_modules.h"
#include "interop/plans/plan_formats.h"
#include "interop/plans/plan_sketch.h"
#include "interop/text/foreign_text.h"
#include "interop/text/shell_words.h"

namespace dapple::interop {
namespace {

constexpr std::string_view kModules = "--parallelism.module_fqns_per_model_part";
constexpr std::string_view kDegree = "--parallelism.pipeline_parallel_degree";
constexpr std::string_view kReplicas = "--parallelism.data_parallel_replicate_degree";
constexpr std::string_view kShards = "--parallelism.data_parallel_shard_degree";
constexpr std::string_view kSamples = "--parallelism.pipeline_parallel_microbatch_size";
constexpr std::string_view kSchedule = "--parallelism.pipeline_parallel_schedule";
constexpr std::string_view kCsv = "--parallelism.pipeline_parallel_schedule_csv";
constexpr std::string_view kTensor = "--parallelism.tensor_parallel_degree";
constexpr std::string_view kRecompute = "--activation_checkpoint.mode";
constexpr std::string_view kGlobalBatch = "--training.global_batch_size";
constexpr std::string_view kLocalBatch = "--training.local_batch_size";

/// The stage and the micro-batch of an action, 2 and 0 for "2F0".
struct Cell {
  std::int32_t stage = 0;
  std::int32_t micro_batch = 0;
};

/// Parses a cell like "2F0"; returns nothing for any other text.
std::optional<Cell> parse_cell(std::string_view cell) {
  const std::size_t letter = cell.find_first_of("FBIW");
  if (letter == std::string_view::npos) return std::nullopt;
  const auto stage = parse_count(cell.substr(0, letter));
  const auto micro_batch = parse_count(cell.substr(letter + 1));
  if (!stage || !micro_batch) return std::nullopt;
  return Cell{*stage, *micro_batch};
}

bool is_options(const ForeignPlanFile& file) {
  return is_torchtitan_options(file.text);
}

bool is_schedule(const ForeignPlanFile& file) {
  return !is_torchtitan_options(file.text);
}

class TorchImporter {
 public:
  TorchImporter(const std::vector<ForeignPlanFile>& files, const PlanGround& ground,
                const ForeignPlanOptions& options)
      : ground_(ground),
        options_(options),
        roles_(files_by_role(
            files, {{"torchtitan's options, which say the modules of each stage", is_options, true},
                    {"a CSV schedule", is_schedule}})),
        script_(roles_[0]->text, roles_[0]->name),
        modules_(ground.profile) {}
  ImportedPlan run();

 private:
  std::vector<LayerRange> read_stages() const;
  LayerRange read_stage(const io::Field& field, std::int32_t begin) const;
  std::size_t read_further_parts(const io::ArrayReader& modules, std::size_t first,
                                 const std::vector<std::string>& parts) const;
  std::size_t read_groups(std::size_t stages) const;
  void read_order(PlanSketch& sketch, std::size_t groups) const;
  bool read_recomputation(std::vector<std::string>& warnings) const;
  void place_stages(PlanSketch& sketch, std::size_t groups) const;

  const PlanGround& ground_;
  const ForeignPlanOptions& options_;
  // The file with the options, and that with the schedule or null.
  std::vector<const ForeignPlanFile*> roles_;
  ShellOptions script_;
  TorchtitanModules modules_;
};

/// Reads the layers of a stage, which must be consecutive. Gaps between stages are checked later.
LayerRange TorchImporter::read_stage(const io::Field& field, std::int32_t begin) const {
  const std::vector<Layer>& layers = ground_.profile.layers;
  const io::ArrayReader modules(field, "an array of modules' names");
  LayerRange range{begin, begin};
  for (std::size_t i = 0; i < modules.size(); ++i) {
    const std::optional<std::string> name = io::read_text(modules.at(i));
    if (!name) continue;
    const std::optional<LayerIndex> found = modules_.layer(*name);
    if (!found) {
      modules.at(i).add(fmt::format("expected a layer of the profile, got \"{}\"", shown(*name)));
      continue;
    }
    const std::int32_t position = found->value;
    if (i == 0) {
      range = {position, position + 1};
    } else if (position == range.end) {
      ++range.end;
    } else {
      const bool is_past = static_cast<std::size_t>(range.end) >= layers.size();
      modules.at(i).add(fmt::format(
          "expected {} behind \"{}\", got \"{}\"",
          is_past ? "nothing"
                  : "\"" + shown(layers[static_cast<std::size_t>(range.end)].name) + "\"",
          shown(layers[static_cast<std::size_t>(range.end - 1)].name), shown(*name)));
      return range;
    }
    const std::vector<std::string> parts = modules_.names(*found);
    if (*name == parts.front()) i += read_further_parts(modules, i, parts);
  }
  return range;
}

/// Checks that all modules of a layer follow its first one, which is at `first`, and returns their
/// number.
std::size_t TorchImporter::read_further_parts(const io::ArrayReader& modules, std::size_t first,
                                              const std::vector<std::string>& parts) const {
  for (std::size_t part = 1; part < parts.size(); ++part) {
    const std::size_t i = first + part;
    const auto name = i < modules.size() ? io::read_text(modules.at(i)) : std::nullopt;
    if (name == parts[part]) continue;
    modules.at(std::min(i, modules.size() - 1))
        .add(fmt::format("expected \"{}\" behind \"{}\", got {}", parts[part], parts[part - 1],
                         name ? '"' + shown(*name) + '"' : std::string("nothing")));
    return part - 1;
  }
  return parts.size() - 1;
}

std::vector<LayerRange> TorchImporter::read_stages() const {
  const std::optional<ShellOption> modules = script_.value(kModules);
  if (!modules) {
    script_.refuse(
        0, fmt::format("expected {} as an option of its own, got it elsewhere only", kModules));
  }
  const std::string source =
      fmt::format("{}: line {}: {}", roles_[0]->name, modules->line, kModules);
  return io::read_document<std::vector<LayerRange>>(
      modules->value, source, [&](const io::Field& field) {
        const io::ArrayReader array(field, "an array with the modules of each stage");
        std::vector<LayerRange> stages;
        for (std::size_t s = 0; s < array.size(); ++s) {
          stages.push_back(read_stage(array.at(s), stages.empty() ? 0 : stages.back().end));
        }
        if (array.valid() && stages.empty()) field.add("expected one stage or more, got none");
        return stages;
      });
}

std::size_t TorchImporter::read_groups(std::size_t stages) const {
  const auto told = script_.count(kDegree);
  if (!told) {
    script_.refuse(0, fmt::format("expected {}, the number of pipeline ranks, got none", kDegree));
  }
  const auto groups = static_cast<std::size_t>(*told);
  if (stages % groups == 0) return groups;
  script_.refuse(
      script_.line_of(kDegree),
      fmt::format("{}: expected a divisor of the {} stages, got {}", kDegree, stages, *told));
}

/// Assigns stages to pipeline ranks: a stage is on the rank whose row of the schedule contains it.
void TorchImporter::place_stages(PlanSketch& sketch, std::size_t groups) const {
  const ForeignPlanFile& file = *roles_[1];
  std::map<std::int32_t, std::size_t> row_of;
  std::int64_t most = -1;
  std::size_t row = 0;
  std::int64_t number = 0;
  std::vector<LineFault> faults;
  for (const std::string_view line : split(file.text, "\n")) {
    ++number;
    if (trim(line).empty()) continue;
    for (const std::string_view cell : split(trim(line), ",")) {
      const std::optional<Cell> action = parse_cell(trim(cell));
      if (!action) continue;  // empty, or refused with the whole order
      most = std::max<std::int64_t>(most, action->micro_batch);
      const bool is_here = row_of.emplace(action->stage, row).first->second == row;
      if (!is_here) {
        faults.push_back(
            {number, fmt::format("expected each stage on one rank, got stage {} on ranks {} and {}",
                                 action->stage, row_of[action->stage], row)});
        break;
      }
    }
    ++row;
  }
  if (row != groups) {
    faults.push_back(
        {0, fmt::format("expected {} rows, one for each pipeline rank, got {}", groups, row)});
  }
  for (std::size_t s = 0; s < sketch.stages.size() && faults.empty(); ++s) {
    const auto found = row_of.find(static_cast<std::int32_t>(s));
    if (found == row_of.end()) {
      faults.push_back({0, fmt::format("expected actions of stage {}, got none", s)});
    } else {
      sketch.group_of.push_back(found->second);
    }
  }
  if (faults.empty() && row_of.size() > sketch.stages.size()) {
    faults.push_back({0, fmt::format("expected stages 0 to {}, got stage {} too",
                                     sketch.stages.size() - 1, row_of.rbegin()->first)});
  }
  throw_faults(std::move(faults), file.name);
  sketch.num_micro_batches = most + 1;
}

void TorchImporter::read_order(PlanSketch& sketch, std::size_t groups) const {
  if (roles_[1] != nullptr) {
    sketch.family = ScheduleFamily::Given;
    sketch.order = roles_[1];
    place_stages(sketch, groups);
    return;
  }
  const std::optional<ShellOption> csv = script_.value(kCsv);
  const std::optional<ShellOption> schedule = script_.value(kSchedule);
  if (!csv && !schedule && sketch.stages.size() == 1) return;
  const bool interleaves = sketch.stages.size() > groups;
  if (!csv && schedule && schedule->value == "1F1B" && !interleaves) return;
  if (!csv && schedule && schedule->value == "GPipe" && !interleaves) {
    sketch.family = ScheduleFamily::GPipe;
  } else if (!csv && schedule && schedule->value == "Interleaved1F1B" && interleaves) {
    sketch.family = ScheduleFamily::Interleaved;
  } else {
    script_.refuse(csv ? csv->line : 0,
                   fmt::format("expected the order as a CSV file next to this one, or {} of 1F1B, "
                               "GPipe or Interleaved1F1B, that fits the number of stages, got {}",
                               kSchedule,
                               csv        ? "the file's name alone"
                               : schedule ? "'" + shown(schedule->value) + "'"
                                          : "neither"));
  }
}

/// Returns whether stages recompute. Selective recomputation that no layer has a variant for is
/// ignored with a warning.
bool TorchImporter::read_recomputation(std::vector<std::string>& warnings) const {
  const std::optional<ShellOption> mode = script_.value(kRecompute);
  if (!mode || mode->value == "none" || !ground_.recomputed_parts.none()) return false;
  if (mode->value == "full") {
    warnings.push_back(
        recomputed_as_a_whole("torchtitan", "the input of every block that it recomputes"));
    return true;
  }
  if (mode->value != "selective") {
    script_.refuse(mode->line, fmt::format("{}: expected none, selective or full, got '{}'",
                                           kRecompute, shown(mode->value)));
  }
  const std::optional<ShellOption> selection = script_.value(kTorchtitanSelection);
  warnings.emplace_back(
      !selection || selection->value == "op"
          ? "recomputation of single operations is left out: times and memory are as if all were "
            "kept"
          : "recomputation of layers is left out, as no layer has a variant that recomputes all: "
            "times and memory are as if all were kept");
  return false;
}

ImportedPlan TorchImporter::run() {
  check_degree(script_.count(kTensor).value_or(1), ground_.profile, options_, roles_[0]->name);
  PlanSketch sketch;
  sketch.source = roles_[0]->name;
  sketch.stages = read_stages();
  const std::size_t groups = read_groups(sketch.stages.size());
  sketch.rank_devices = devices_in_comments(roles_[0]->text);
  const std::int64_t ranks = ground_.profile.group.replicas;
  std::optional<std::int64_t> told = script_.count(kReplicas);
  if (const auto shards = script_.count(kShards)) told = told.value_or(1) * *shards / ranks;
  const std::int64_t replicas = replicas_of_all(told, groups, ground_, options_, roles_[0]->name);
  sketch.ranks = even_ranks(groups, replicas);
  sketch.global_batch = script_.count(kGlobalBatch);
  std::optional<std::int64_t> samples = script_.count(kSamples);
  // Without a pipeline a local batch is what a rank takes at a time.
  if (!samples && groups == 1) samples = script_.count(kLocalBatch);
  if (samples) sketch.micro_batch = *samples * replicas * ranks;
  read_order(sketch, groups);
  std::vector<std::string> warnings;
  sketch.recompute = read_recomputation(warnings);
  Plan plan = plan_of(sketch, ground_, options_);
  plan.parallelism = ground_.profile.parallelism;
  if (auto fault = count_fault("torchtitan", ground_.profile, plan)) {
    throw Error{ErrorKind::BadInput, roles_[0]->name, in_words({*std::move(fault)})};
  }
  for (std::string& warning : warn_of_accumulated_shards(plan))
    warnings.push_back(std::move(warning));
  return {.profile = ground_.profile, .plan = std::move(plan), .warnings = std::move(warnings)};
}

}  // namespace

std::vector<std::string> warn_of_accumulated_shards(const Plan& plan) {
  const Parallelism& form = plan.parallelism;
  const bool keeps =
      form.shards_optimizer && (form.copies() > 1 || plan.stages.front().devices.size() > 1);
  if (!keeps || plan.stages.size() > 1 || plan.num_micro_batches == 1) return {};
  return {
      "without a pipeline, torchtitan gathers parameters and scatters gradients for every "
      "micro-batch and not once an iteration: it takes longer than predicted"};
}

bool is_torchtitan_options(std::string_view text) {
  return text.find(kModules) != std::string_view::npos;
}

bool is_torch_schedule(std::string_view text) {
  for (const std::string_view line : split(text, "\n")) {
    for (const std::string_view cell : split(trim(line), ",")) {
      if (!trim(cell).empty()) return parse_cell(trim(cell)).has_value();
    }
  }
  return false;
}

ImportedPlan import_torch_plan(const std::vector<ForeignPlanFile>& files, const PlanGround& ground,
                               const ForeignPlanOptions& options) {
  return TorchImporter(files, ground, options).run();
}

}  // namespace dapple::interop
