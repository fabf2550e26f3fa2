// The trace event format that Chrome's about:tracing and Perfetto read: "X" for an action with its
// length, "C" for a counter, "M" for names.

#include <fmt/format.h>

#include <algorithm>

#include "dapple/core/error.h"
#include "dapple/io/documents.h"
#include "json_writer.h"

namespace dapple {
namespace io {
namespace {

using Layout = JsonWriter::Layout;

constexpr Stream kStreams[] = {Stream::Compute, Stream::SendForward, Stream::SendBackward,
                               Stream::Collective};

/// Microseconds with nanoseconds as decimals.
std::string microseconds(Duration time) {
  return fmt::format("{}.{:03}", time.ns / 1'000, time.ns % 1'000);
}

// Process and thread 0 mean the idle task to viewers, so numbers begin at 1.
std::int64_t process_of(DeviceIndex device, const Topology& topology) {
  return topology.device(device).server.value + std::int64_t{1};
}

std::int64_t thread_of(DeviceIndex device, Stream stream) {
  return std::int64_t{device.value} * static_cast<std::int64_t>(std::size(kStreams)) +
         static_cast<std::int64_t>(stream) + 1;
}

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

/// What an action's number counts; empty for none.
std::string_view counted_by(ActionKind kind) {
  if (kind == ActionKind::OptimizerStep) return "";
  return kind == ActionKind::AllReduce ? "bucket" : "mb";
}

class TraceWriter {
 public:
  TraceWriter(const Timeline& timeline, const Topology& topology)
      : timeline_(timeline), topology_(topology) {}

  std::string write() &&;

 private:
  void write_names();
  void write_name(std::string_view kind, DeviceIndex device, std::optional<Stream> stream);
  void write_action(const TimedAction& timed);
  void write_memory(const DeviceMemory& memory);
  std::vector<DeviceIndex> used_devices() const;

  const Timeline& timeline_;
  const Topology& topology_;
  JsonWriter writer_;
};

std::string TraceWriter::write() && {
  writer_.open_object(Layout::Lines);
  writer_.key("displayTimeUnit").text("ns");
  writer_.key("traceEvents").open_array(Layout::Lines);
  write_names();
  for (const TimedAction& timed : timeline_.actions)
    if (stream_of(timed.action.kind) != Stream::None) write_action(timed);
  for (const DeviceMemory& memory : timeline_.memory) write_memory(memory);
  writer_.close();
  writer_.close();
  return writer_.finish();
}

std::vector<DeviceIndex> TraceWriter::used_devices() const {
  std::vector<DeviceIndex> devices;
  for (const Timeline::LaneName& lane : timeline_.lanes)
    devices.insert(devices.end(), lane.devices.begin(), lane.devices.end());
  std::sort(devices.begin(), devices.end());
  return devices;
}

void TraceWriter::write_names() {
  std::optional<ServerIndex> last;
  for (const DeviceIndex device : used_devices()) {
    const ServerIndex server = topology_.device(device).server;
    if (last != server) write_name("process_name", device, std::nullopt);
    last = server;
    for (const Stream stream : kStreams) write_name("thread_name", device, stream);
  }
}

void TraceWriter::write_name(std::string_view kind, DeviceIndex device,
                             std::optional<Stream> stream) {
  const std::string name =
      stream ? fmt::format("{} {}", topology_.device(device).name, stream_name(*stream))
             : topology_.server(topology_.device(device).server).name;
  writer_.open_object(Layout::Line);
  writer_.key("ph").text("M");
  writer_.key("name").text(kind);
  writer_.key("pid").integer(process_of(device, topology_));
  if (stream) writer_.key("tid").integer(thread_of(device, *stream));
  writer_.key("args").open_object(Layout::Line).key("name").text(name).close();
  writer_.close();
}

void TraceWriter::write_action(const TimedAction& timed) {
  const Timeline::LaneName& lane = timeline_.lanes[timed.lane.position()];
  const Stream stream = stream_of(timed.action.kind);
  const std::string_view kind = to_string(timed.action.kind);
  const std::string_view counted = counted_by(timed.action.kind);
  const std::string name =
      counted.empty() ? std::string(kind) : fmt::format("{}{}", kind, timed.action.index);
  for (const DeviceIndex device : lane.devices) {
    writer_.open_object(Layout::Line);
    writer_.key("ph").text("X");
    writer_.key("name").text(name);
    writer_.key("cat").text(category_of(stream));
    writer_.key("ts").raw(microseconds(timed.start));
    writer_.key("dur").raw(microseconds(timed.end - timed.start));
    writer_.key("pid").integer(process_of(device, topology_));
    writer_.key("tid").integer(thread_of(device, stream));
    writer_.key("args").open_object(Layout::Line);
    writer_.key("stage").integer(timed.action.stage.value);
    if (!counted.empty()) writer_.key(counted).integer(timed.action.index);
    if (timed.size.count != 0) writer_.key("bytes").integer(timed.size.count);
    writer_.close();
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
}  // namespace io

std::string write_trace(const Timeline& timeline, const Topology& topology) {
  return io::TraceWriter(timeline, topology).write();
}

}  // namespace dapple
