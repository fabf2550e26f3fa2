#include "report/page_content.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "dapple/report/show.h"
#include "dapple/timeline/statistics.h"
#include "report/figures.h"
#include "report/palette.h"

namespace dapple::report {
namespace {

using Json = nlohmann::ordered_json;
using Column = std::vector<std::int64_t>;

/// Escapes the characters with which a script element could be closed or another one opened. In
/// JSON they occur in strings only.
std::string safe_in_script(const Json& json) {
  const std::string plain =
      json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  std::string text;
  text.reserve(plain.size());
  for (const char c : plain) {
    switch (c) {
      case '<':
        text += "\\u003c";
        break;
      case '>':
        text += "\\u003e";
        break;
      case '&':
        text += "\\u0026";
        break;
      default:
        text += c;
    }
  }
  return text;
}

Json title_of(const PlanDocument& document) {
  const Plan& plan = document.plan;
  return {{"name", printable(document.profile.name)},
          {"topology", printable(document.topology.name)},
          {"shape", shape_of(plan)},
          {"schedule", show_ways(plan)},
          {"batches",
           fmt::format("global batch {} = {} micro-batch{} of {}",
                       show_count(plan.global_batch_size), show_count(plan.num_micro_batches),
                       plan.num_micro_batches == 1 ? "" : "es", show_count(plan.micro_batch_size))},
          {"tool", printable(document.tool)}};
}

Json figures_of(const ReportSubject& subject) {
  std::vector<Figure> all = headline(subject.document, subject.topology);
  for (Figure& figure : figures_of_jitter(subject.document)) all.push_back(std::move(figure));
  Json figures = Json::array();
  for (const Figure& figure : all) {
    figures.push_back({{"name", figure.name}, {"value", figure.value}});
  }
  return figures;
}

Json kinds_of() {
  Json kinds = Json::array();
  for (const KindStyle& style : kind_styles()) {
    kinds.push_back({{"name", to_string(style.kind)},
                     {"words", style.words},
                     {"stream", static_cast<int>(stream_of(style.kind))},
                     {"tone", static_cast<int>(style.tone)},
                     {"numbered", style.has_number}});
  }
  return kinds;
}

/// Returns the colours as an array indexed [ground][tone][hue].
Json colors_of() {
  using Tone = KindStyle::Tone;
  Json grounds = Json::array();
  for (const Ground ground : {Ground::Light, Ground::Dark}) {
    Json tones = Json::array();
    for (const Tone tone : {Tone::Light, Tone::Middle, Tone::Strong, Tone::Neutral}) {
      Json hues = Json::array();
      for (std::int32_t hue = 0; hue < kHues; ++hue) {
        hues.push_back(color_of(tone, StageIndex{hue}, ground));
      }
      tones.push_back(std::move(hues));
    }
    grounds.push_back(std::move(tones));
  }
  return grounds;
}

std::string mean_transfer(const Timeline& timeline, StageIndex stage, Duration longest) {
  Duration sum;
  std::int64_t count = 0;
  for (const TimedAction& timed : timeline.actions) {
    if (timed.action.kind != ActionKind::SendActivation || timed.action.stage != stage) {
      continue;
    }
    sum += timed.end - timed.start;
    ++count;
  }
  return count == 0 ? "-" : show(Duration{divide_up(sum.ns, count)}, longest);
}

Json stages_of(const ReportSubject& subject) {
  const auto& [document, timeline, topology] = subject;
  Json stages = Json::array();
  const LongestTimes longest = longest_times(document.prediction.stages);
  for (std::size_t s = 0; s < document.plan.stages.size(); ++s) {
    const StagePlan& stage = document.plan.stages[s];
    const StageFigures& figures = document.prediction.stages[s];
    const bool sends = s + 1 < document.plan.stages.size();
    Json row{
        {"layers", show_layers(stage.layers, document.profile)},
        {"layerCount", stage.layers.size()},
        {"devices", show_devices(stage.devices, topology)},
        {"deviceCount", topology.description().group_size == 1
                            ? Json(stage.devices.size())
                            : Json(show_device_count(stage.devices.size(), topology))},
        {"samples", samples_text(document.plan, stage)},
        {"forward", show(figures.forward, longest.pass)},
        {"backward", show(figures.backward, longest.pass)},
        {"sends", sends ? show(figures.send) : "-"},
        {"transfer", sends ? mean_transfer(timeline, index_at<StageIndex>(s), longest.pass) : "-"},
        {"allReduce", replicas_of(stage) > 1 ? show(figures.all_reduce, longest.end) : "-"},
        {"step", show(figures.optimizer_step, longest.end)},
        {"depth", depth_on_replica(document.plan, index_at<StageIndex>(s))},
        {"recomputes", stage.recompute}};
    if (!document.plan.stage_forms.empty()) {
      row["parallelism"] = short_text(form_of(document.plan, stage));
    }
    if (const std::optional<DeviceFigures> device = fullest_device(stage, document.prediction)) {
      row["memory"] = show_part(device->peak_memory, device->memory_limit, " of ");
      row["peakBytes"] = device->peak_memory.count;
      row["limitBytes"] = device->memory_limit.count;
    }
    stages.push_back(std::move(row));
  }
  return stages;
}

struct LaneColumns {
  Column kind, stage, index, row, start, length, bytes;
};

struct EncodedLanes {
  std::vector<LaneColumns> lanes;
  // The position of each action of the timeline in the columns of its lane.
  std::vector<std::size_t> places;
};

EncodedLanes encode(const Timeline& timeline) {
  struct Before {
    std::int64_t stage = 0;
    std::int64_t start = 0;
    // The length and bytes of the previous action of each kind.
    std::map<std::int64_t, std::pair<std::int64_t, std::int64_t>> by_kind;
  };
  EncodedLanes encoded;
  encoded.lanes.resize(timeline.lanes.size());
  std::vector<Before> befores(timeline.lanes.size());
  const std::vector<std::int32_t> rows = rows_of(timeline);
  for (std::size_t i = 0; i < timeline.actions.size(); ++i) {
    const TimedAction& timed = timeline.actions[i];
    LaneColumns& columns = encoded.lanes[timed.lane.position()];
    Before& before = befores[timed.lane.position()];
    const std::int64_t kind = &style_of(timed.action.kind) - kind_styles().data();
    const std::int64_t stage = timed.action.stage.value;
    const std::int64_t length = (timed.end - timed.start).ns;
    auto& [length_before, bytes_before] = before.by_kind[kind];
    encoded.places.push_back(columns.kind.size());
    columns.kind.push_back(kind);
    columns.stage.push_back(stage - std::exchange(before.stage, stage));
    columns.index.push_back(timed.action.index);
    columns.row.push_back(rows[i]);
    columns.start.push_back(timed.start.ns - std::exchange(before.start, timed.start.ns));
    columns.length.push_back(length - std::exchange(length_before, length));
    columns.bytes.push_back(timed.size.count - std::exchange(bytes_before, timed.size.count));
  }
  return encoded;
}

std::vector<std::int32_t> numbers_of(const std::vector<StageIndex>& stages) {
  std::vector<std::int32_t> numbers;
  for (const StageIndex stage : stages) numbers.push_back(stage.value);
  return numbers;
}

Json lanes_of(const ReportSubject& subject, EncodedLanes& encoded) {
  Json lanes = Json::array();
  for (std::size_t l = 0; l < encoded.lanes.size(); ++l) {
    LaneColumns& columns = encoded.lanes[l];
    const Timeline::LaneName& lane = subject.timeline.lanes[l];
    const auto index = index_at<LaneIndex>(l);
    lanes.push_back({{"title", lane_title(subject.timeline, index)},
                     {"home", home_stage(subject.timeline, index).value},
                     {"holds", numbers_of(lane.stages)},
                     {"devices", show_devices(lane.devices, subject.topology)},
                     {"deviceCount", lane.devices.size()},
                     {"kind", std::move(columns.kind)},
                     {"stage", std::move(columns.stage)},
                     {"index", std::move(columns.index)},
                     {"row", std::move(columns.row)},
                     {"start", std::move(columns.start)},
                     {"length", std::move(columns.length)},
                     {"bytes", std::move(columns.bytes)}});
  }
  return lanes;
}

bool holds_alike(const DeviceMemory& a, const DeviceMemory& b) {
  return a.lane == b.lane && a.fixed == b.fixed && a.stages == b.stages && a.limit == b.limit;
}

/// Returns the memory over time of the devices; neighbouring devices of a lane whose memory is the
/// same share a row.
Json memory_of(const ReportSubject& subject) {
  const std::vector<DeviceMemory>& memory = subject.timeline.memory;
  Json rows = Json::array();
  for (std::size_t first = 0; first < memory.size();) {
    std::vector<DeviceIndex> devices;
    std::size_t next = first;
    for (; next < memory.size() && holds_alike(memory[first], memory[next]); ++next) {
      devices.push_back(memory[next].device);
    }
    Column time, held;
    MemoryPoint before;
    for (const MemoryPoint& point : memory_over_time(subject.timeline, memory[first])) {
      time.push_back((point.time - before.time).ns);
      held.push_back((point.held - before.held).count);
      before = point;
    }
    rows.push_back({{"lane", memory[first].lane.value},
                    {"devices", show_devices(devices, subject.topology)},
                    {"limit", memory[first].limit.count},
                    {"time", std::move(time)},
                    {"held", std::move(held)}});
    first = next;
  }
  return rows;
}

Json path_of(const Timeline& timeline, const std::vector<PathSegment>& path,
             const std::vector<std::size_t>& places) {
  Column segments;
  for (const PathSegment& segment : path) {
    const bool is_explained = segment.action.has_value();
    segments.push_back(is_explained ? timeline.actions[*segment.action].lane.value : -1);
    segments.push_back(is_explained ? static_cast<std::int64_t>(places[*segment.action]) : -1);
    segments.push_back(segment.begin.ns);
    segments.push_back(segment.end.ns);
  }
  Json shares = Json::array();
  for (const PathShare& share : shares_of(timeline, path)) {
    Json row{{"words", share.kind ? style_of(*share.kind).words : "unexplained"},
             {"ns", share.time.ns}};
    if (share.kind) row["kind"] = to_string(*share.kind);
    shares.push_back(std::move(row));
  }
  return {{"segments", std::move(segments)}, {"shares", std::move(shares)}};
}

Json idle_json(const IdleTime& idle) {
  Json parts = Json::array();
  for (const IdleCause& cause : kIdleCauses) parts.push_back((idle.*cause.part).ns);
  return parts;
}

Json statistics_of(const Timeline& timeline, const std::vector<LaneStatistics>& statistics) {
  Json causes = Json::array();
  for (const IdleCause& cause : kIdleCauses) causes.push_back(cause.name);
  Json lanes = Json::array();
  for (const LaneStatistics& lane : statistics) {
    lanes.push_back({{"busy", lane.busy.ns},
                     {"idle", idle_json(lane.idle)},
                     {"communicating", lane.communicating.ns},
                     {"exposed", lane.exposed.ns}});
  }
  Json slow = Json::array();
  for (const LaneIndex lane : stragglers(statistics)) slow.push_back(lane.value);
  return {{"causes", std::move(causes)},
          {"lanes", std::move(lanes)},
          {"idleDeviceTime", idle_json(idle_device_time(timeline, statistics))},
          {"stragglers", std::move(slow)}};
}

Json baselines_of(const PlanDocument& document) {
  const Prediction& ours = document.prediction;
  Json rows = Json::array();
  for (const Baseline& baseline : document.baselines) {
    rows.push_back({{"name", printable(baseline.name)},
                    {"shape", printable(baseline.shape)},
                    {"ns", baseline.iteration.ns},
                    {"iteration", show(baseline.iteration, ours.iteration)},
                    {"factor", factor_text(baseline.iteration, ours.iteration)},
                    {"fits", baseline.feasible},
                    {"reason", loses_by(baseline, ours, CauseCount::All)}});
  }
  return rows;
}

/// Returns the row of a schedule family or a form of parallelism that was considered.
template <class Record>
Json row_of(const Record& record, std::string_view name, bool is_chosen, Duration iteration) {
  const auto time_text = [&](const std::optional<Duration>& time) {
    return time ? show(*time, iteration) : std::string("-");
  };
  return {{"name", name},
          {"shape", printable(record.shape)},
          {"best", record.missing.count > 0 ? "lacks " + show(record.missing)
                                            : time_text(record.iteration)},
          {"bound", time_text(record.lower_bound)},
          {"chosen", is_chosen},
          {"reason", printable(record.reason)}};
}

/// Returns what is known of each schedule family that was considered.
Json schedules_of(const PlanDocument& document) {
  Json rows = Json::array();
  for (const ScheduleRecord& record : document.schedules) {
    rows.push_back(row_of(record, to_string(record.family),
                          record.family == recorded_family(document.plan.family),
                          document.prediction.iteration));
  }
  return rows;
}

/// Returns what is known of each form of parallelism that was considered.
Json parallelisms_of(const PlanDocument& document) {
  Json rows = Json::array();
  for (const ParallelismRecord& record : document.parallelisms) {
    rows.push_back(row_of(record, show_forms(record), is_of(record, document.plan),
                          document.prediction.iteration));
  }
  return rows;
}

/// Returns the servers with the stages of each of their devices; an idle device has none.
Json servers_of(const ReportSubject& subject) {
  std::vector<std::vector<std::int32_t>> stages(
      static_cast<std::size_t>(subject.topology.device_count()));
  const std::vector<StagePlan>& plan = subject.document.plan.stages;
  for (std::size_t s = 0; s < plan.size(); ++s) {
    for (const DeviceIndex device : plan[s].devices) {
      stages[device.position()].push_back(static_cast<std::int32_t>(s));
    }
  }
  Json servers = Json::array();
  for (std::int32_t s = 0; s < subject.topology.server_count(); ++s) {
    const Server& server = subject.topology.server(ServerIndex{s});
    const auto first = stages.begin() + server.first_device.value;
    servers.push_back({{"name", printable(server.name)},
                       {"kind", printable(subject.topology.kind_of(server.first_device).name)},
                       {"stages", std::vector(first, first + server.device_count)}});
  }
  return servers;
}

Json printable_lines(const std::vector<std::string>& lines) {
  Json texts = Json::array();
  for (const std::string& line : lines) texts.push_back(printable(line));
  return texts;
}

}  // namespace

std::string page_content(const ReportSubject& subject) {
  EncodedLanes encoded = encode(subject.timeline);
  const TimelineAnalysis analysis = analyse(subject.timeline);
  const PlanDocument& document = subject.document;
  const bool is_measured = subject.timeline.origin == Timeline::Origin::Measured;
  Json content{{"title", title_of(document)},
               {"origin", is_measured ? "measured" : "simulated"},
               {"iteration", iteration_time(subject.timeline).ns},
               {"planIteration", document.prediction.iteration.ns},
               {"figures", figures_of(subject)},
               {"kinds", kinds_of()},
               {"colors", colors_of()},
               {"stages", stages_of(subject)},
               {"lanes", lanes_of(subject, encoded)},
               {"memory", memory_of(subject)},
               {"path", path_of(subject.timeline, analysis.path, encoded.places)},
               {"statistics", statistics_of(subject.timeline, analysis.lanes)},
               {"baselines", baselines_of(document)},
               {"schedules", schedules_of(document)},
               {"parallelisms", parallelisms_of(document)},
               {"servers", servers_of(subject)},
               {"groupSize", subject.topology.description().group_size},
               {"serversOfGroup", subject.topology.description().servers_of_group},
               {"search", printable_lines(search_lines(document.search))},
               {"warnings", printable_lines(document.warnings)}};
  return safe_in_script(content);
}

}  // namespace dapple::report
