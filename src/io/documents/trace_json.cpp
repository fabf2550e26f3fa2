// Writes the trace event format of Chrome's about:tracing and Perfetto: "X" events for actions with
// their durations, "C" for counters, "M" for names, and "s" and "f" for the ends of arrows.
//
// Slices of one track must be nested or disjoint, but messages may overlap by their latency;
// overlapping ones are distributed over several tracks. An end of an arrow is bound to the slice
// that begins at its moment on its track, which must therefore be written before it.

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "dapple/core/error.h"
#include "dapple/io/documents/documents.h"
#include "io/json/json_writer.h"

namespace dapple::io {
namespace {

using Layout = JsonWriter::Layout;

constexpr Stream kStreams[] = {Stream::Compute, Stream::SendForward, Stream::SendBackward,
                               Stream::Collective};

/// Returns a time in microseconds with nanoseconds as decimals.
std::string microseconds(Duration time) {
  return fmt::format("{}.{:03}", time.ns / 1'000, time.ns % 1'000);
}

// Numbers begin at 1, because viewers interpret process and thread 0 as the idle task.
std::int64_t process_of(DeviceIndex device, const Topology& topology) {
  return topology.device(device).server.value + std::int64_t{1};
}

/// A row of a device's stream. Every stream has row 0.
struct Track {
  DeviceIndex device;
  Stream stream;
  std::int32_t row = 0;

  friend auto operator<=>(const Track&, const Track&) = default;
};

std::string_view category_of(Stream stream) {
  switch (stream) {
    case Stream::Compute:
      return "compute";
    case Stream::SendForward:
    case Stream::SendBackward:
      return "transfer";
    case Stream::Collective:
      return "collective";
    case Stream::None:
      break;
  }
  throw Bug("an action on no stream has no category");
}

std::string_view stream_name(Stream stream) {
  switch (stream) {
    case Stream::Compute:
      return "compute";
    case Stream::SendForward:
      return "send forward";
    case Stream::SendBackward:
      return "send backward";
    case Stream::Collective:
      return "all-reduce";
    case Stream::None:
      break;
  }
  throw Bug("an action on no stream has no name");
}

/// Returns what an action's index counts, or an empty text if it has no index.
std::string_view counted_by(ActionKind kind) {
  if (kind == ActionKind::OptimizerStep) return "";
  if (kind == ActionKind::ReduceTied) return "tie";
  return kind == ActionKind::AllReduce ? "bucket" : "mb";
}

/// Returns the name of an action's slice, such as "F0" or "STEP".
std::string slice_name(const Action& action) {
  const std::string_view kind = to_string(action.kind);
  return counted_by(action.kind).empty() ? std::string(kind)
                                         : fmt::format("{}{}", kind, action.index);
}

class TraceWriter {
 public:
  TraceWriter(const Timeline& timeline, const Topology& topology, const TextSink& sink);

  void write();

 private:
  static constexpr std::uint32_t kNoMessage = UINT32_MAX;
  /// A message with the numbers of its arrows, which begin at `first_arrow`, and the position of
  /// the one before it that the same action sends.
  struct NumberedMessage {
    Message message;
    std::int64_t first_arrow = 0;
    std::uint32_t before = kNoMessage;
  };
  enum class ArrowEnd { Start, Finish };

  void write_names();
  void write_name(std::string_view kind, std::int64_t process, std::optional<std::int64_t> thread,
                  const std::string& name);
  void write_action(std::size_t action);
  void write_slice(std::size_t action, DeviceIndex device);
  void write_arrow_ends(const NumberedMessage& message, ArrowEnd end);
  void write_memory(const DeviceMemory& memory);
  const std::vector<DeviceIndex>& devices_of(std::size_t action) const {
    return timeline_.lanes[timeline_.actions[action].lane.position()].devices;
  }
  Track track_of(std::size_t action, DeviceIndex device) const {
    const Stream stream = stream_of(timeline_.actions[action].action.kind);
    return {.device = device, .stream = stream, .row = rows_[action]};
  }

  const Timeline& timeline_;
  const Topology& topology_;
  // The row of each action.
  std::vector<std::int32_t> rows_;
  // The thread number of each track, from 1 on.
  std::map<Track, std::int64_t> threads_;
  // By receiver.
  std::vector<NumberedMessage> messages_;
  // The last message that each action sends, or kNoMessage.
  std::vector<std::uint32_t> sent_;
  // The first message that each action receives, or kNoMessage; the others follow it.
  std::vector<std::uint32_t> received_;
  JsonWriter writer_;
};

TraceWriter::TraceWriter(const Timeline& timeline, const Topology& topology, const TextSink& sink)
    : timeline_(timeline),
      topology_(topology),
      rows_(rows_of(timeline)),
      sent_(timeline.actions.size(), kNoMessage),
      received_(timeline.actions.size(), kNoMessage),
      writer_(JsonWriter::Hidden::Escaped, sink) {
  for (const Timeline::LaneName& lane : timeline.lanes) {
    for (const DeviceIndex device : lane.devices) {
      for (const Stream stream : kStreams) threads_[{.device = device, .stream = stream}] = 0;
    }
  }
  for (std::size_t i = 0; i < timeline.actions.size(); ++i) {
    if (stream_of(timeline.actions[i].action.kind) == Stream::None) continue;
    for (const DeviceIndex device : devices_of(i)) threads_[track_of(i, device)] = 0;
  }
  std::int64_t thread = 0;
  for (auto& [track, number] : threads_) number = ++thread;
  std::int64_t arrow = 1;
  for (const Message& message : messages_of(timeline)) {
    // Data that stays on its device is not sent, so that it has no arrow.
    if (timeline.actions[message.transfer].size == Bytes{}) continue;
    const auto number = static_cast<std::uint32_t>(messages_.size());
    const std::uint32_t before = std::exchange(sent_[message.transfer], number);
    if (received_[message.receiver] == kNoMessage) received_[message.receiver] = number;
    messages_.push_back({.message = message, .first_arrow = arrow, .before = before});
    arrow += static_cast<std::int64_t>(
        std::max(devices_of(message.transfer).size(), devices_of(message.receiver).size()));
  }
}

void TraceWriter::write() {
  writer_.open_object(Layout::Lines);
  writer_.key("displayTimeUnit").text("ns");
  writer_.key("traceEvents").open_array(Layout::Lines);
  write_names();
  for (std::size_t i = 0; i < timeline_.actions.size(); ++i) {
    if (stream_of(timeline_.actions[i].action.kind) != Stream::None) write_action(i);
  }
  for (const DeviceMemory& memory : timeline_.memory) write_memory(memory);
  writer_.close();
  writer_.close();
  writer_.finish();
}

void TraceWriter::write_names() {
  std::optional<ServerIndex> last;
  for (const auto& [track, thread] : threads_) {
    const Device& device = topology_.device(track.device);
    const std::int64_t process = process_of(track.device, topology_);
    if (last != device.server) {
      write_name("process_name", process, std::nullopt, topology_.server(device.server).name);
    }
    last = device.server;
    std::string name = fmt::format("{} {}", device.name, stream_name(track.stream));
    if (track.row > 0) name += fmt::format(" {}", track.row + 1);
    write_name("thread_name", process, thread, name);
  }
}

void TraceWriter::write_name(std::string_view kind, std::int64_t process,
                             std::optional<std::int64_t> thread, const std::string& name) {
  writer_.open_object(Layout::Line);
  writer_.key("ph").text("M");
  writer_.key("name").text(kind);
  writer_.key("pid").integer(process);
  if (thread) writer_.key("tid").integer(*thread);
  writer_.key("args").open_object(Layout::Line).key("name").text(name).close();
  writer_.close();
}

void TraceWriter::write_action(std::size_t action) {
  for (const DeviceIndex device : devices_of(action)) write_slice(action, device);
  for (std::uint32_t sent = sent_[action]; sent != kNoMessage; sent = messages_[sent].before) {
    write_arrow_ends(messages_[sent], ArrowEnd::Start);
  }
  for (std::size_t i = received_[action]; i < messages_.size(); ++i) {
    if (messages_[i].message.receiver != action) break;
    write_arrow_ends(messages_[i], ArrowEnd::Finish);
  }
}

void TraceWriter::write_slice(std::size_t action, DeviceIndex device) {
  const TimedAction& timed = timeline_.actions[action];
  const std::string_view counted = counted_by(timed.action.kind);
  writer_.open_object(Layout::Line);
  writer_.key("ph").text("X");
  writer_.key("name").text(slice_name(timed.action));
  writer_.key("cat").text(category_of(stream_of(timed.action.kind)));
  writer_.key("ts").raw(microseconds(timed.start));
  writer_.key("dur").raw(microseconds(timed.end - timed.start));
  writer_.key("pid").integer(process_of(device, topology_));
  writer_.key("tid").integer(threads_.at(track_of(action, device)));
  writer_.key("args").open_object(Layout::Line);
  writer_.key("stage").integer(timed.action.stage.value);
  if (!counted.empty()) writer_.key(counted).integer(timed.action.index);
  if (timed.size.count != 0) writer_.key("bytes").integer(timed.size.count);
  writer_.close();
  writer_.close();
}

/// Writes one end of the message's arrows. There is one arrow for each device of the side with more
/// devices, so that every device has one; on both sides the shares of a micro-batch are in the
/// order of the devices.
void TraceWriter::write_arrow_ends(const NumberedMessage& numbered, ArrowEnd end) {
  const bool is_start = end == ArrowEnd::Start;
  const Message& message = numbered.message;
  const std::size_t count =
      std::max(devices_of(message.transfer).size(), devices_of(message.receiver).size());
  const std::size_t action = is_start ? message.transfer : message.receiver;
  const std::vector<DeviceIndex>& devices = devices_of(action);
  for (std::size_t arrow = 0; arrow < count; ++arrow) {
    const DeviceIndex device = devices[arrow * devices.size() / count];
    writer_.open_object(Layout::Line);
    writer_.key("ph").text(is_start ? "s" : "f");
    if (!is_start) writer_.key("bp").text("e");
    writer_.key("id").integer(numbered.first_arrow + static_cast<std::int64_t>(arrow));
    writer_.key("name").text(slice_name(timeline_.actions[message.transfer].action));
    writer_.key("cat").text("transfer");
    writer_.key("ts").raw(microseconds(timeline_.actions[action].start));
    writer_.key("pid").integer(process_of(device, topology_));
    writer_.key("tid").integer(threads_.at(track_of(action, device)));
    writer_.close();
  }
}

void TraceWriter::write_memory(const DeviceMemory& memory) {
  for (const MemoryPoint& point : memory_over_time(timeline_, memory)) {
    writer_.open_object(Layout::Line);
    writer_.key("ph").text("C");
    writer_.key("name").text(fmt::format("memory of {}", topology_.device(memory.device).name));
    writer_.key("ts").raw(microseconds(point.time));
    writer_.key("pid").integer(process_of(memory.device, topology_));
    writer_.key("args").open_object(Layout::Line).key("bytes").integer(point.held.count).close();
    writer_.close();
  }
}

}  // namespace

TextSource write_trace(const Timeline& timeline, const Topology& topology) {
  return [&timeline, &topology](const TextSink& sink) {
    TraceWriter(timeline, topology, sink).write();
  };
}

}  // namespace dapple::io
