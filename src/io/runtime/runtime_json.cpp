#include "io/runtime/runtime_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "dapple/core/characters.h"
#include "dapple/estimate/estimate.h"
#include "dapple/io/runtime/runtime_document.h"
#include "dapple/profile/boundary_shares.h"
#include "io/json/number_text.h"
#include "io/runtime/shipped.h"
#include "io/units/units.h"

namespace dapple::io {
namespace {

constexpr FactorRange kBytesOfParameterByte{.least = {0}, .most = {64 * kOne.billionths}};

void write_optional(JsonWriter& writer, const char* key, const std::optional<Factor>& factor) {
  if (factor) writer.key(key).raw(factor_text(*factor));
}

std::optional<Factor> read_optional(const Field& field) {
  if (!field.present()) return std::nullopt;
  return read_factor(field, kBytesOfParameterByte);
}

/// Whether an object of a runtime has a figure of that key.
bool has_figure(const JsonValue& runtime, const std::string& key) {
  constexpr std::array<std::string_view, 4> kOthers{"schema", "name", "source", "sources"};
  return std::find(kOthers.begin(), kOthers.end(), key) == kOthers.end() &&
         std::find(runtime.keys.begin(), runtime.keys.end(), key) != runtime.keys.end();
}

/// Reads where figures of an object of a runtime are from.
std::map<std::string, std::string> read_sources(const Field& field, const JsonValue& runtime) {
  ObjectReader object(field);
  std::map<std::string, std::string> sources;
  const std::vector<Field> members = object.members();
  for (std::size_t i = 0; i < members.size(); ++i) {
    const std::string& key = field.value().keys[i];
    if (!has_figure(runtime, key)) {
      members[i].add(fmt::format("expected the key of a figure that the runtime has, got \"{}\"",
                                 printable(key)));
    } else if (auto text = read_text(members[i])) {
      sources.emplace(key, *std::move(text));
    }
  }
  object.finish();
  return sources;
}

void write_sources(JsonWriter& writer, const std::map<std::string, std::string>& sources) {
  if (sources.empty()) return;
  writer.key("sources").open_object(JsonWriter::Layout::Lines);
  for (const auto& [key, source] : sources) writer.key(key).text(source);
  writer.close();
}

std::optional<ContextExchange> read_context_exchange(const Field& field) {
  if (!field.present()) return std::nullopt;
  std::vector<std::string_view> names;
  for (const ContextExchange exchange : kContextExchanges) names.push_back(to_string(exchange));
  return kContextExchanges[read_choice(field, names).value_or(0)];
}

/// Reads "all-to-all", also where it is absent, or "merging".
bool read_dispatcher(const Field& field) {
  return field.present() && read_choice(field, {"all-to-all", "merging"}) == 1U;
}

}  // namespace

Transfers read_transfers(const Field& field) {
  constexpr Transfers kAll[] = {Transfers::Overlapped, Transfers::Blocking, Transfers::Serial};
  return kAll[read_choice(field, {"overlapped", "blocking", "serial"}).value_or(0)];
}

Boundaries read_boundaries(const Field& field) {
  const bool are_cut =
      field.present() && read_choice(field, {"whole", "scatter-gather"}) == std::size_t{1};
  return are_cut ? Boundaries::ScatterGather : Boundaries::Whole;
}

bool read_gradient_overlap(const Field& field) {
  return read_choice(field, {"buckets", "none"}).value_or(0) == 0;
}

Runtime read_runtime(const Field& field) {
  ObjectReader object(field);
  Runtime runtime;
  if (!check_schema(object, "dapple-runtime/1")) return runtime;
  runtime.name = read_name(object.field("name")).value_or("");
  runtime.source = read_text(object.field("source")).value_or("");
  runtime.transfers = read_transfers(object.field("transfers"));
  if (const Field interleaved = object.field("interleaved_transfers"); interleaved.present()) {
    runtime.overlaps_interleaved = read_choice(interleaved, {"overlapped"}).has_value();
  }
  runtime.boundaries = read_boundaries(object.field("boundaries"));
  runtime.overlaps_gradients = read_gradient_overlap(object.field("gradient_overlap"));
  runtime.has_least_depths = read_choice(object.field("depths"), {"any", "least"}) == 1U;
  runtime.gradient_bytes_per_parameter_byte =
      read_optional(object.field("gradient_bytes_per_parameter_byte"));
  runtime.framework_bytes_per_parameter_byte =
      read_optional(object.field("framework_bytes_per_parameter_byte"));
  if (const Field reserved = object.field("reserved"); reserved.present()) {
    runtime.reserved = read_size(reserved, Bytes{0}).value_or(Bytes{});
  }
  runtime.vocabulary_multiple = optional_integer(object.field("vocabulary_multiple"),
                                                 {1, estimate::kMostVocabularyMultiple}, 1);
  if (const Field sequence = object.field("sequence_parallel"); sequence.present()) {
    runtime.has_sequence_parallelism = read_boolean(sequence).value_or(true);
  }
  runtime.context_exchange = read_context_exchange(object.field("context"));
  runtime.merges_copies = read_dispatcher(object.field("dispatcher"));
  if (const Field floor = object.field("launch_floor"); floor.present()) {
    runtime.launch_floor = read_duration(floor);
  }
  if (const Field sources = object.field("sources"); sources.present()) {
    runtime.sources = read_sources(sources, field.value());
  }
  object.finish();
  return runtime;
}

void write_runtime(JsonWriter& writer, const Runtime& runtime) {
  writer.open_object(JsonWriter::Layout::Lines);
  writer.key("schema").text("dapple-runtime/1");
  writer.key("name").text(runtime.name);
  writer.key("source").text(runtime.source);
  writer.key("transfers").text(to_string(runtime.transfers));
  if (runtime.overlaps_interleaved) writer.key("interleaved_transfers").text("overlapped");
  if (runtime.boundaries != Boundaries::Whole) {
    writer.key("boundaries").text(to_string(runtime.boundaries));
  }
  writer.key("gradient_overlap").text(runtime.overlaps_gradients ? "buckets" : "none");
  writer.key("depths").text(runtime.has_least_depths ? "least" : "any");
  write_optional(writer, "gradient_bytes_per_parameter_byte",
                 runtime.gradient_bytes_per_parameter_byte);
  write_optional(writer, "framework_bytes_per_parameter_byte",
                 runtime.framework_bytes_per_parameter_byte);
  if (runtime.reserved.count != 0) writer.key("reserved").text(size_text(runtime.reserved));
  if (runtime.vocabulary_multiple != 1) {
    writer.key("vocabulary_multiple").integer(runtime.vocabulary_multiple);
  }
  if (!runtime.has_sequence_parallelism) writer.key("sequence_parallel").boolean(false);
  if (runtime.context_exchange) writer.key("context").text(to_string(*runtime.context_exchange));
  if (runtime.merges_copies) writer.key("dispatcher").text("merging");
  if (runtime.launch_floor) writer.key("launch_floor").text(duration_text(*runtime.launch_floor));
  write_sources(writer, runtime.sources);
  writer.close();
}

Runtime read_runtime(std::string_view text, const std::string& source_name) {
  return read_document<Runtime>(text, source_name,
                                [](const Field& field) { return read_runtime(field); });
}

std::string write_runtime(const Runtime& runtime) {
  JsonWriter writer;
  write_runtime(writer, runtime);
  return writer.finish();
}

std::vector<Runtime> shipped_runtimes() {
  return {read_runtime(runtime_files::kDeepSpeed, "deepspeed.json"),
          read_runtime(runtime_files::kMegatron, "megatron.json"),
          read_runtime(runtime_files::kNanotron, "nanotron.json"),
          read_runtime(runtime_files::kNanotronDdp, "nanotron-ddp.json"),
          read_runtime(runtime_files::kTorchtitan, "torchtitan.json"),
          read_runtime(runtime_files::kDappleExec, "dapple-exec.json")};
}

}  // namespace dapple::io
