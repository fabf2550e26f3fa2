#include "app/request/file_kinds.h"

#include <fmt/format.h>

#include "dapple/core/error.h"
#include "dapple/interop/plans/foreign_plan.h"
#include "dapple/interop/profiles/configuration.h"
#include "dapple/interop/profiles/foreign_profile.h"
#include "dapple/interop/topologies/foreign_topology.h"
#include "dapple/io/documents/documents.h"
#include "dapple/io/json/json_value.h"

namespace dapple::app {
namespace {

std::string of_kind(std::string_view kind) {
  if (kind == "profile") return "a layer profile, which --model takes";
  if (kind == "topology") return "a topology, which --topo takes";
  if (kind == "plan") return "a plan, which validate, diff and export take";
  return fmt::format("a dapple-{} file", kind);
}

std::optional<std::string> looks_foreign(std::string_view text, std::string_view expected) {
  const auto taken_by = [](std::string_view format, std::string_view import) {
    return fmt::format("a file of {}, which dapple-plan import {} takes", format, import);
  };
  // One of our documents that cannot be parsed, even if it contains words of other formats.
  if (text.find("\"dapple-") != std::string_view::npos) return std::nullopt;
  if (const auto format = interop::detect_topology_format(text)) {
    return taken_by(name_of(*format), "topology");
  }
  if (interop::is_configuration(text)) {
    return "a model's configuration, which dapple-plan plan and estimate take";
  }
  const auto model = interop::detect_model_format(text);
  const auto plan = interop::detect_plan_format(text);
  // A PipeDream graph may be a model or a plan; the expected kind decides.
  if (model && !(plan && expected == "plan")) return taken_by(name_of(*model), "model");
  if (plan) return taken_by(name_of(*plan), "plan");
  return std::nullopt;
}

}  // namespace

std::optional<std::string> looks_like(std::string_view text, std::string_view expected) {
  const std::string kind = io::document_kind(text);
  return kind.empty() ? looks_foreign(text, expected) : of_kind(kind);
}

void refuse_others(std::string_view text, const std::string& source, std::string_view kind) {
  if (io::document_kind(text) == kind) return;
  const std::optional<std::string> other = looks_like(text, kind);
  if (!other) return;
  throw Error{ErrorKind::BadInput,
              source,
              {{"", fmt::format("expected a {}{}, got {}", kind == "profile" ? "layer " : "", kind,
                                *other)}}};
}

void refuse_unknown(std::string_view text, const std::string& source, std::string_view what) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  // What begins as JSON may be of any of the formats that are JSON, and its syntax be at fault.
  if (first != std::string_view::npos && text[first] == '{') io::parse_json(text, source);
  const std::string got = looks_like(text, {}).value_or("none of them; --format says which it is");
  throw Error{ErrorKind::BadInput, source, {{"", fmt::format("expected {}, got {}", what, got)}}};
}

}  // namespace dapple::app
