// Imports plans of PipeDream from the answer of its optimizer: a graph whose nodes state their
// stages. The replicas come from what the optimizer printed (ranges of states with their
// replication factors, level by level), from a "*_conf.json" of its converter (the ranks of each
// stage), or from options. A "*_conf.json" of the profile's layers needs no graph.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "dapple/core/error.h"
#include "dapple/interop/profiles/pipedream.h"
#include "dapple/profile/limits.h"
#include "interop/graphs/layer_chain.h"
#include "interop/plans/pipedream_conf.h"
#include "interop/plans/plan_formats.h"
#include "interop/plans/plan_sketch.h"
#include "interop/profiles/pipedream_graph.h"
#include "interop/text/foreign_json.h"
#include "interop/text/foreign_text.h"

namespace dapple::interop {
namespace {

constexpr std::string_view kRanges = "(Split start, split end)";
constexpr std::int32_t kNoStage = -1;

bool is_answer(const ForeignPlanFile& file) {
  return is_pipedream_answer(file.text);
}
bool is_output(const ForeignPlanFile& file) {
  return is_pipedream_output(file.text);
}
bool is_conf(const ForeignPlanFile& file) {
  return !is_answer(file) && !is_output(file);
}

/// Reorders the layers of a profile: `order[i]` is the layer that moves to position i. Throws
/// Error(BadInput) if the owner of tied parameters would follow one of their users.
void reorder(ModelProfile& profile, const std::vector<std::size_t>& order,
             const std::string& source_name) {
  std::vector<LayerIndex> place(profile.layers.size());
  for (std::size_t i = 0; i < order.size(); ++i) place[order[i]] = index_at<LayerIndex>(i);
  const auto put = [&](std::vector<LayerIndex>& layers) {
    for (LayerIndex& layer : layers) layer = place[layer.position()];
    std::sort(layers.begin(), layers.end());
  };
  std::vector<Layer> layers;
  for (const std::size_t old : order) {
    layers.push_back(std::move(profile.layers[old]));
    put(layers.back().inputs);
  }
  profile.layers = std::move(layers);
  for (Tie& tie : profile.ties) {
    tie.owner = place[tie.owner.position()];
    put(tie.users);
    if (tie.owner < tie.users.front()) continue;
    throw Error{ErrorKind::BadInput,
                source_name,
                {{"", fmt::format("expected {}, whose weights other layers use, in a stage before "
                                  "theirs",
                                  profile.layers[tie.owner.position()].name)}}};
  }
  std::sort(profile.ties.begin(), profile.ties.end(),
            [](const Tie& a, const Tie& b) { return a.owner < b.owner; });
}

/// A range of states with its replication factor.
struct StateRange {
  std::int64_t line = 0;
  std::int32_t begin = 0;
  std::int32_t end = 0;
  std::int32_t replicas = 1;
};

/// Parses a line like "(0, 33) 0.662385 4"; returns nothing for any other line.
std::optional<StateRange> parse_range(std::string_view line) {
  const std::size_t comma = line.find(", ");
  const std::size_t close = line.find(')');
  if (line.empty() || line.front() != '(' || comma == std::string_view::npos ||
      close == std::string_view::npos || comma > close) {
    return std::nullopt;
  }
  const auto begin = parse_count(line.substr(1, comma - 1));
  const auto end = parse_count(line.substr(comma + 2, close - comma - 2));
  const std::vector<std::string_view> rest = words_of(line.substr(close + 1));
  if (!begin || !end || rest.size() != 2) return std::nullopt;
  const auto replicas = parse_count(rest[1]);
  if (!replicas || *replicas < 1 || *begin >= *end) return std::nullopt;
  return StateRange{.line = 0, .begin = *begin, .end = *end, .replicas = *replicas};
}

class PipedreamPlanImporter {
 public:
  PipedreamPlanImporter(const std::vector<ForeignPlanFile>& files, const PlanGround& ground,
                        const ForeignPlanOptions& options)
      : ground_(ground), options_(options) {
    const bool needs_answer = std::any_of(files.begin(), files.end(), is_output);
    const auto roles =
        files_by_role(files, {{"a graph with stages (gpus=N.txt)", is_answer, needs_answer},
                              {"what the optimizer printed", is_output},
                              {"a conf file", is_conf}});
    answer_ = roles[0];
    output_ = roles[1];
    conf_ = roles[2];
    stages_told_by_ = answer_ != nullptr ? answer_->name : conf_->name;
  }
  ImportedPlan run();

 private:
  void read_stages();
  void place_layers(const LayerGraph& graph);
  std::int32_t stage_of_unknown(std::size_t layer) const;
  void set_stages(PlanSketch& sketch);
  void read_conf();
  std::vector<std::int32_t> replicas_in_output();
  void set_ranks(PlanSketch& sketch);

  const PlanGround& ground_;
  const ForeignPlanOptions& options_;
  // Null if the modules of the conf file are the layers of the profile.
  const ForeignPlanFile* answer_ = nullptr;
  const ForeignPlanFile* output_ = nullptr;
  const ForeignPlanFile* conf_ = nullptr;
  std::string stages_told_by_;
  std::size_t stage_count_ = 0;
  std::vector<std::int32_t> stage_of_;  // by layer
  // The contents of the conf file.
  PipedreamConf told_;
  ImportedPlan result_;
};

/// Reads the stages of the nodes. Refuses stages that are not numbered from 0 on without a gap, and
/// edges that lead to an earlier stage.
void PipedreamPlanImporter::read_stages() {
  std::vector<LineFault> faults;
  PipedreamGraph parsed = parse_pipedream_graph(answer_->text, time_unit("ms").value(), faults);
  throw_faults(std::move(faults), answer_->name);
  const LayerGraph graph = keep_layers(std::move(parsed.nodes));
  std::map<std::int32_t, std::int64_t> first_line;
  faults.clear();
  for (const GraphNode& node : graph.nodes) {
    if (!node.stage || *node.stage >= kMaxLayers) {
      faults.push_back(
          {node.line, fmt::format("expected a stage_id= of node{} from 0 to {}, got {}",
                                  node.number, kMaxLayers - 1, node.stage ? "more" : "none")});
      continue;
    }
    first_line.emplace(*node.stage, node.line);
    for (const std::int32_t input : node.inputs) {
      const GraphNode& from = graph.nodes[static_cast<std::size_t>(input)];
      if (!from.stage || *from.stage <= *node.stage) continue;
      faults.push_back(
          {node.line,
           fmt::format("expected node{} in the stage of its input node{}, {}, or a later "
                       "one, got stage {}",
                       node.number, from.number, *from.stage, *node.stage)});
    }
  }
  std::int32_t expected = 0;
  for (const auto& [stage, line] : first_line) {
    if (stage != expected) {
      faults.push_back(
          {line, fmt::format("expected layers in every stage, got none in stage {}", expected)});
      break;
    }
    ++expected;
  }
  if (first_line.empty() && faults.empty()) {
    faults.push_back({0, "expected at least one layer, got input nodes only"});
  }
  throw_faults(std::move(faults), answer_->name);
  stage_count_ = first_line.size();
  place_layers(graph);
}

/// Returns the stage of a layer that the answer does not mention: the latest stage of its inputs,
/// else that of its first consumer with a known stage, else 0.
std::int32_t PipedreamPlanImporter::stage_of_unknown(std::size_t layer) const {
  const std::vector<Layer>& layers = ground_.profile.layers;
  std::int32_t stage = kNoStage;
  for (const LayerIndex input : layers[layer].inputs) {
    stage = std::max(stage, stage_of_[input.position()]);
  }
  if (stage != kNoStage) return stage;
  for (std::size_t l = layer + 1; l < layers.size(); ++l) {
    const std::vector<LayerIndex>& inputs = layers[l].inputs;
    const bool consumes =
        std::binary_search(inputs.begin(), inputs.end(), index_at<LayerIndex>(layer));
    if (consumes && stage_of_[l] != kNoStage) return stage_of_[l];
  }
  return 0;
}

void PipedreamPlanImporter::place_layers(const LayerGraph& graph) {
  std::vector<LayerNode> nodes;
  for (const GraphNode& node : graph.nodes) {
    LayerNode& named = nodes.emplace_back();
    named.number = node.number;
    named.description = node.description;
  }
  const std::vector<std::string> names = layer_names(nodes);
  std::map<std::string_view, std::int32_t> stage_by_name;
  for (std::size_t i = 0; i < names.size(); ++i) {
    stage_by_name.emplace(names[i], *graph.nodes[i].stage);
  }
  std::vector<std::size_t> unknown;
  const std::vector<Layer>& layers = ground_.profile.layers;
  for (std::size_t l = 0; l < layers.size(); ++l) {
    const auto found = stage_by_name.find(layers[l].name);
    stage_of_.push_back(found == stage_by_name.end() ? kNoStage : found->second);
    if (found == stage_by_name.end()) unknown.push_back(l);
  }
  const std::size_t known = layers.size() - unknown.size();
  if (known < stage_by_name.size()) {
    std::set<std::string_view> own;
    for (const Layer& layer : layers) own.insert(layer.name);
    const auto lost = std::find_if(names.begin(), names.end(),
                                   [&](const std::string& name) { return own.count(name) == 0; });
    throw_faults({{graph.nodes[static_cast<std::size_t>(lost - names.begin())].line,
                   fmt::format("expected layers of the profile, which is to be imported from the "
                               "same graph, got {}",
                               *lost)}},
                 answer_->name);
  }
  for (const std::size_t layer : unknown) stage_of_[layer] = stage_of_unknown(layer);
  if (!unknown.empty()) {
    result_.warnings.push_back(fmt::format(
        "{} layer{} of the profile {} in no stage of the answer, the first is {}: each goes with "
        "its last input",
        unknown.size(), unknown.size() == 1 ? "" : "s", unknown.size() == 1 ? "is" : "are",
        layers[unknown.front()].name));
  }
}

/// Sets the stages as ranges of layers. Reorders the layers if the stages of the answer are not
/// contiguous.
void PipedreamPlanImporter::set_stages(PlanSketch& sketch) {
  std::vector<std::size_t> order(stage_of_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto by_stage = [&](std::size_t a, std::size_t b) { return stage_of_[a] < stage_of_[b]; };
  result_.profile = ground_.profile;
  if (!std::is_sorted(order.begin(), order.end(), by_stage)) {
    std::stable_sort(order.begin(), order.end(), by_stage);
    reorder(result_.profile, order, stages_told_by_);
    result_.warnings.push_back(
        "the plan's layers stand in another order than the profile's, so that each stage is a run "
        "of them");
  }
  sketch.stages.resize(stage_count_);
  for (std::size_t s = 0; s < stage_count_; ++s) {
    const auto end = std::partition_point(order.begin(), order.end(), [&](std::size_t layer) {
      return stage_of_[layer] <= static_cast<std::int32_t>(s);
    });
    sketch.stages[s].begin = s == 0 ? 0 : sketch.stages[s - 1].end;
    sketch.stages[s].end = static_cast<std::int32_t>(end - order.begin());
  }
}

/// Reads the conf file, which may merge several stages of the answer into one.
void PipedreamPlanImporter::read_conf() {
  told_ = read_pipedream_conf(*conf_, stage_count_, answer_ != nullptr ? answer_->name : "");
  const auto stages = static_cast<std::size_t>(told_.stage_of.back()) + 1;
  if (answer_ != nullptr && stages < stage_count_) {
    result_.warnings.push_back(fmt::format("{} makes {} stage{} of the {} of {}", conf_->name,
                                           stages, stages == 1 ? "" : "s", stage_count_,
                                           answer_->name));
  }
  for (std::int32_t& stage : stage_of_) stage = told_.stage_of[static_cast<std::size_t>(stage)];
  stage_count_ = stages;
}

/// Returns the number of replicas of each stage as the optimizer printed it. A stage is a range of
/// the innermost level, which is printed last; its number of replicas is the product of the
/// replication factors of all ranges that contain it.
std::vector<std::int32_t> PipedreamPlanImporter::replicas_in_output() {
  std::vector<std::vector<StateRange>> levels;
  std::int64_t number = 0;
  for (const std::string_view raw : split(output_->text, "\n")) {
    ++number;
    const std::string_view line = trim(raw);
    constexpr std::string_view kObjective = "Time per stage in pipeline: ";
    if (begins_with(line, "Level ")) levels.emplace_back();
    if (begins_with(line, kObjective)) {
      result_.warnings.push_back(fmt::format("PipeDream expected {} s for a minibatch",
                                             shown(line.substr(kObjective.size()))));
    }
    std::optional<StateRange> range = parse_range(line);
    if (!range || levels.empty()) continue;
    range->line = number;
    levels.back().push_back(*range);
  }
  if (levels.empty() || levels.back().size() != stage_count_) {
    throw_faults(
        {{0, fmt::format("expected {} ranges \"(first, end) seconds replicas\" at the last "
                         "level, one for each stage of {}, got {}",
                         stage_count_, answer_->name, levels.empty() ? 0 : levels.back().size())}},
        output_->name);
  }
  std::vector<std::int32_t> replicas;
  for (const StateRange& leaf : levels.back()) {
    Wide product = 1;
    for (const std::vector<StateRange>& level : levels) {
      for (const StateRange& range : level) {
        const bool holds = range.begin <= leaf.begin && leaf.end <= range.end;
        if (holds) product = std::min<Wide>(product * range.replicas, kMaxLayers);
      }
    }
    replicas.push_back(static_cast<std::int32_t>(product));
  }
  return replicas;
}

void PipedreamPlanImporter::set_ranks(PlanSketch& sketch) {
  std::vector<std::int64_t> replicas = options_.replicas;
  const ForeignPlanFile* told_by = conf_ != nullptr ? conf_ : output_;
  if (told_by != nullptr && !replicas.empty()) {
    throw Error{ErrorKind::Usage,
                told_by->name,
                {{"--replicas", "expected none with this file, which states them, got some"}}};
  }
  if (conf_ != nullptr) {
    sketch.ranks = std::move(told_.ranks);
    sketch.depths = std::move(told_.depths);
    sketch.rank_devices = std::move(told_.devices);
    sketch.global_batch = told_.global_batch;
    sketch.micro_batch = told_.micro_batch;
    sketch.replication = told_.replication;
    sketch.recompute = told_.recompute;
    return;
  }
  if (output_ != nullptr) {
    const std::vector<std::int32_t> told = replicas_in_output();
    replicas.assign(told.begin(), told.end());
  }
  if (replicas.size() == 1) replicas.assign(stage_count_, replicas.front());
  if (replicas.empty() && stage_count_ == options_.devices.size()) {
    replicas.assign(stage_count_, 1);
  }
  if (replicas.size() != stage_count_) {
    throw Error{ErrorKind::Usage,
                answer_->name,
                {{"--replicas",
                  fmt::format("expected the replicas of each of {} stages, which the answer does "
                              "not say (what the optimizer printed, or a conf file next to it, "
                              "does), got {}",
                              stage_count_,
                              replicas.empty() ? "nothing" : fmt::format("{}", replicas.size()))}}};
  }
  const std::int64_t most = ground_.topology.device_count();
  std::int32_t next = 0;
  for (const std::int64_t count : replicas) {
    if (count > most - next) {
      throw Error{ErrorKind::BadInput,
                  answer_->name,
                  {{"", fmt::format("expected a topology with as many devices as the plan, got {}",
                                    most)}}};
    }
    std::vector<std::int32_t>& ranks = sketch.ranks.emplace_back();
    for (std::int64_t r = 0; r < count; ++r) ranks.push_back(next++);
  }
}

ImportedPlan PipedreamPlanImporter::run() {
  check_degree(1, ground_.profile, options_, stages_told_by_);
  if (answer_ != nullptr) {
    read_stages();
  } else {
    stage_count_ = ground_.profile.layers.size();
    stage_of_.resize(stage_count_);
    std::iota(stage_of_.begin(), stage_of_.end(), 0);
  }
  if (conf_ != nullptr) read_conf();
  PlanSketch sketch;
  sketch.source = stages_told_by_;
  sketch.replication = Replication::Deal;
  set_stages(sketch);
  set_ranks(sketch);
  const PlanGround ground{result_.profile, ground_.topology, ground_.recomputed_parts};
  result_.plan = plan_of(sketch, ground, options_);
  result_.warnings.push_back(
      "PipeDream trains without flushes; the plan runs 1F1B with one at the end of each iteration");
  return std::move(result_);
}

}  // namespace

bool is_pipedream_answer(std::string_view text) {
  return is_pipedream_graph(text);
}

bool is_pipedream_output(std::string_view text) {
  return text.find(kRanges) != std::string_view::npos;
}

bool is_pipedream_conf(const io::JsonValue& object) {
  return has_key(object, "stage_to_rank_map");
}

ImportedPlan import_pipedream_plan(const std::vector<ForeignPlanFile>& files,
                                   const PlanGround& ground, const ForeignPlanOptions& options) {
  return PipedreamPlanImporter(files, ground, options).run();
}

}  // namespace dapple::interop
