#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "dapple/io/documents/documents.h"
#include "dapple/io/json/json_reader.h"
#include "dapple/profile/limits.h"
#include "io/documents/plan_parts.h"
#include "io/runtime/runtime_json.h"

namespace dapple::io {
namespace {

/// The devices that occur in the timeline, each as a lane of its own.
class Lanes {
 public:
  Lanes(const Topology& topology, Timeline& timeline) : topology_(topology), timeline_(timeline) {}

  std::optional<LaneIndex> read(const Field& field) {
    const std::optional<std::string> name = read_text(field);
    if (!name) return std::nullopt;
    const std::optional<DeviceIndex> device = topology_.find_device(*name);
    if (!device) {
      field.refuse("the name of a device of the plan's topology, such as \"node0:3\"");
      return std::nullopt;
    }
    const auto next = index_at<LaneIndex>(timeline_.lanes.size());
    const auto [found, is_new] = lanes_.emplace(*device, next);
    if (is_new) timeline_.lanes.push_back({{}, {*device}});
    return found->second;
  }

  void add_stage(LaneIndex lane, StageIndex stage) {
    std::vector<StageIndex>& stages = timeline_.lanes[lane.position()].stages;
    const auto place = std::lower_bound(stages.begin(), stages.end(), stage);
    if (place == stages.end() || *place != stage) stages.insert(place, stage);
  }

 private:
  const Topology& topology_;
  Timeline& timeline_;
  std::map<DeviceIndex, LaneIndex> lanes_;
};

std::optional<Action> read_action(const Field& field) {
  constexpr const char* kExpected = "an action such as \"2F0\"";
  const JsonValue* value = field.value_of_kind(JsonValue::Kind::Text);
  if (value == nullptr) {
    field.refuse(kExpected);
    return std::nullopt;
  }
  try {
    const std::vector<Action> actions = parse_actions(value->text);
    if (actions.size() == 1 && to_text(actions.front()) == value->text) return actions.front();
  } catch (const Error&) {}  // rejected below, like any other text that is not one action
  field.refuse(kExpected);
  return std::nullopt;
}

void read_timed_action(const Field& field, Lanes& lanes, Timeline& timeline) {
  ObjectReader object(field);
  const std::optional<LaneIndex> lane = lanes.read(object.field("device"));
  const Field stream = object.field("stream");
  const std::optional<Action> action = read_action(object.field("action"));
  const std::optional<std::int64_t> start = read_integer(object.field("start_ns"), {});
  const Field end_field = object.field("end_ns");
  const std::optional<std::int64_t> end = read_integer(end_field, {});
  const Field bytes = object.field("bytes");
  const std::int64_t size = bytes.present() ? required_integer(bytes, {1, kMaxCount}) : 0;
  object.finish();
  if (!lane || !action || !start || !end) return;
  const std::string_view expected = to_string(stream_of(action->kind));
  if (stream_of(action->kind) == Stream::None || !read_choice(stream, {expected})) return;
  if (*end < *start) {
    end_field.add(fmt::format("expected no less than start_ns, {}, got {}", *start, *end));
    return;
  }
  lanes.add_stage(*lane, action->stage);
  timeline.actions.push_back({.lane = *lane,
                              .action = *action,
                              .start = Duration{*start},
                              .end = Duration{*end},
                              .size = Bytes{size}});
}

StageMemory read_figures(ObjectReader& object) {
  StageMemory figures;
  figures.per_micro_batch.count = required_integer(object.field("bytes_per_micro_batch"), {});
  figures.recompute_stash.count = required_integer(object.field("recompute_bytes"), {});
  return figures;
}

/// Reads the memory of a device. The peak is checked but not stored, as it follows from the other
/// figures and the actions.
void read_memory(const Field& field, Lanes& lanes, Timeline& timeline) {
  ObjectReader object(field);
  const std::optional<LaneIndex> lane = lanes.read(object.field("device"));
  DeviceMemory memory;
  memory.fixed.count = required_integer(object.field("fixed_bytes"), {});
  const StageMemory together = read_figures(object);
  const Field stages = object.field("stages");
  required_integer(object.field("peak_bytes"), {});
  memory.limit.count = required_integer(object.field("limit_bytes"), {});
  if (stages.present()) {
    const ArrayReader array(stages, "an array of stages");
    for (std::size_t i = 0; i < array.size(); ++i) {
      ObjectReader stage(array.at(i));
      const auto number = required_integer(stage.field("stage"), {0, kMaxLayers});
      memory.stages.push_back(read_figures(stage));
      memory.stages.back().stage = StageIndex{static_cast<std::int32_t>(number)};
      stage.finish();
    }
  } else {
    memory.stages.push_back(together);
  }
  object.finish();
  if (!lane) return;
  const Timeline::LaneName& name = timeline.lanes[lane->position()];
  memory.lane = *lane;
  memory.device = name.devices.front();
  if (!stages.present() && !name.stages.empty()) memory.stages.front().stage = name.stages.front();
  timeline.memory.push_back(std::move(memory));
}

/// Returns an upper bound on the peak of a device with so many actions: as if each action began to
/// hold the largest stash of any stage, and none let go of any.
Wide most_memory(const DeviceMemory& memory, std::int64_t actions) {
  Bytes largest;
  for (const StageMemory& stage : memory.stages) {
    largest = std::max(largest, stage.per_micro_batch + stage.recompute_stash);
  }
  return Wide{memory.fixed.count} + Wide{largest.count} * actions;
}

/// Refuses memory of which the peaks, which follow from it, are larger than sizes may be.
void check_peaks(const ArrayReader& list, const Timeline& timeline) {
  std::vector<std::int64_t> actions(timeline.lanes.size(), 0);
  for (const TimedAction& action : timeline.actions) ++actions[action.lane.position()];
  for (std::size_t i = 0; i < timeline.memory.size(); ++i) {
    const DeviceMemory& memory = timeline.memory[i];
    const Wide most = most_memory(memory, actions[memory.lane.position()]);
    if (most <= kMaxCount) continue;
    const bool has_peak = most <= std::numeric_limits<std::int64_t>::max();
    if (has_peak && peak_memory(timeline, memory).count <= kMaxCount) continue;
    list.at(i).add(
        fmt::format("expected memory with a peak of at most {} bytes, got more", kMaxCount));
  }
}

/// Reads which stages send to others than the next one.
void read_skips(const Field& field, Timeline& timeline) {
  const ArrayReader skips(field, "an array of pairs of stages");
  for (std::size_t i = 0; i < skips.size(); ++i) {
    const Field pair = skips.at(i);
    const ArrayReader stages(pair, "two stages");
    if (!stages.valid()) continue;
    if (stages.size() != 2) {
      pair.refuse("two stages");
      continue;
    }
    const std::int64_t from = required_integer(stages.at(0), {0, kMaxLayers});
    const std::int64_t to = required_integer(stages.at(1), {0, kMaxLayers});
    if (to < from + 2) pair.refuse("a stage, and one further on than the next");
    timeline.skips.emplace_back(StageIndex{static_cast<std::int32_t>(from)},
                                StageIndex{static_cast<std::int32_t>(to)});
  }
}

}  // namespace

Timeline read_timeline(std::string_view text, const std::string& source_name,
                       const Topology& topology, const std::string& plan_sha256) {
  return read_document<Timeline>(text, source_name, [&](const Field& field) {
    ObjectReader object(field);
    Timeline timeline;
    if (!check_schema(object, "dapple-timeline/1")) return timeline;
    if (!is_of_plan(object.field("plan_sha256"), plan_sha256)) return timeline;
    Lanes lanes(topology, timeline);
    const bool is_measured = read_choice(object.field("origin"), {"predicted", "measured"}) == 1U;
    read_choice(object.field("clock"), {"simulated", "wall"});
    timeline.origin = is_measured ? Timeline::Origin::Measured : Timeline::Origin::Predicted;
    if (const Field transfers = object.field("transfers"); transfers.present()) {
      timeline.transfers = read_transfers(transfers);
    }
    if (const Field skips = object.field("skips"); skips.present()) read_skips(skips, timeline);
    const ArrayReader actions(object.field("actions"), "an array of actions");
    for (std::size_t i = 0; i < actions.size(); ++i) {
      read_timed_action(actions.at(i), lanes, timeline);
    }
    const ArrayReader memory(object.field("memory"), "an array of devices");
    for (std::size_t i = 0; i < memory.size(); ++i) { read_memory(memory.at(i), lanes, timeline); }
    object.finish();
    sort_actions(timeline);
    if (timeline.memory.size() == memory.size()) check_peaks(memory, timeline);
    return timeline;
  });
}

}  // namespace dapple::io
