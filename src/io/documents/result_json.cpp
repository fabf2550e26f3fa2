#include "dapple/io/documents/result_document.h"

#include <optional>
#include <string>
#include <vector>

#include "dapple/io/documents/documents.h"
#include "io/documents/embedded.h"
#include "io/documents/plan_parts.h"
#include "io/json/json_writer.h"
#include "io/json/number_text.h"

namespace dapple::io {
namespace {

using Layout = JsonWriter::Layout;

/// Writes a member of an object, or null if there is no value.
template <class Value, class Write>
void write_member(JsonWriter& writer, const char* key, const std::optional<Value>& value,
                  Write write) {
  writer.key(key);
  if (value) {
    write(writer, *value);
  } else {
    writer.null();
  }
}

void write_text(JsonWriter& writer, const std::string& text) {
  writer.text(text);
}

void write_faults(JsonWriter& writer, const std::vector<LocatedFault>& faults) {
  writer.open_array(Layout::Lines);
  for (const LocatedFault& located : faults) {
    writer.open_object(Layout::Line);
    writer.key("source").text(located.source);
    writer.key("place").text(located.fault.place);
    writer.key("message").text(located.fault.message);
    writer.close();
  }
  writer.close();
}

void write_plans(JsonWriter& writer, const ResultDocument& document, const Topology* topology) {
  writer.open_array(Layout::Lines);
  for (const PlanResult& plan : document.plans) {
    writer.open_object(Layout::Lines);
    writer.key("file").text(plan.file);
    write_member(writer, "sha256", plan.sha256, write_text);
    writer.key("model").text(plan.model);
    writer.key("topology").text(plan.topology);
    writer.key("shape").text(plan.shape);
    if (!plan.parallelism.is_none()) {
      write_parallelism(writer.key("parallelism"), plan.parallelism);
    }
    write_stage_forms(writer, plan.stage_forms);
    write_member(writer, "predicted", plan.prediction,
                 [&](JsonWriter& to, const Prediction& prediction) {
                   write_prediction(to, prediction, *topology);
                 });
    writer.key("warnings").texts(plan.warnings);
    writer.close();
  }
  writer.close();
}

void write_simulation(JsonWriter& writer, const SimulationResult& result) {
  writer.open_object(Layout::Line);
  writer.key("iteration_in_file_ns").integer(result.iteration_in_file.ns);
  writer.key("same_as_file").boolean(result.is_as_in_file);
  writer.close();
}

void write_verification(JsonWriter& writer, const VerificationResult& result) {
  writer.open_object(Layout::Lines);
  writer.key("bound").text(to_string(result.bound));
  write_member(writer, "proof", result.proof,
               [](JsonWriter& to, BoundProof proof) { to.text(to_string(proof)); });
  write_member(writer, "proven_ns", result.proven,
               [](JsonWriter& to, Duration proven) { to.integer(proven.ns); });
  writer.key("stopped").boolean(result.is_stopped);
  writer.key("partial_plans").integer(result.partial_plans);
  writer.key("simulated").integer(result.simulated);
  writer.key("unchecked").texts(result.unchecked);
  writer.close();
}

void write_trade_off(JsonWriter& writer, const TradeOffResult& result) {
  writer.open_object(Layout::Lines);
  writer.key("searches").open_array(Layout::Lines);
  for (const TradeOffResult::Search& search : result.searches) {
    writer.open_object(Layout::Line);
    writer.key("topology").text(search.topology);
    write_member(writer, "iteration_ns", search.iteration,
                 [](JsonWriter& to, Duration iteration) { to.integer(iteration.ns); });
    const bool is_finite = !search.lower_bound.is_infinite();
    write_member(writer, "lower_bound_ns",
                 is_finite ? std::optional(search.lower_bound) : std::nullopt,
                 [](JsonWriter& to, Duration bound) { to.integer(bound.ns); });
    writer.key("bound").text(to_string(search.bound));
    writer.close();
  }
  writer.close();
  write_positions(writer.key("front"), result.front);
  writer.key("chosen").integer(static_cast<std::int64_t>(result.chosen));
  write_claim(writer.key("proven"), result.claim);
  writer.close();
}

void write_shortage(JsonWriter& writer, const NoPlanResult::Shortage& shortage) {
  writer.open_object(Layout::Line);
  writer.key("device").text(shortage.device);
  writer.key("needed_bytes").integer(shortage.needed.count);
  writer.key("limit_bytes").integer(shortage.limit.count);
  if (shortage.is_least) writer.key("is_least").boolean(true);
  writer.key("closest_plan").text(shortage.closest);
  writer.close();
}

void write_no_plan(JsonWriter& writer, const NoPlanResult& result) {
  writer.open_object(Layout::Lines);
  writer.key("stopped").boolean(result.is_stopped);
  writer.key("certain").boolean(result.is_certain);
  writer.key("pins").texts(result.pins);
  write_member(writer, "reason", result.reason, write_text);
  write_member(writer, "tightest_device", result.shortage, write_shortage);
  write_member(writer, "remedy", result.remedy, write_text);
  writer.close();
}

void write_alternatives(JsonWriter& writer, const std::vector<AlternativeResult>& alternatives) {
  writer.open_array(Layout::Lines);
  for (const AlternativeResult& some : alternatives) {
    writer.open_object(Layout::Line);
    writer.key("options").text(some.options);
    write_member(writer, "file", some.file, write_text);
    writer.key("shape").text(some.shape);
    writer.key("iteration_ns").integer(some.iteration.ns);
    write_member(writer, "lower_bound_ns", some.lower_bound,
                 [](JsonWriter& to, Duration bound) { to.integer(bound.ns); });
    writer.key("most_memory_bytes").integer(some.most_memory.count);
    if (some.tie) {
      writer.key("tie").open_object(Layout::Line);
      writer.key("calibration_error").raw(factor_text(some.tie->calibration_error));
      writer.key("measure").text(some.tie->measure);
      writer.close();
    }
    writer.close();
  }
  writer.close();
}

}  // namespace

PlanResult plan_result(const PlanDocument& document, const std::string& file) {
  return {.file = file,
          .sha256 = hash_of(document),
          .model = document.profile.name,
          .topology = document.topology.name,
          .shape = shape_of(document.plan),
          .parallelism = document.plan.parallelism,
          .stage_forms = document.plan.stage_forms};
}

std::string write_result_json(const ResultDocument& document, const Topology* topology) {
  JsonWriter writer(JsonWriter::Hidden::Escaped);
  writer.open_object(Layout::Lines);
  writer.key("schema").text("dapple-result/1");
  writer.key("tool").text(document.tool);
  writer.key("command").text(document.command);
  writer.key("exit_code").integer(document.exit_code);
  write_faults(writer.key("faults"), document.faults);
  writer.key("plans");
  write_plans(writer, document, topology);
  write_member(writer, "simulation", document.simulation, write_simulation);
  write_member(writer, "verification", document.verification, write_verification);
  if (document.trade_off) write_trade_off(writer.key("trade_off"), *document.trade_off);
  write_member(writer, "no_plan", document.no_plan, write_no_plan);
  if (document.alternatives) {
    write_alternatives(writer.key("alternatives"), *document.alternatives);
  }
  writer.close();
  return writer.finish();
}

}  // namespace dapple::io
