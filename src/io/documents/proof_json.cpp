#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "dapple/io/documents/proof_document.h"
#include "dapple/io/json/json_reader.h"
#include "dapple/profile/limits.h"
#include "io/documents/embedded.h"
#include "io/documents/plan_parts.h"
#include "io/json/json_writer.h"

namespace dapple::io {
namespace {

using Layout = JsonWriter::Layout;

constexpr const char* kProofSchema = "dapple-proof/1";
constexpr std::int64_t kMostWidth = 1'000'000;

/// Returns the range of a figure by its position.
IntegerRange range_of(std::size_t position) {
  constexpr std::int64_t kMostIndex = INT32_MAX;
  switch (position) {
    case 0:
    case 1:
      return {0, kMostIndex};
    case 2:
      return {kAnyDevices, kMostIndex};
    case 3:
      return {0, std::ssize(kBoundaryKinds) - 1};
    default:
      return {};
  }
}

void write_nodes(JsonWriter& writer, const std::vector<ProofNode>& nodes) {
  writer.open_array(Layout::Lines);
  for (const ProofNode& node : nodes) {
    writer.open_array(Layout::Line);
    for (const std::int64_t figure : figures_of(node)) writer.integer(figure);
    writer.close();
  }
  writer.close();
}

void write_problem(JsonWriter& writer, const ProblemProof& problem) {
  writer.open_object(Layout::Lines);
  if (problem.parallelism) write_parallelism(writer.key("parallelism"), *problem.parallelism);
  write_stage_forms(writer, problem.stage_forms);
  if (problem.replicas) writer.key("replicas").integer(*problem.replicas);
  if (problem.stages) writer.key("stages").integer(*problem.stages);
  if (problem.recompute) writer.key("recompute").boolean(*problem.recompute);
  writer.key("micro_batch_size").integer(problem.micro_batch_size);
  writer.key("bucket_bytes").integer(problem.bucket_size.count);
  writer.key("method").text(to_string(problem.method));
  if (problem.method == ProofMethod::Diagram) writer.key("width").integer(problem.width);
  if (problem.method == ProofMethod::Nodes) write_nodes(writer.key("nodes"), problem.nodes);
  writer.close();
}

ProofNode read_node(const Field& field) {
  const ArrayReader array(field, "an array of 13 integers");
  ProofFigures figures{};
  if (array.valid() && array.size() != figures.size()) {
    field.add(fmt::format("expected {} integers, got {}", figures.size(), array.size()));
    return {};
  }
  for (std::size_t i = 0; i < array.size(); ++i) {
    figures[i] = required_integer(array.at(i), range_of(i));
  }
  const auto index = [&](std::size_t position) {
    return static_cast<std::int32_t>(figures[position]);
  };
  return {.layer = index(0),
          .used = index(1),
          .devices = figures[2] == kAnyDevices ? std::nullopt : std::optional(index(2)),
          .front = kBoundaryKinds[figures[3]],
          .shared = figures[4],
          .depth = figures[5],
          .both = {figures[6]},
          .round_trip = {figures[7]},
          .last_trip = {figures[8]},
          .span = {figures[9]},
          .end = {figures[10]},
          .tail = {figures[11]},
          .occupied = {figures[12]}};
}

std::optional<ProofMethod> read_method(const Field& field) {
  const auto found = read_choice(field, {to_string(kProofMethods[0]), to_string(kProofMethods[1]),
                                         to_string(kProofMethods[2]), to_string(kProofMethods[3])});
  return found ? std::optional(kProofMethods[*found]) : std::nullopt;
}

std::vector<ProofNode> read_nodes(const Field& field, std::size_t& count) {
  const ArrayReader array(field, "an array of nodes");
  count += array.size();
  if (count > kMostProofNodes) {
    field.add(fmt::format("expected at most {} nodes in all, got more", kMostProofNodes));
    return {};
  }
  std::vector<ProofNode> nodes;
  for (std::size_t i = 0; i < array.size(); ++i) nodes.push_back(read_node(array.at(i)));
  return nodes;
}

ProblemProof read_problem(const Field& field, std::size_t& nodes) {
  ObjectReader object(field);
  ProblemProof problem;
  if (const Field form = object.field("parallelism"); form.present()) {
    problem.parallelism = read_parallelism(form);
  }
  problem.stage_forms = read_stage_forms(object.field("stage_forms"));
  if (const Field replicas = object.field("replicas"); replicas.present()) {
    problem.replicas = static_cast<std::int32_t>(required_integer(replicas, {1, INT32_MAX}));
  }
  if (const Field stages = object.field("stages"); stages.present()) {
    problem.stages = static_cast<std::int32_t>(required_integer(stages, {1, INT32_MAX}));
  }
  if (const Field recompute = object.field("recompute"); recompute.present()) {
    problem.recompute = read_boolean(recompute);
  }
  problem.micro_batch_size = required_integer(object.field("micro_batch_size"), kSampleRange);
  problem.bucket_size.count = required_integer(object.field("bucket_bytes"), {1, kMaxCount});
  const std::optional<ProofMethod> method = read_method(object.field("method"));
  problem.method = method.value_or(ProofMethod::Search);
  // What a method that is not known has beside it is no fault of its own.
  if (!method || method == ProofMethod::Diagram) {
    const Field width = object.field("width");
    if (method) problem.width = required_integer(width, {1, kMostWidth});
  }
  if (!method || method == ProofMethod::Nodes) {
    const Field list = object.field("nodes");
    if (method) problem.nodes = read_nodes(list, nodes);
  }
  object.finish();
  return problem;
}

}  // namespace

void write_proof(JsonWriter& writer, const ProofDocument& proof, const std::string& tool) {
  writer.open_object(Layout::Lines);
  writer.key("schema").text(kProofSchema);
  writer.key("tool").text(tool);
  writer.key("plan_sha256").text(proof.plan_sha256);
  writer.key("lower_bound_ns").integer(proof.lower_bound.ns);
  writer.key("problems").open_array(Layout::Lines);
  for (const ProblemProof& problem : proof.problems) write_problem(writer, problem);
  writer.close();
  writer.close();
}

TextSource write_proof(const ProofDocument& proof, std::string tool) {
  return [&proof, tool = std::move(tool)](const TextSink& sink) {
    JsonWriter writer(JsonWriter::Hidden::Escaped, sink);
    write_proof(writer, proof, tool);
    writer.finish();
  };
}

ProofDocument read_proof(const Field& field, const std::string& plan_sha256) {
  ObjectReader object(field);
  ProofDocument proof;
  if (!check_schema(object, kProofSchema)) return proof;
  read_text(object.field("tool"));
  if (!is_of_plan(object.field("plan_sha256"), plan_sha256)) return proof;
  proof.plan_sha256 = plan_sha256;
  proof.lower_bound.ns = required_integer(object.field("lower_bound_ns"), {});
  const ArrayReader problems(object.field("problems"), "an array of problems");
  std::size_t nodes = 0;
  for (std::size_t i = 0; i < problems.size(); ++i) {
    proof.problems.push_back(read_problem(problems.at(i), nodes));
  }
  object.finish();
  return proof;
}

ProofDocument read_proof(std::string_view text, const std::string& source_name,
                         const std::string& plan_sha256) {
  return read_document<ProofDocument>(
      text, source_name, [&](const Field& field) { return read_proof(field, plan_sha256); });
}

}  // namespace dapple::io
