#include <algorithm>
#include <catch2/catch.hpp>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "documents_under_test.h"

namespace dapple::test {
namespace {

/// One micro-batch through two stages of one device each, its activations sent in between.
Timeline small_timeline() {
  Timeline timeline;
  timeline.lanes = {{{StageIndex{0}}, {DeviceIndex{0}}},
                    {{StageIndex{1}}, {DeviceIndex{2}, DeviceIndex{3}}}};
  timeline.actions = {
      {LaneIndex{0}, {ActionKind::Forward, 0}, {0}, {1'500}, {0}},
      {LaneIndex{0}, {ActionKind::SendActivation, 0}, {1'500}, {2'001}, {16}},
      {LaneIndex{1}, {ActionKind::Forward, 0, StageIndex{1}}, {2'001}, {3'000}, {0}},
      {LaneIndex{1}, {ActionKind::Backward, 0, StageIndex{1}}, {3'000}, {5'000}, {0}},
      {LaneIndex{1}, {ActionKind::AllReduce, 0, StageIndex{1}}, {5'000}, {5'400}, {400}},
      {LaneIndex{1}, {ActionKind::OptimizerStep, 0, StageIndex{1}}, {5'400}, {5'402}, {0}},
  };
  timeline.memory = {{DeviceIndex{2}, LaneIndex{1}, {100}, {{StageIndex{1}, {10}, {5}}}, {1'000}}};
  return timeline;
}

TEST_CASE("a timeline has a line for each action on each device") {
  const Topology topology(io::read_topology(kTopologyText, "t"));
  CHECK(whole_text(io::write_timeline(small_timeline(), topology, "abc")) == R"({
  "schema": "dapple-timeline/1",
  "plan_sha256": "abc",
  "origin": "predicted",
  "clock": "simulated",
  "actions": [
    {"device": "n0:0", "stream": "compute", "action": "0F0", "start_ns": 0, "end_ns": 1500},
    {"device": "n0:0", "stream": "send_forward", "action": "0SEND_F0", "start_ns": 1500, "end_ns": 2001, "bytes": 16},
    {"device": "n1:0", "stream": "compute", "action": "1F0", "start_ns": 2001, "end_ns": 3000},
    {"device": "n1:1", "stream": "compute", "action": "1F0", "start_ns": 2001, "end_ns": 3000},
    {"device": "n1:0", "stream": "compute", "action": "1B0", "start_ns": 3000, "end_ns": 5000},
    {"device": "n1:1", "stream": "compute", "action": "1B0", "start_ns": 3000, "end_ns": 5000},
    {"device": "n1:0", "stream": "collective", "action": "1REDUCE_GRAD0", "start_ns": 5000, "end_ns": 5400, "bytes": 400},
    {"device": "n1:1", "stream": "collective", "action": "1REDUCE_GRAD0", "start_ns": 5000, "end_ns": 5400, "bytes": 400},
    {"device": "n1:0", "stream": "compute", "action": "1STEP", "start_ns": 5400, "end_ns": 5402},
    {"device": "n1:1", "stream": "compute", "action": "1STEP", "start_ns": 5400, "end_ns": 5402}
  ],
  "memory": [
    {"device": "n1:0", "fixed_bytes": 100, "bytes_per_micro_batch": 10, "recompute_bytes": 5, "peak_bytes": 115, "limit_bytes": 1000}
  ]
}
)");
}

TEST_CASE("a timeline is refused whose memory has a peak above what sizes may be") {
  const Topology topology(io::read_topology(kTopologyText, "t"));
  const std::string hash(64, 'a');
  const std::string text = whole_text(io::write_timeline(small_timeline(), topology, hash));
  const auto with = [&](std::int64_t fixed, std::int64_t per_micro_batch) {
    std::string changed = text;
    const auto replace = [&](const std::string& from, const std::string& to) {
      changed.replace(changed.find(from), from.size(), to);
    };
    replace("\"fixed_bytes\": 100", "\"fixed_bytes\": " + std::to_string(fixed));
    replace("\"bytes_per_micro_batch\": 10",
            "\"bytes_per_micro_batch\": " + std::to_string(per_micro_batch));
    return changed;
  };
  // One micro-batch in flight, and 5 bytes beside its stash.
  for (const auto& [fixed, stash] :
       {std::pair{kMaxCount - 15, std::int64_t{10}}, std::pair{std::int64_t{0}, kMaxCount - 5}}) {
    const Timeline timeline = io::read_timeline(with(fixed, stash), "f.json", topology, hash);
    CHECK(peak_memory(timeline, timeline.memory.front()).count == kMaxCount);
  }
  for (const auto& [fixed, stash] :
       {std::pair{kMaxCount - 15, std::int64_t{11}}, std::pair{kMaxCount, std::int64_t{1}},
        std::pair{kMaxCount, kMaxCount}}) {
    const std::string changed = with(fixed, stash);
    CHECK(
        faults([&] { io::read_timeline(changed, "f.json", topology, hash); }) ==
        std::vector<std::string>{
            "/memory/0: expected memory with a peak of at most 1000000000000000 bytes, got more"});
  }
}

TEST_CASE("a timeline that was written is read with a lane for each device") {
  const Topology topology(io::read_topology(kTopologyText, "t"));
  const std::string hash(64, 'a');
  const std::string text = whole_text(io::write_timeline(small_timeline(), topology, hash));
  const Timeline timeline = io::read_timeline(text, "f.json", topology, hash);
  CHECK(timeline.origin == Timeline::Origin::Predicted);
  REQUIRE(timeline.lanes.size() == 3);
  CHECK(timeline.lanes[1].stages == std::vector{StageIndex{1}});
  CHECK(timeline.lanes[1].devices == std::vector{DeviceIndex{2}});
  CHECK(timeline.actions.size() == 10);
  CHECK(timeline.memory.front().stages == small_timeline().memory.front().stages);
  CHECK(whole_text(io::write_timeline(timeline, topology, hash)) == text);
}

TEST_CASE("faults of a timeline are named by their places") {
  const Topology topology(io::read_topology(kTopologyText, "t"));
  const std::string sound =
      whole_text(io::write_timeline(small_timeline(), topology, std::string(64, 'a')));
  const auto fault_of = [&](const std::string& part, const std::string& instead) {
    std::string text = sound;
    text.replace(text.find(part), part.size(), instead);
    try {
      io::read_timeline(text, "f", topology, std::string(64, 'a'));
    } catch (const Error& error) { return std::string(error.what()); }
    return std::string("none");
  };
  CHECK(fault_of("\"n0:0\"", "\"n0:7\"") ==
        "f: /actions/0/device: expected the name of a device of the plan's topology, such as "
        "\"node0:3\", got \"n0:7\"");
  CHECK(fault_of("\"0F0\"", "\"0X0\"") ==
        "f: /actions/0/action: expected an action such as \"2F0\", got \"0X0\"");
  CHECK(fault_of("\"0F0\"", "\"0F0 0F1\"") ==
        "f: /actions/0/action: expected an action such as \"2F0\", got \"0F0 0F1\"");
  CHECK(fault_of("\"compute\"", "\"collective\"") ==
        "f: /actions/0/stream: expected \"compute\", got \"collective\"");
  CHECK(fault_of("\"end_ns\": 2001", "\"end_ns\": 1") ==
        "f: /actions/1/end_ns: expected no less than start_ns, 1500, got 1");
  CHECK(fault_of("\"start_ns\": 0", "\"start_ns\": -1") ==
        "f: /actions/0/start_ns: expected an integer from 0 to 1000000000000000, got -1");
  CHECK(fault_of("\"end_ns\": 2001", "\"end_ns\": 1e99") ==
        "f: /actions/1/end_ns: expected an integer from 0 to 1000000000000000, got 1e99");
  CHECK(fault_of("aaaa", "zzzz") ==
        "f: /plan_sha256: expected 64 hexadecimal digits, got "
        "\"zzzz" +
            std::string(60, 'a') + "\"");
  // The timeline of another plan is refused before its actions are read.
  std::string other = sound;
  other.replace(other.find("aaaa"), 4, "bbbb");
  other.replace(other.find("\"n0:0\""), 6, "\"n0:7\"");
  CHECK(
      fault_of(sound, other) ==
      "f: /plan_sha256: expected aaaaaaaaaaaa..., the hash of the plan, got bbbbaaaaaaaa..., that "
      "of another one");
  CHECK(fault_of("\"limit_bytes\": 1000", "\"limit\": 1000").find("/memory/0") !=
        std::string::npos);
}

TEST_CASE("a trace has names, actions in microseconds, and what a device holds") {
  const Topology topology(io::read_topology(kTopologyText, "t"));
  Timeline timeline = small_timeline();
  timeline.actions.resize(3);
  timeline.lanes[1].devices.pop_back();
  timeline.memory[0].stages[0].recompute_stash = {0};
  // Two used devices, four tracks each; device 2 is in the second server: process 2.
  // The arrow begins with the message and ends with the forward that takes it in.
  CHECK(whole_text(io::write_trace(timeline, topology)) == R"({
  "displayTimeUnit": "ns",
  "traceEvents": [
    {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "n0"}},
    {"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "args": {"name": "n0:0 compute"}},
    {"ph": "M", "name": "thread_name", "pid": 1, "tid": 2, "args": {"name": "n0:0 send forward"}},
    {"ph": "M", "name": "thread_name", "pid": 1, "tid": 3, "args": {"name": "n0:0 send backward"}},
    {"ph": "M", "name": "thread_name", "pid": 1, "tid": 4, "args": {"name": "n0:0 all-reduce"}},
    {"ph": "M", "name": "process_name", "pid": 2, "args": {"name": "n1"}},
    {"ph": "M", "name": "thread_name", "pid": 2, "tid": 5, "args": {"name": "n1:0 compute"}},
    {"ph": "M", "name": "thread_name", "pid": 2, "tid": 6, "args": {"name": "n1:0 send forward"}},
    {"ph": "M", "name": "thread_name", "pid": 2, "tid": 7, "args": {"name": "n1:0 send backward"}},
    {"ph": "M", "name": "thread_name", "pid": 2, "tid": 8, "args": {"name": "n1:0 all-reduce"}},
    {"ph": "X", "name": "F0", "cat": "compute", "ts": 0.000, "dur": 1.500, "pid": 1, "tid": 1, "args": {"stage": 0, "mb": 0}},
    {"ph": "X", "name": "SEND_F0", "cat": "transfer", "ts": 1.500, "dur": 0.501, "pid": 1, "tid": 2, "args": {"stage": 0, "mb": 0, "bytes": 16}},
    {"ph": "s", "id": 1, "name": "SEND_F0", "cat": "transfer", "ts": 1.500, "pid": 1, "tid": 2},
    {"ph": "X", "name": "F0", "cat": "compute", "ts": 2.001, "dur": 0.999, "pid": 2, "tid": 5, "args": {"stage": 1, "mb": 0}},
    {"ph": "f", "bp": "e", "id": 1, "name": "SEND_F0", "cat": "transfer", "ts": 2.001, "pid": 2, "tid": 5},
    {"ph": "C", "name": "memory of n1:0", "ts": 0.000, "pid": 2, "args": {"bytes": 100}},
    {"ph": "C", "name": "memory of n1:0", "ts": 2.001, "pid": 2, "args": {"bytes": 110}}
  ]
}
)");
}

TEST_CASE("in a trace each device of the larger side of a message has an arrow") {
  const Topology topology(io::read_topology(kTopologyText, "t"));
  const std::string trace = whole_text(io::write_trace(small_timeline(), topology));
  // One device sends to two: two arrows from its one slice.
  for (const char* end :
       {R"("ph": "s", "id": 1,)", R"("ph": "s", "id": 2,)", R"("ph": "f", "bp": "e", "id": 1,)",
        R"("ph": "f", "bp": "e", "id": 2,)"}) {
    INFO(end);
    CHECK(trace.find(end) != std::string::npos);
  }
  CHECK(trace.find(R"("id": 3)") == std::string::npos);
}

TEST_CASE("messages that overlap are on tracks of their own in a trace") {
  const Topology topology(io::read_topology(kTopologyText, "t"));
  Timeline timeline = small_timeline();
  timeline.actions.resize(3);
  timeline.actions.insert(timeline.actions.begin() + 2,
                          {LaneIndex{0}, {ActionKind::SendActivation, 1}, {1'800}, {2'300}, {16}});
  const std::string trace = whole_text(io::write_trace(timeline, topology));
  CHECK(trace.find(R"("tid": 3, "args": {"name": "n0:0 send forward 2"}})") != std::string::npos);
  CHECK(trace.find(
            R"("SEND_F1", "cat": "transfer", "ts": 1.800, "dur": 0.500, "pid": 1, "tid": 3)") !=
        std::string::npos);
}

TEST_CASE("a long timeline and its trace are handed on in pieces") {
  const Topology topology(io::read_topology(kTopologyText, "t"));
  Timeline timeline = small_timeline();
  // One action after another: those that overlap would each have a row of their own.
  while (timeline.actions.size() < 50'000) {
    TimedAction next = timeline.actions.back();
    next.start = next.end;
    next.end = next.start + Duration{2};
    timeline.actions.push_back(next);
  }
  for (const TextSource& source :
       {io::write_timeline(timeline, topology, "abc"), io::write_trace(timeline, topology)}) {
    std::string text;
    std::size_t longest = 0;
    source([&](std::string_view piece) {
      text += piece;
      longest = std::max(longest, piece.size());
    });
    CHECK(text.size() > 4 * kTextPiece);
    CHECK(longest < kTextPiece + kTextPiece / 4);
    CHECK(text == whole_text(source));
  }
}

}  // namespace
}  // namespace dapple::test
