#include <utility>

#include "dapple/io/documents/documents.h"
#include "io/json/json_writer.h"

namespace dapple::io {
namespace {

using Layout = JsonWriter::Layout;

void write_actions(JsonWriter& writer, const Timeline& timeline, const Topology& topology) {
  writer.open_array(Layout::Lines);
  for (const TimedAction& timed : timeline.actions) {
    const Timeline::LaneName& lane = timeline.lanes[timed.lane.position()];
    for (const DeviceIndex device : lane.devices) {
      writer.open_object(Layout::Line);
      writer.key("device").text(topology.device(device).name);
      writer.key("stream").text(to_string(stream_of(timed.action.kind)));
      writer.key("action").text(to_text(timed.action));
      writer.key("start_ns").integer(timed.start.ns);
      writer.key("end_ns").integer(timed.end.ns);
      if (timed.size.count != 0) writer.key("bytes").integer(timed.size.count);
      writer.close();
    }
  }
  writer.close();
}

/// Writes the total of the figures of the device's stages and, if it has several, those of each.
void write_stages(JsonWriter& writer, const DeviceMemory& memory) {
  Bytes per_micro_batch;
  Bytes recompute_stash;
  for (const StageMemory& stage : memory.stages) {
    per_micro_batch += stage.per_micro_batch;
    recompute_stash += stage.recompute_stash;
  }
  writer.key("bytes_per_micro_batch").integer(per_micro_batch.count);
  writer.key("recompute_bytes").integer(recompute_stash.count);
  if (memory.stages.size() == 1) return;
  writer.key("stages").open_array(Layout::Line);
  for (const StageMemory& stage : memory.stages) {
    writer.open_object(Layout::Line);
    writer.key("stage").integer(stage.stage.value);
    writer.key("bytes_per_micro_batch").integer(stage.per_micro_batch.count);
    writer.key("recompute_bytes").integer(stage.recompute_stash.count);
    writer.close();
  }
  writer.close();
}

void write_memory(JsonWriter& writer, const Timeline& timeline, const Topology& topology) {
  writer.open_array(Layout::Lines);
  for (const DeviceMemory& memory : timeline.memory) {
    writer.open_object(Layout::Line);
    writer.key("device").text(topology.device(memory.device).name);
    writer.key("fixed_bytes").integer(memory.fixed.count);
    write_stages(writer, memory);
    writer.key("peak_bytes").integer(peak_memory(timeline, memory).count);
    writer.key("limit_bytes").integer(memory.limit.count);
    writer.close();
  }
  writer.close();
}

}  // namespace

TextSource write_timeline(const Timeline& timeline, const Topology& topology,
                          std::string plan_sha256) {
  return [&timeline, &topology, plan_sha256 = std::move(plan_sha256)](const TextSink& sink) {
    const bool is_predicted = timeline.origin == Timeline::Origin::Predicted;
    JsonWriter writer(JsonWriter::Hidden::Escaped, sink);
    writer.open_object(JsonWriter::Layout::Lines);
    writer.key("schema").text("dapple-timeline/1");
    writer.key("plan_sha256").text(plan_sha256);
    writer.key("origin").text(is_predicted ? "predicted" : "measured");
    if (timeline.transfers != Transfers::Overlapped) {
      writer.key("transfers").text(to_string(timeline.transfers));
    }
    if (!timeline.skips.empty()) {
      writer.key("skips").open_array(Layout::Line);
      for (const auto& [from, to] : timeline.skips) {
        writer.open_array(Layout::Line).integer(from.value).integer(to.value).close();
      }
      writer.close();
    }
    writer.key("clock").text(is_predicted ? "simulated" : "wall");
    write_actions(writer.key("actions"), timeline, topology);
    write_memory(writer.key("memory"), timeline, topology);
    writer.close();
    writer.finish();
  };
}

}  // namespace dapple::io
