// Imports plans of Megatron-LM from its options with a pipeline layout: E stands for the embedding,
// t for a transformer block, L for everything after the last block, | separates stages, and "x*n"
// and "(...)*n" are repetitions. With P pipeline ranks, stage i is on rank i mod P.

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "dapple/core/error.h"
#include "dapple/profile/limits.h"
#include "dapple/profile/variants.h"
#include "interop/graphs/transformer_blocks.h"
#include "interop/plans/plan_formats.h"
#include "interop/plans/plan_sketch.h"
#include "interop/text/foreign_text.h"
#include "interop/text/shell_words.h"

namespace dapple::interop {
namespace {

constexpr std::string_view kLayoutOption = "--pipeline-model-parallel-layout";

/// Expands a layout, so that it has no blanks, commas, groups or repetitions.
class LayoutExpander {
 public:
  LayoutExpander(std::string_view text, const ShellOptions& script, std::int64_t line)
      : text_(text), script_(script), line_(line) {}

  std::string run() {
    std::string letters = expand(0);
    if (position_ < text_.size()) refuse("expected no ) without its (, got one");
    return letters;
  }

 private:
  [[noreturn]] void refuse(const std::string& message) const {
    script_.refuse(line_, fmt::format("{}: {} in '{}'", kLayoutOption, message, shown(text_)));
  }
  std::string expand(int depth);
  std::string repeated(std::string item);

  std::string_view text_;
  const ShellOptions& script_;
  std::int64_t line_;
  std::size_t position_ = 0;
};

/// Returns the item repeated as often as a following "*n" says, which is consumed.
std::string LayoutExpander::repeated(std::string item) {
  if (position_ >= text_.size() || text_[position_] != '*') return item;
  const std::size_t begin = ++position_;
  while (position_ < text_.size() && text_[position_] >= '0' && text_[position_] <= '9') {
    ++position_;
  }
  const auto count = parse_count(text_.substr(begin, position_ - begin));
  if (!count || *count < 1) refuse("expected a number from 1 on behind *, got none");
  if (item.empty()) return item;
  if (static_cast<std::size_t>(*count) > kMaxLayers / item.size()) {
    refuse(fmt::format("expected at most {} layers, got more", kMaxLayers));
  }
  std::string result;
  for (std::int32_t i = 0; i < *count; ++i) result += item;
  return result;
}

std::string LayoutExpander::expand(int depth) {
  constexpr int kDeepest = 20;
  if (depth > kDeepest)
    refuse(fmt::format("expected at most {} groups inside each other", kDeepest));
  std::string letters;
  while (position_ < text_.size() && text_[position_] != ')') {
    const char c = text_[position_++];
    if (c == ',' || c == ' ') continue;
    if (c == '(') {
      std::string group = expand(depth + 1);
      if (position_ >= text_.size()) refuse("expected a ) for every (, got none");
      ++position_;
      letters += repeated(std::move(group));
    } else if (std::string_view("EtL|").find(c) != std::string_view::npos) {
      letters += repeated(std::string(1, c));
    } else if (c == 'm') {
      refuse(
          "expected E, t, L and |, got m: a layer that predicts several tokens is none of a "
          "profile's");
    } else {
      refuse(fmt::format("expected E, t, L and |, got '{}'", shown(std::string(1, c))));
    }
    if (letters.size() > kMaxLayers) {
      refuse(fmt::format("expected at most {} layers, got more", kMaxLayers));
    }
  }
  return letters;
}

class MegatronImporter {
 public:
  MegatronImporter(const ForeignPlanFile& file, const PlanGround& ground,
                   const ForeignPlanOptions& options)
      : file_(file), ground_(ground), options_(options), script_(file.text, file.name) {}
  ImportedPlan run();

 private:
  void refuse_conflicts() const;
  std::vector<LayerRange> read_stages() const;
  void check_letters(const std::vector<std::string_view>& stages, const ShellOption& layout) const;
  std::size_t read_groups(std::size_t stages) const;
  std::optional<std::int64_t> instances_of_optimizer() const;
  void read_recomputation(PlanSketch& sketch, std::vector<std::string>& warnings) const;
  void warn_of_others(std::vector<std::string>& warnings) const;

  const ForeignPlanFile& file_;
  const PlanGround& ground_;
  const ForeignPlanOptions& options_;
  ShellOptions script_;
};

/// Refuses options that Megatron-LM does not accept together with a layout, and options that split
/// the model in ways that a plan cannot express.
void MegatronImporter::refuse_conflicts() const {
  for (const char* name :
       {"--num-layers-per-virtual-pipeline-stage", "--num-virtual-stages-per-pipeline-rank",
        "--decoder-first-pipeline-num-layers", "--decoder-last-pipeline-num-layers",
        "--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split"}) {
    if (!script_.has(name)) continue;
    script_.refuse(script_.line_of(name), fmt::format("{}: cannot be used with a layout", name));
  }
  const std::pair<const char*, CollectiveMembers> others[] = {
      {"--context-parallel-size", CollectiveMembers::Context},
      {"--expert-model-parallel-size", CollectiveMembers::Experts}};
  for (const auto& [name, members] : others) {
    const std::string fault =
        group_degree_fault(script_.count(name).value_or(1), members, ground_.profile);
    if (!fault.empty()) script_.refuse(script_.line_of(name), fmt::format("{}: {}", name, fault));
  }
  for (const char* name : {"--use-megatron-fsdp", "--use-custom-fsdp", "--use-torch-fsdp2"}) {
    if (!script_.has(name)) continue;
    script_.refuse(script_.line_of(name),
                   fmt::format("{}: expected none, as no plan for Megatron-LM shards parameters, "
                               "got it",
                               name));
  }
  check_degree(script_.count("--tensor-model-parallel-size").value_or(1), ground_.profile, options_,
               file_.name);
}

/// Checks that the layout has one E, at the beginning, one L, at the end, and a t for each block.
void MegatronImporter::check_letters(const std::vector<std::string_view>& stages,
                                     const ShellOption& layout) const {
  std::string all;
  for (const std::string_view stage : stages) all += stage;
  const auto refuse = [&](const std::string& message) {
    script_.refuse(layout.line, fmt::format("{}: {}", kLayoutOption, message));
  };
  if (std::count(all.begin(), all.end(), 'E') != 1 || stages.front().substr(0, 1) != "E") {
    refuse("expected one E, at the beginning");
  }
  if (std::count(all.begin(), all.end(), 'L') != 1 || stages.back().empty() ||
      stages.back().back() != 'L') {
    refuse("expected one L, at the end");
  }
  const auto blocks = static_cast<std::int64_t>(std::count(all.begin(), all.end(), 't'));
  const TransformerBlocks found = find_blocks(ground_.profile);
  if (!found.fault.empty()) refuse("of the profile: " + found.fault);
  const std::int64_t own = found.layers.size();
  if (blocks != own) {
    refuse(fmt::format("expected a t for each of the profile's {} transformer blocks, got {}", own,
                       blocks));
  }
  if (const auto told = script_.count("--num-layers"); told && *told != blocks) {
    script_.refuse(script_.line_of("--num-layers"),
                   fmt::format("--num-layers: expected the layout's {}, got {}", blocks, *told));
  }
}

std::vector<LayerRange> MegatronImporter::read_stages() const {
  const std::optional<ShellOption> layout = script_.value(kLayoutOption);
  if (!layout) {
    script_.refuse(0, fmt::format("expected {}, without which Megatron-LM splits on its own, got "
                                  "none",
                                  kLayoutOption));
  }
  const std::string letters = LayoutExpander(layout->value, script_, layout->line).run();
  const std::vector<std::string_view> stages = split(letters, "|");
  check_letters(stages, *layout);
  const LayerRange blocks = find_blocks(ground_.profile).layers;
  std::vector<LayerRange> result;
  std::int32_t begin = 0;
  std::int32_t seen = 0;
  for (const std::string_view stage : stages) {
    seen += static_cast<std::int32_t>(std::count(stage.begin(), stage.end(), 't'));
    const bool is_last = result.size() + 1 == stages.size();
    const auto layers = static_cast<std::int32_t>(ground_.profile.layers.size());
    const std::int32_t end = is_last ? layers : blocks.begin + seen;
    result.push_back({begin, end});
    begin = end;
  }
  return result;
}

std::size_t MegatronImporter::read_groups(std::size_t stages) const {
  const auto told = script_.count("--pipeline-model-parallel-size");
  if (!told) {
    script_.refuse(0,
                   "expected --pipeline-model-parallel-size, which says how many stages share "
                   "devices, got none");
  }
  const auto groups = static_cast<std::size_t>(*told);
  if (stages % groups != 0) {
    script_.refuse(script_.line_of("--pipeline-model-parallel-size"),
                   fmt::format("--pipeline-model-parallel-size: expected a divisor of the layout's "
                               "{} stages, got {}",
                               stages, groups));
  }
  return groups;
}

/// Warns of options whose effect no plan has.
void MegatronImporter::warn_of_others(std::vector<std::string>& warnings) const {
  constexpr std::pair<const char*, const char*> kOthers[] = {
      {"--tp-comm-overlap", "collectives within layers are not hidden behind computation"},
      {"--overlap-param-gather", "parameters are gathered after the step"},
      {"--order", "ranks are placed replica by replica, then stage by stage"},
      {"--use-tp-pp-dp-mapping", "ranks are placed replica by replica, then stage by stage"}};
  for (const auto& [option, effect] : kOthers) {
    if (script_.has(option)) {
      warnings.push_back(fmt::format("{} is left out: {}", option, effect));
    }
  }
  // The dispatcher "flex" merges copies by DeepEP where no other of its backends is named.
  const std::optional<ShellOption> dispatcher = script_.value("--moe-token-dispatcher-type");
  const bool merges =
      script_.has("--moe-enable-deepep") || (dispatcher && dispatcher->value == "flex");
  const bool is_priced = merges_copies(ground_.profile, ground_.profile.parallelism);
  if (merges && !is_priced) {
    warnings.emplace_back(
        "that the dispatcher merges copies of tokens is left out: the profile prices a copy of "
        "each token for every expert");
  } else if (!merges && is_priced) {
    warnings.emplace_back(
        "that the dispatcher sends a copy of each token for every expert is left out: the profile "
        "prices copies that are merged");
  }
}

void MegatronImporter::read_recomputation(PlanSketch& sketch,
                                          std::vector<std::string>& warnings) const {
  if (!ground_.recomputed_parts.none()) return;
  const std::optional<ShellOption> granularity = script_.value("--recompute-granularity");
  if (granularity && granularity->value == "full") {
    sketch.recompute = true;
    warnings.push_back(recomputed_as_a_whole(
        "Megatron-LM", "the input of every layer or group of layers that it recomputes"));
  } else if (granularity || script_.has("--recompute-activations")) {
    warnings.emplace_back(
        "recomputing parts of layers is left out, as no layer has a variant that does: the plan "
        "recomputes nothing, and needs more memory");
  }
}

/// Returns how many groups of a stage hold the same shards of the optimizer's state, if groups
/// shard it.
std::optional<std::int64_t> MegatronImporter::instances_of_optimizer() const {
  if (!ground_.profile.group.shards_optimizer) return std::nullopt;
  return script_.count("--num-distributed-optimizer-instances");
}

ImportedPlan MegatronImporter::run() {
  refuse_conflicts();
  ImportedPlan result{.profile = ground_.profile, .plan = {}, .warnings = {}};
  PlanSketch sketch;
  sketch.source = file_.name;
  sketch.stages = read_stages();
  const std::size_t groups = read_groups(sketch.stages.size());
  sketch.rank_devices = devices_in_comments(file_.text);
  std::optional<std::int64_t> replicas;
  if (!sketch.rank_devices.empty() && sketch.rank_devices.size() % groups == 0) {
    replicas = static_cast<std::int64_t>(sketch.rank_devices.size() / groups);
  }
  const std::optional<std::int64_t> instances = instances_of_optimizer();
  if (instances) replicas = instances;
  replicas = replicas_of_all(replicas, groups, ground_, options_, file_.name);
  if (instances && *replicas != *instances) {
    throw Error{ErrorKind::Usage,
                file_.name,
                {{"--replicas", fmt::format("expected {}, the instances of the distributed "
                                            "optimizer, each of which is a replica, got {}",
                                            *instances, *replicas)}}};
  }
  sketch.ranks = even_ranks(groups, *replicas);
  sketch.global_batch = script_.count("--global-batch-size");
  if (const auto samples = script_.count("--micro-batch-size")) {
    sketch.micro_batch = *samples * *replicas * ground_.profile.group.replicas;
  }
  if (sketch.stages.size() > groups) sketch.family = ScheduleFamily::Interleaved;
  read_recomputation(sketch, result.warnings);
  warn_of_others(result.warnings);
  result.plan = plan_of(sketch, ground_, options_);
  return result;
}

}  // namespace

bool is_megatron_options(std::string_view text) {
  return text.find(kLayoutOption) != std::string_view::npos;
}

ImportedPlan import_megatron_plan(const std::vector<ForeignPlanFile>& files,
                                  const PlanGround& ground, const ForeignPlanOptions& options) {
  return MegatronImporter(files.front(), ground, options).run();
}

}  // namespace dapple::interop
