// Imports plans from nanotron's configurations, whose keys parallelism, tokens and optimizer state
// the degrees, the batches and the sharding; nanotron cuts the stages itself.

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <string>

#include "dapple/interop/plans/layout.h"
#include "dapple/interop/plans/nanotron_cut.h"
#include "interop/plans/plan_formats.h"
#include "interop/text/foreign_text.h"
#include "interop/text/yaml_text.h"

namespace dapple::interop {
namespace {

/// Reads the values that a plan has of a configuration, and collects the faults.
class NanotronReader {
 public:
  explicit NanotronReader(const ForeignPlanFile& file)
      : file_(file), document_(parse_yaml(file.text, file.name)) {}

  Layout run();

 private:
  YAML::Node find(const char* section, const char* key) const;
  std::optional<std::string> text(const char* section, const char* key);
  std::optional<std::int64_t> count(const char* section, const char* key, std::int64_t least);
  bool flag(const char* section, const char* key);
  void fail(const YAML::Node& node, std::string message) {
    faults_.push_back({node.Mark().line + 1, std::move(message)});
  }
  void add(const char* word, std::string value) {
    layout_.words.emplace_back(word, std::move(value));
  }
  void read_batches(std::int64_t replicas);
  void read_modes(bool has_tensor_ranks);

  const ForeignPlanFile& file_;
  YAML::Node document_;
  std::vector<LineFault> faults_;
  Layout layout_;
};

/// Returns the value of a key of a section, which is undefined if there is none.
YAML::Node NanotronReader::find(const char* section, const char* key) const {
  if (!document_.IsMap()) return YAML::Node(YAML::NodeType::Undefined);
  const YAML::Node part = document_[section];
  if (!part || !part.IsMap()) return YAML::Node(YAML::NodeType::Undefined);
  return part[key];
}

/// Returns the text of a scalar, or nothing where it is missing or null.
std::optional<std::string> NanotronReader::text(const char* section, const char* key) {
  const YAML::Node value = find(section, key);
  if (!value.IsDefined() || value.IsNull()) return std::nullopt;
  if (value.IsScalar()) return value.Scalar();
  fail(value, fmt::format("{}.{}: expected a value, got a list or a map", section, key));
  return std::nullopt;
}

std::optional<std::int64_t> NanotronReader::count(const char* section, const char* key,
                                                  std::int64_t least) {
  const std::optional<std::string> value = text(section, key);
  if (!value) return std::nullopt;
  const std::optional<std::int32_t> number = parse_count(*value);
  if (number && *number >= least) return *number;
  fail(find(section, key), fmt::format("{}.{}: expected a number from {} on, got \"{}\"", section,
                                       key, least, shown(*value)));
  return std::nullopt;
}

bool NanotronReader::flag(const char* section, const char* key) {
  const std::optional<std::string> value = text(section, key);
  if (!value || *value == "false" || *value == "False") return false;
  if (*value == "true" || *value == "True") return true;
  fail(find(section, key),
       fmt::format("{}.{}: expected true or false, got \"{}\"", section, key, shown(*value)));
  return false;
}

void NanotronReader::read_batches(std::int64_t replicas) {
  const auto size = count("tokens", "micro_batch_size", 1);
  const auto steps = count("tokens", "batch_accumulation_per_replica", 1);
  if (size) add("mbs", fmt::format("{}", *size));
  if (size && steps) {
    // Each factor is below 10^9, so that their product fits 128 bits.
    const Wide samples = Wide{*size} * *steps * replicas;
    add("gbs", fmt::format("{}", static_cast<std::int64_t>(std::min<Wide>(samples, kMaxCount))));
  }
}

/// Reads how ranks work together. What nanotron takes where a configuration says nothing is that of
/// its class ParallelismArgs.
void NanotronReader::read_modes(bool has_tensor_ranks) {
  std::string engine = text("parallelism", "pp_engine").value_or("afab");
  if (engine == "afab") {
    add("schedule", "gpipe");
  } else if (engine != "1f1b") {
    fail(find("parallelism", "pp_engine"),
         fmt::format("parallelism.pp_engine: expected 1f1b or afab, got \"{}\"", shown(engine)));
  }
  std::string mode = text("parallelism", "tp_mode").value_or("ALL_REDUCE");
  std::transform(mode.begin(), mode.end(), mode.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::toupper(letter)); });
  if (mode != "ALL_REDUCE" && mode != "REDUCE_SCATTER") {
    fail(find("parallelism", "tp_mode"),
         fmt::format("parallelism.tp_mode: expected ALL_REDUCE or REDUCE_SCATTER, got \"{}\"",
                     shown(mode)));
  } else if (has_tensor_ranks) {
    add("sp", mode == "REDUCE_SCATTER" ? "on" : "off");
  }
  if (flag("parallelism", "recompute_layer")) add("recompute", "full");
  if (const auto stage = count("optimizer", "zero_stage", 0))
    add("zero", fmt::format("{}", *stage));
}

Layout NanotronReader::run() {
  layout_.source = file_.name;
  const auto required = [&](const char* key) {
    const bool is_missing = !find("parallelism", key).IsDefined();
    if (is_missing) {
      faults_.push_back({0, fmt::format("parallelism.{}: expected a number from 1 on, but the key "
                                        "is missing",
                                        key)});
    }
    return count("parallelism", key, 1).value_or(1);
  };
  const std::int64_t replicas = required("dp");
  const std::int64_t stages = required("pp");
  const std::int64_t tensor = required("tp");
  const std::int64_t context = count("parallelism", "context_parallel_size", 1).value_or(1);
  add("pp", fmt::format("{}", stages));
  add("dp", fmt::format("{}", replicas));
  add("tp", fmt::format("{}", tensor));
  if (context > 1) add("cp", fmt::format("{}", context));
  if (count("parallelism", "expert_parallel_size", 1).value_or(1) > 1) {
    fail(find("parallelism", "expert_parallel_size"),
         "parallelism.expert_parallel_size: expected 1, as nanotron's experts are not planned, got "
         "more");
  }
  read_batches(replicas);
  read_modes(tensor > 1);
  throw_faults(std::move(faults_), file_.name);
  return std::move(layout_);
}

}  // namespace

bool is_nanotron_config(std::string_view text) {
  const auto has_section = [&](std::string_view section) {
    const std::string key = std::string(section) + ":";
    return text.starts_with(key) || text.find("\n" + key) != std::string_view::npos;
  };
  return has_section("parallelism") && has_section("tokens");
}

Layout layout_of_nanotron(const ForeignPlanFile& file) {
  return NanotronReader(file).run();
}

ImportedPlan import_nanotron(const std::vector<ForeignPlanFile>& files, const PlanGround& ground,
                             const ForeignPlanOptions& options) {
  const ForeignPlanFile& file = files.front();
  Layout layout = layout_of_nanotron(file);
  const std::int32_t stages = parse_count(*layout.value("pp")).value_or(1);
  ImportedPlan imported{.profile = ground.profile, .plan = {}, .warnings = {}};
  if (stages > 1) {
    const NanotronCut cut = nanotron_cut(ground.profile, stages);
    if (!cut.fault.empty()) throw Error{ErrorKind::BadInput, file.name, {{"", cut.fault}}};
    layout.words.emplace_back("layers", fmt::format("{}", fmt::join(cut.blocks, ":")));
    imported.warnings.emplace_back(
        "stages are cut as nanotron cuts them by the profile's parameters; with fewer heads of "
        "keys and values than of queries it may cut otherwise");
  }
  imported.plan = plan_of_layout(layout, ground, options);
  return imported;
}

}  // namespace dapple::interop
