#include "dapple/io/documents/measurement_document.h"

#include "dapple/schedule/schedule.h"
#include "io/json/json_writer.h"

namespace dapple::io {
namespace {

using Layout = JsonWriter::Layout;

void write_times(JsonWriter& writer, Duration predicted, Duration measured) {
  writer.key("predicted_ns").integer(predicted.ns);
  writer.key("measured_ns").integer(measured.ns);
}

void write_action(JsonWriter& writer, const LengthComparison& length) {
  writer.key("stage").integer(length.stage.value);
  writer.key("kind").text(to_string(length.kind));
}

}  // namespace

std::string write_measurement_json(const MeasurementDocument& document) {
  const TimelineComparison& comparison = document.comparison;
  JsonWriter writer;
  writer.open_object(Layout::Lines);
  writer.key("schema").text("dapple-measurement/1");
  writer.key("tool").text(document.tool);
  writer.key("plan").open_object(Layout::Line);
  writer.key("name").text(document.plan);
  writer.key("sha256").text(document.plan_sha256);
  writer.close();
  writer.key("timeline").text(document.timeline);
  writer.key("iteration").open_object(Layout::Line);
  write_times(writer, comparison.predicted, comparison.measured);
  writer.close();
  writer.key("waiting").open_object(Layout::Line);
  write_times(writer, comparison.predicted_waiting, comparison.measured_waiting);
  writer.close();
  writer.key("lengths").open_array(Layout::Lines);
  for (const LengthComparison& length : comparison.lengths) {
    writer.open_object(Layout::Line);
    write_action(writer, length);
    writer.key("count").integer(length.count);
    write_times(writer, length.predicted, length.measured);
    writer.key("farthest").open_object(Layout::Line);
    writer.key("index").integer(length.farthest.index);
    write_times(writer, length.farthest.predicted, length.farthest.measured);
    writer.close();
    writer.close();
  }
  writer.close();
  writer.key("slower_than_predicted").open_array(Layout::Lines);
  for (const LengthComparison& length : slower_than_predicted(comparison)) {
    writer.open_object(Layout::Line);
    write_action(writer, length);
    writer.key("beyond_ns").integer(length.beyond().ns);
    writer.close();
  }
  writer.close();
  writer.close();
  return writer.finish();
}

}  // namespace dapple::io
