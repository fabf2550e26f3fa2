// Imports plans of DeepSpeed from the stage boundaries of a PipelineModule, "parts", in a program
// or a JSON document, and from the settings of its engine.

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dapple/core/error.h"
#include "interop/plans/plan_formats.h"
#include "interop/plans/plan_sketch.h"
#include "interop/text/foreign_json.h"
#include "interop/text/foreign_text.h"

namespace dapple::interop {
namespace {

constexpr std::string_view kCheckpointInterval = "activation_checkpoint_interval";

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/// Finds the values that a Python or JSON text assigns to a name: `name = V`, `"name": V`,
/// `name=V`, `("name", V)`.
class NamedValues {
 public:
  NamedValues(const ForeignPlanFile& file, std::string_view name) : file_(file), name_(name) {}

  /// Returns the whole number assigned to the name, or nothing if there is none. Other values, such
  /// as expressions, are ignored. Refuses a file with two different numbers.
  std::optional<std::int64_t> number() const;
  /// Returns the list of whole numbers assigned to the name, by the same rules.
  std::optional<std::vector<std::int64_t>> list() const;

 private:
  /// Returns the position of the value that follows the text of the name at `position`, or nothing
  /// if this is part of a longer word or assigns no value.
  std::optional<std::size_t> value_behind(std::size_t position) const;
  template <class Value, class Parse>
  std::optional<Value> only(const Parse& parse) const;
  [[noreturn]] void refuse(std::size_t position, std::string message) const {
    const auto begin = file_.text.begin();
    const auto line = 1 + std::count(begin, begin + static_cast<std::ptrdiff_t>(position), '\n');
    throw_faults({{line, fmt::format("{}: {}", name_, message)}}, file_.name);
    throw Bug("a fault that was not thrown");
  }

  const ForeignPlanFile& file_;
  std::string_view name_;
};

std::optional<std::size_t> NamedValues::value_behind(std::size_t position) const {
  const std::string& text = file_.text;
  if (position > 0 && is_word(text[position - 1])) return std::nullopt;
  std::size_t next = position + name_.size();
  if (next < text.size() && is_word(text[next])) return std::nullopt;
  const auto skip = [&](std::string_view characters) {
    next = std::min(text.find_first_not_of(characters, next), text.size());
  };
  skip("\"' \t");
  if (next == text.size() || std::string_view("=:,").find(text[next]) == std::string_view::npos) {
    return std::nullopt;
  }
  ++next;
  skip(" \t\r\n");
  return next;
}

template <class Value, class Parse>
std::optional<Value> NamedValues::only(const Parse& parse) const {
  std::optional<Value> found;
  for (std::size_t at = file_.text.find(name_); at != std::string::npos;
       at = file_.text.find(name_, at + 1)) {
    const std::optional<std::size_t> begin = value_behind(at);
    if (!begin) continue;
    std::optional<Value> value = parse(*begin);
    if (!value) continue;
    if (found && *found != *value) refuse(at, "expected one value in the file, got two");
    found = std::move(value);
  }
  return found;
}

std::optional<std::int64_t> NamedValues::number() const {
  return only<std::int64_t>([&](std::size_t begin) -> std::optional<std::int64_t> {
    const std::string_view text = file_.text;
    const std::size_t end = std::min(text.find_first_not_of("0123456789", begin), text.size());
    const auto number = parse_count(text.substr(begin, end - begin));
    return number ? std::optional<std::int64_t>(*number) : std::nullopt;
  });
}

std::optional<std::vector<std::int64_t>> NamedValues::list() const {
  using List = std::vector<std::int64_t>;
  return only<List>([&](std::size_t begin) -> std::optional<List> {
    const std::string_view text = file_.text;
    if (begin >= text.size() || text[begin] != '[') return std::nullopt;
    const std::size_t end = text.find(']', begin);
    if (end == std::string_view::npos) refuse(begin, "expected a list that ends in ], got none");
    List result;
    for (const std::string_view item : split(text.substr(begin + 1, end - begin - 1), ",")) {
      constexpr std::string_view kSpaces = " \t\r\n";
      const std::size_t first = item.find_first_not_of(kSpaces);
      const std::string_view digits =
          first == std::string_view::npos
              ? std::string_view{}
              : item.substr(first, item.find_last_not_of(kSpaces) - first + 1);
      const auto number = parse_count(digits);
      if (!number) {
        refuse(begin, fmt::format("expected whole numbers in the list, got '{}'", shown(digits)));
      }
      result.push_back(*number);
    }
    return result;
  });
}

std::optional<std::vector<std::int64_t>> parts_in(const ForeignPlanFile& file) {
  std::optional<std::vector<std::int64_t>> parts = NamedValues(file, "PARTS").list();
  return parts ? parts : NamedValues(file, "parts").list();
}

bool has_parts(const ForeignPlanFile& file) {
  return is_deepspeed_program(file.text);
}

bool has_settings_alone(const ForeignPlanFile& file) {
  return !has_parts(file);
}

class DeepspeedImporter {
 public:
  DeepspeedImporter(const std::vector<ForeignPlanFile>& files, const PlanGround& ground,
                    const ForeignPlanOptions& options)
      : ground_(ground), options_(options) {
    const auto roles = files_by_role(files, {{"the parts of a PipelineModule", has_parts, true},
                                             {"settings of DeepSpeed", has_settings_alone}});
    program_ = roles[0];
    settings_ = roles[1];
  }
  ImportedPlan run();

 private:
  /// Returns the setting from either file; refuses different values.
  std::optional<std::int64_t> setting(std::string_view name) const;
  /// Returns num_dp if it is set, otherwise the number that follows from the batch sizes, if any.
  std::optional<std::int64_t> replica_count() const;
  std::vector<LayerRange> read_stages() const;
  void read_batches(std::int64_t replicas, PlanSketch& sketch) const;
  [[noreturn]] void refuse(std::string message) const {
    throw Error{ErrorKind::BadInput, program_->name, {{"", std::move(message)}}};
  }

  const PlanGround& ground_;
  const ForeignPlanOptions& options_;
  const ForeignPlanFile* program_ = nullptr;
  const ForeignPlanFile* settings_ = nullptr;
};

std::optional<std::int64_t> DeepspeedImporter::setting(std::string_view name) const {
  const std::optional<std::int64_t> first = NamedValues(*program_, name).number();
  if (settings_ == nullptr) return first;
  const std::optional<std::int64_t> second = NamedValues(*settings_, name).number();
  if (first && second && *first != *second) {
    refuse(fmt::format("{}: expected what {} says, {}, got {}", name, settings_->name, *second,
                       *first));
  }
  return first ? first : second;
}

std::optional<std::int64_t> DeepspeedImporter::replica_count() const {
  if (const auto told = setting("num_dp")) return told;
  const auto global = setting("train_batch_size");
  const auto samples = setting("train_micro_batch_size_per_gpu");
  const auto steps = setting("gradient_accumulation_steps");
  if (!global || !samples || !steps || *samples < 1 || *steps < 1) return std::nullopt;
  if (*global % *samples != 0 || *global / *samples % *steps != 0) return std::nullopt;
  return *global / *samples / *steps;
}

std::vector<LayerRange> DeepspeedImporter::read_stages() const {
  const auto parts = parts_in(*program_);
  if (!parts || parts->size() < 2) {
    refuse("parts: expected the boundaries of one stage or more, as [0, 12, 24], got none");
  }
  if (parts->front() != 0) {
    refuse(fmt::format("parts: expected 0 as the first boundary, got {}", parts->front()));
  }
  std::vector<LayerRange> stages;
  for (std::size_t s = 1; s < parts->size(); ++s) {
    stages.push_back(
        {static_cast<std::int32_t>((*parts)[s - 1]), static_cast<std::int32_t>((*parts)[s])});
  }
  if (const auto told = setting("num_pp");
      told && *told != static_cast<std::int64_t>(stages.size())) {
    refuse(fmt::format("num_pp: expected the {} stages of parts, got {}", stages.size(), *told));
  }
  return stages;
}

void DeepspeedImporter::read_batches(std::int64_t replicas, PlanSketch& sketch) const {
  const auto samples = setting("train_micro_batch_size_per_gpu");
  const auto steps = setting("gradient_accumulation_steps");
  sketch.global_batch = setting("train_batch_size");
  if (samples) sketch.micro_batch = *samples * replicas;
  if (!sketch.global_batch && samples && steps) {
    const Wide global = Wide{*sketch.micro_batch} * *steps;
    if (global > Wide{kMaxCount})
      refuse("expected at most 10^15 samples of an iteration, got more");
    sketch.global_batch = static_cast<std::int64_t>(global);
  }
  if (steps) sketch.num_micro_batches = *steps;
}

ImportedPlan DeepspeedImporter::run() {
  check_degree(setting("num_mp").value_or(1), ground_.profile, options_, program_->name);
  ImportedPlan result{.profile = ground_.profile, .plan = {}, .warnings = {}};
  PlanSketch sketch;
  sketch.source = program_->name;
  sketch.stages = read_stages();
  sketch.rank_devices = devices_in_comments(program_->text);
  const std::size_t groups = sketch.stages.size();
  const std::int64_t replicas =
      replicas_of_all(replica_count(), groups, ground_, options_, program_->name);
  sketch.ranks = even_ranks(groups, replicas);
  read_batches(replicas, sketch);
  const std::optional<std::int64_t> interval = setting(kCheckpointInterval);
  if (interval && *interval > 0 && ground_.recomputed_parts.none()) {
    sketch.recompute = true;
    if (*interval < static_cast<std::int64_t>(ground_.profile.layers.size())) {
      result.warnings.push_back(recomputed_as_a_whole(
          "DeepSpeed", fmt::format("the input of every {} layers", *interval)));
    }
  }
  result.plan = plan_of(sketch, ground_, options_);
  return result;
}

}  // namespace

std::int64_t zero_stage_of_deepspeed(const std::vector<ForeignPlanFile>& files) {
  for (const ForeignPlanFile& file : files) {
    const std::size_t settings = file.text.find("zero_optimization");
    if (settings == std::string::npos) continue;
    ForeignPlanFile behind = file;
    behind.text = file.text.substr(settings, file.text.find('}', settings) - settings);
    return NamedValues(behind, "stage").number().value_or(0);
  }
  return 0;
}

bool recomputes_layers_of_deepspeed(const std::vector<ForeignPlanFile>& files) {
  return std::any_of(files.begin(), files.end(), [](const ForeignPlanFile& file) {
    return NamedValues(file, kCheckpointInterval).number() == 1;
  });
}

bool is_deepspeed_program(std::string_view text) {
  const ForeignPlanFile file{std::string(text), "", PlanFormat::Deepspeed};
  try {
    return parts_in(file).has_value();
  } catch (const Error&) { return true; }
}

bool is_deepspeed_settings(const io::JsonValue& object) {
  return has_key(object, "train_micro_batch_size_per_gpu") || has_key(object, "train_batch_size");
}

ImportedPlan import_deepspeed_plan(const std::vector<ForeignPlanFile>& files,
                                   const PlanGround& ground, const ForeignPlanOptions& options) {
  return DeepspeedImporter(files, ground, options).run();
}

}  // namespace dapple::interop
