#include <catch2/catch.hpp>

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
  const Topology topology(read_topology(kTopologyText, "t"));
  CHECK(write_timeline(small_timeline(), topology, "abc") == R"({
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

TEST_CASE("a trace has names, actions in microseconds, and what a device holds") {
  const Topology topology(read_topology(kTopologyText, "t"));
  Timeline timeline = small_timeline();
  timeline.actions.resize(3);
  timeline.lanes[1].devices.pop_back();
  timeline.memory[0].stages[0].recompute_stash = {0};
  // Device 2 is the first of the second server: process 2, threads 2 * 4 + 1 and on.
  CHECK(write_trace(timeline, topology) == R"({
  "displayTimeUnit": "ns",
  "traceEvents": [
    {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "n0"}},
    {"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "args": {"name": "n0:0 compute"}},
    {"ph": "M", "name": "thread_name", "pid": 1, "tid": 2, "args": {"name": "n0:0 send forward"}},
    {"ph": "M", "name": "thread_name", "pid": 1, "tid": 3, "args": {"name": "n0:0 send backward"}},
    {"ph": "M", "name": "thread_name", "pid": 1, "tid": 4, "args": {"name": "n0:0 all-reduce"}},
    {"ph": "M", "name": "process_name", "pid": 2, "args": {"name": "n1"}},
    {"ph": "M", "name": "thread_name", "pid": 2, "tid": 9, "args": {"name": "n1:0 compute"}},
    {"ph": "M", "name": "thread_name", "pid": 2, "tid": 10, "args": {"name": "n1:0 send forward"}},
    {"ph": "M", "name": "thread_name", "pid": 2, "tid": 11, "args": {"name": "n1:0 send backward"}},
    {"ph": "M", "name": "thread_name", "pid": 2, "tid": 12, "args": {"name": "n1:0 all-reduce"}},
    {"ph": "X", "name": "F0", "cat": "compute", "ts": 0.000, "dur": 1.500, "pid": 1, "tid": 1, "args": {"stage": 0, "mb": 0}},
    {"ph": "X", "name": "SEND_F0", "cat": "transfer", "ts": 1.500, "dur": 0.501, "pid": 1, "tid": 2, "args": {"stage": 0, "mb": 0, "bytes": 16}},
    {"ph": "X", "name": "F0", "cat": "compute", "ts": 2.001, "dur": 0.999, "pid": 2, "tid": 9, "args": {"stage": 1, "mb": 0}},
    {"ph": "C", "name": "memory of n1:0", "ts": 0.000, "pid": 2, "args": {"bytes": 100}},
    {"ph": "C", "name": "memory of n1:0", "ts": 2.001, "pid": 2, "args": {"bytes": 110}}
  ]
}
)");
}

}  // namespace
}  // namespace dapple::test
