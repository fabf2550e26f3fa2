#include "dapple/exec/run/measured_run.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>

#include "dapple/core/error.h"
#include "exec/message/clock.h"

namespace dapple::exec {
namespace {

/// Serializes trivially copyable values into a message.
class Packer {
 public:
  template <class Figure>
  void add(const Figure& figure) {
    static_assert(std::is_trivially_copyable_v<Figure>);
    const auto* begin = reinterpret_cast<const std::byte*>(&figure);
    bytes_.insert(bytes_.end(), begin, begin + sizeof(Figure));
  }
  Payload take() { return std::move(bytes_); }

 private:
  HostBytes bytes_;
};

class Unpacker {
 public:
  explicit Unpacker(std::span<const std::byte> bytes) : bytes_(bytes) {}
  template <class Figure>
  Figure next() {
    static_assert(std::is_trivially_copyable_v<Figure>);
    check(bytes_.size() - position_ >= sizeof(Figure), "a report of a device is cut off");
    Figure figure;
    std::memcpy(&figure, bytes_.data() + position_, sizeof(Figure));
    position_ += sizeof(Figure);
    return figure;
  }

 private:
  std::span<const std::byte> bytes_;
  std::size_t position_ = 0;
};

Payload packed(const DeviceMeasurements& measured) {
  Packer packer;
  packer.add(measured.sent);
  for (const MeasuredIteration& run : measured.iterations) {
    packer.add(run.start);
    packer.add(run.actions.size());
    for (const MeasuredAction& action : run.actions) packer.add(action);
  }
  return packer.take();
}

DeviceMeasurements unpacked(const Payload& payload, std::size_t iterations) {
  Unpacker unpacker(payload.host());
  DeviceMeasurements measured{.sent = unpacker.next<Bytes>(), .iterations = {}};
  for (std::size_t i = 0; i < iterations; ++i) {
    MeasuredIteration& run = measured.iterations.emplace_back();
    run.start = unpacker.next<std::int64_t>();
    const auto actions = unpacker.next<std::size_t>();
    for (std::size_t k = 0; k < actions; ++k) {
      run.actions.push_back(unpacker.next<MeasuredAction>());
    }
  }
  return measured;
}

/// Converts times to durations since the start of an iteration, divided by the pace.
class Scale {
 public:
  Scale(const std::vector<DeviceMeasurements>& all, std::size_t iteration, Factor pace)
      : pace_(pace) {
    for (const DeviceMeasurements& device : all) {
      zero_ = std::min(zero_, device.iterations[iteration].start);
    }
  }
  Duration at(std::int64_t moment) const {
    return {divide_down(Wide{moment - zero_} * kOne.billionths, pace_.billionths)};
  }

 private:
  Factor pace_;
  std::int64_t zero_ = INT64_MAX;
};

Duration length_of(const std::vector<DeviceMeasurements>& all, std::size_t iteration, Factor pace) {
  const Scale scale(all, iteration, pace);
  Duration length;
  for (const DeviceMeasurements& device : all) {
    for (const MeasuredAction& action : device.iterations[iteration].actions) {
      length = std::max(length, scale.at(action.end));
    }
  }
  return length;
}

Timeline timeline_of(const std::vector<DeviceMeasurements>& all,
                     const std::vector<DeviceSchedule>& devices, std::size_t iteration,
                     Factor pace) {
  const Scale scale(all, iteration, pace);
  Timeline timeline;
  timeline.origin = Timeline::Origin::Measured;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const auto lane = index_at<LaneIndex>(i);
    timeline.lanes.push_back({devices[i].stages, {devices[i].device}});
    for (const MeasuredAction& action : all[i].iterations[iteration].actions) {
      timeline.actions.push_back({.lane = lane,
                                  .action = action.action,
                                  .start = scale.at(action.start),
                                  .end = scale.at(action.end),
                                  .size = action.size});
    }
  }
  sort_actions(timeline);
  return timeline;
}

MeasuredRun summary(const std::vector<DeviceMeasurements>& all,
                    const std::vector<DeviceSchedule>& devices, Factor pace) {
  MeasuredRun run;
  std::vector<std::pair<Duration, std::size_t>> order;
  for (std::size_t i = 0; i < all.front().iterations.size(); ++i) {
    run.iterations.push_back(length_of(all, i, pace));
    order.emplace_back(run.iterations.back(), i);
  }
  std::sort(order.begin(), order.end());
  const auto& [median, number] = order[(order.size() - 1) / 2];
  run.median = median;
  run.timeline = timeline_of(all, devices, number, pace);
  for (const DeviceMeasurements& device : all) run.sent += device.sent;
  run.sent = {run.sent.count / static_cast<std::int64_t>(run.iterations.size())};
  return run;
}

}  // namespace

MeasuredIteration measure(Interpreter& interpreter, std::int64_t iteration, Transport& transport) {
  const std::int64_t offset = transport.clock_offset();
  transport.barrier();
  MeasuredIteration measured{.start = monotonic_now() + offset, .actions = {}};
  measured.actions = interpreter.run(iteration);
  for (MeasuredAction& action : measured.actions) {
    action.start += offset;
    action.end += offset;
  }
  return measured;
}

std::optional<MeasuredRun> gather(const DeviceMeasurements& own,
                                  const std::vector<DeviceSchedule>& devices, std::size_t place,
                                  std::int64_t iteration, Factor pace, Transport& transport) {
  MessageKey key{.iteration = iteration,
                 .action = {},
                 .step = 0,
                 .from = devices[place].device,
                 .to = devices.front().device};
  if (place > 0) {
    transport.send(key, packed(own));
    transport.barrier();
    return std::nullopt;
  }
  std::vector<DeviceMeasurements> all{own};
  for (std::size_t other = 1; other < devices.size(); ++other) {
    key.from = devices[other].device;
    all.push_back(unpacked(transport.receive(key, {}), own.iterations.size()));
  }
  transport.barrier();
  return summary(all, devices, pace);
}

}  // namespace dapple::exec
