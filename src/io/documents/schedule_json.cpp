#include <fmt/format.h>

#include <cstddef>
#include <optional>
#include <string_view>

#include "dapple/core/characters.h"
#include "dapple/core/error.h"
#include "dapple/io/documents/schedule_document.h"
#include "dapple/schedule/device_schedule.h"
#include "io/json/json_writer.h"

namespace dapple::io {

std::string_view schedule_kind(ActionKind kind) {
  switch (kind) {
    case ActionKind::Forward:
      return "forward";
    case ActionKind::Backward:
      return "backward";
    case ActionKind::InputGradient:
      return "input_gradient";
    case ActionKind::WeightGradient:
      return "weight_gradient";
    case ActionKind::SendActivation:
      return "send_activation";
    case ActionKind::ReceiveActivation:
      return "receive_activation";
    case ActionKind::SendGradient:
      return "send_gradient";
    case ActionKind::ReceiveGradient:
      return "receive_gradient";
    case ActionKind::AllReduce:
      return "all_reduce";
    case ActionKind::ReduceTied:
      return "reduce_tied";
    case ActionKind::OptimizerStep:
      return "optimizer_step";
  }
  throw Bug("an action without a name");
}

std::string_view schedule_stream(ActionKind kind) {
  const Stream stream = stream_of(kind);
  return stream == Stream::None ? "receive" : to_string(stream);
}

namespace {

std::optional<std::int32_t> micro_batch_of(Action action) {
  const bool has_none = reduces(action.kind) || action.kind == ActionKind::OptimizerStep;
  return has_none ? std::nullopt : std::optional{action.index};
}

std::optional<std::int32_t> bucket_of(Action action) {
  const bool is_part = action.kind == ActionKind::OptimizerStep && action.index > 0;
  return action.kind == ActionKind::AllReduce || is_part ? std::optional{action.index}
                                                         : std::nullopt;
}

void write_action(JsonWriter& writer, const DeviceAction& entry, const Topology& topology) {
  writer.open_object(JsonWriter::Layout::Line);
  writer.key("action").text(to_text(entry.action));
  writer.key("kind").text(schedule_kind(entry.action.kind));
  writer.key("stream").text(schedule_stream(entry.action.kind));
  writer.key("stage").integer(entry.action.stage.value);
  if (const auto micro_batch = micro_batch_of(entry.action)) {
    writer.key("micro_batch").integer(*micro_batch);
  }
  if (const auto bucket = bucket_of(entry.action)) writer.key("bucket").integer(*bucket);
  if (entry.action.kind == ActionKind::ReduceTied) writer.key("tie").integer(entry.action.index);
  if (stream_of(entry.action.kind) != Stream::Compute) {
    writer.key("bytes").integer(entry.size.count);
    writer.key("peers").open_array(JsonWriter::Layout::Line);
    for (const SchedulePeer& peer : entry.peers) {
      writer.open_object(JsonWriter::Layout::Line);
      writer.key("device").text(topology.device(peer.device).name);
      writer.key("bytes").integer(peer.size.count);
      writer.close();
    }
    writer.close();
  }
  writer.close();
}

/// Returns a name in which characters that would end the name or the cell, and those that would
/// make a spreadsheet interpret the cell as a formula, are percent-encoded.
std::string csv_name(std::string_view name) {
  constexpr std::string_view kSeparators = "%,;=\"";
  constexpr std::string_view kFormulas = "+-@";
  std::string text;
  while (!name.empty()) {
    const Character character = first_character(name);
    const std::string_view bytes = name.substr(0, character.length);
    const bool begins_formula = text.empty() && kFormulas.find(bytes) != std::string_view::npos;
    const bool is_plain = character.is_valid && !is_hidden(character.code) && !begins_formula &&
                          kSeparators.find(bytes) == std::string_view::npos;
    for (const char byte : bytes) {
      text += is_plain ? std::string(1, byte)
                       : fmt::format("%{:02X}", static_cast<unsigned char>(byte));
    }
    name.remove_prefix(character.length);
  }
  return text;
}

std::string number_or_empty(std::optional<std::int64_t> number) {
  return number ? fmt::format("{}", *number) : std::string{};
}

/// Writes the actions of one device.
void write_device(JsonWriter& writer, const DeviceSchedule& device, const Topology& topology) {
  writer.open_object(JsonWriter::Layout::Lines);
  writer.key("device").text(topology.device(device.device).name);
  writer.key("stage").integer(device.stages.front().value);
  if (device.stages.size() > 1) {
    writer.key("stages").open_array(JsonWriter::Layout::Line);
    for (const StageIndex stage : device.stages) writer.integer(stage.value);
    writer.close();
  }
  writer.key("actions").open_array(JsonWriter::Layout::Lines);
  for (const DeviceAction& entry : device.actions) write_action(writer, entry, topology);
  writer.close();
  writer.close();
}

void write_json(const ScheduleDocument& document, const Topology& topology, const TextSink& sink) {
  JsonWriter writer(JsonWriter::Hidden::Escaped, sink);
  writer.open_object(JsonWriter::Layout::Lines);
  writer.key("schema").text("dapple-schedule/1");
  writer.key("tool").text(document.tool);
  writer.key("plan_sha256").text(document.plan_sha256);
  writer.key("digest").text(document.digest);
  writer.key("num_micro_batches").integer(document.schedule.num_micro_batches);
  writer.key("devices").open_array(JsonWriter::Layout::Lines);
  for (const Lane& lane : document.schedule.lanes) {
    for (const DeviceIndex device : lane.devices) {
      write_device(writer, device_schedule(lane, device, document.costs), topology);
    }
  }
  writer.close();
  writer.close();
  writer.finish();
}

std::string csv_row(const std::string& device, std::size_t position, const DeviceAction& entry,
                    const Topology& topology) {
  std::string peers;
  for (const SchedulePeer& peer : entry.peers) {
    peers += fmt::format("{}{}={}", peers.empty() ? "" : ";",
                         csv_name(topology.device(peer.device).name), peer.size.count);
  }
  const bool computes = stream_of(entry.action.kind) == Stream::Compute;
  return fmt::format("{},{},{},{},{},{},{},{},{}\n", device, position,
                     schedule_stream(entry.action.kind), schedule_kind(entry.action.kind),
                     entry.action.stage.value, number_or_empty(micro_batch_of(entry.action)),
                     number_or_empty(bucket_of(entry.action)),
                     computes ? std::string{} : fmt::format("{}", entry.size.count), peers);
}

void write_csv(const ScheduleDocument& document, const Topology& topology, const TextSink& sink) {
  std::string text = "device,position,stream,kind,stage,micro_batch,bucket,bytes,peers\n";
  for (const Lane& lane : document.schedule.lanes) {
    for (const DeviceIndex device : lane.devices) {
      const std::string name = csv_name(topology.device(device).name);
      const DeviceSchedule list = device_schedule(lane, device, document.costs);
      for (std::size_t position = 0; position < list.actions.size(); ++position) {
        text += csv_row(name, position, list.actions[position], topology);
        if (text.size() < kTextPiece) continue;
        sink(text);
        text.clear();
      }
    }
  }
  sink(text);
}

}  // namespace

TextSource write_schedule(const ScheduleDocument& document, const Topology& topology) {
  return [&](const TextSink& sink) { write_json(document, topology, sink); };
}

TextSource write_schedule_csv(const ScheduleDocument& document, const Topology& topology) {
  return [&](const TextSink& sink) { write_csv(document, topology, sink); };
}

}  // namespace dapple::io
