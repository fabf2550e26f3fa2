#include <fmt/format.h>

#include <ostream>
#include <utility>

#include "commands.h"
#include "dapple/cost/costs.h"
#include "dapple/io/documents.h"
#include "dapple/io/schedule_document.h"
#include "dapple/schedule/schedule.h"
#include "files.h"

namespace dapple {
namespace {

constexpr const char* kHelp =
    R"(dapple-plan schedule: a plan's action lists, for another runtime.

Usage: dapple-plan schedule PLAN [--format text|csv|json]

  --format text   one line per device: "node0:0: 0F0 0SEND_F0 0F1 ..."
                  <stage>F<n> forward of micro-batch n, B backward,
                  I and W its two parts where they are run apart,
                  SEND_F RECV_F activations, SEND_B RECV_B gradients,
                  REDUCE_GRAD<k> all-reduce of bucket k, STEP the optimizer
                  (the default)
  --format csv    one row per action, with stream, peers and sizes in bytes
  --format json   dapple-schedule/1: the same, per device

Example
  dapple-plan schedule bert-48.plan.json --format json > schedule.json
)";

/// Peers and bytes of one action on one of its devices.
DeviceAction device_action(DeviceIndex device, Action action, const PlanCost& costs) {
  DeviceAction result{.action = action, .peers = {}, .size = {}};
  const auto add = [&result](DeviceIndex peer, Bytes size) {
    result.peers.push_back({peer, size});
    result.size += size;
  };
  // A boundary belongs to the stage before it.
  const std::size_t stage = action.stage.position();
  const auto transfer = [&action](const std::vector<TransferCost>& turns) -> const TransferCost& {
    return turns[static_cast<std::size_t>(action.index) % turns.size()];
  };
  const auto add_flows = [&](const TransferCost& cost, bool sends) {
    for (const PairFlow& flow : cost.flows) {
      if ((sends ? flow.from : flow.to) == device) add(sends ? flow.to : flow.from, flow.size);
    }
  };
  switch (action.kind) {
    case ActionKind::SendActivation:
      add_flows(transfer(costs.boundaries[stage].forward), true);
      break;
    case ActionKind::ReceiveActivation:
      add_flows(transfer(costs.boundaries[stage - 1].forward), false);
      break;
    case ActionKind::SendGradient:
      add_flows(transfer(costs.boundaries[stage - 1].backward), true);
      break;
    case ActionKind::ReceiveGradient:
      add_flows(transfer(costs.boundaries[stage].backward), false);
      break;
    case ActionKind::AllReduce: {
      const StageCost& cost = costs.stages[stage];
      const Bytes size = cost.buckets[static_cast<std::size_t>(action.index)].size;
      for (const ReplicaCost& replica : cost.replicas) {
        if (replica.device != device) result.peers.push_back({replica.device, size});
      }
      result.size = size;
      break;
    }
    case ActionKind::Forward:
    case ActionKind::Backward:
    case ActionKind::InputGradient:
    case ActionKind::WeightGradient:
    case ActionKind::OptimizerStep:
      break;
  }
  return result;
}

ScheduleDocument schedule_document(const PlanDocument& document, const Topology& topology,
                                   const Schedule& schedule) {
  const CostModel model{document.profile, topology};
  const PlanCost costs = model.plan_cost(document.plan);
  ScheduleDocument result{.tool = kTool,
                          .plan_sha256 = hash_of(document),
                          .digest = schedule_digest(document.plan, topology),
                          .num_micro_batches = schedule.num_micro_batches,
                          .devices = {}};
  for (const Lane& lane : schedule.lanes) {
    for (DeviceIndex device : lane.devices) {
      DeviceSchedule& list = result.devices.emplace_back();
      list.device = device;
      list.stages = lane.stages;
      for (Action action : lane.actions) {
        list.actions.push_back(device_action(device, action, costs));
      }
    }
  }
  return result;
}

int run_schedule(const Options& options, Console& console) {
  if (options.positional().size() != 1) {
    throw usage_error("schedule",
                      fmt::format("expected one plan file, got {}", options.positional().size()));
  }
  const std::string format = options.choice("format", {"text", "csv", "json"});
  const std::string& path = options.positional().front();
  const Subject subject = make_subject(load_plan(path), {}, source_name(path));
  const Schedule schedule = generate(subject.document.plan);
  if (format == "text") {
    console.out << to_text(schedule, subject.topology);
    return kDone;
  }
  const ScheduleDocument document = schedule_document(subject.document, subject.topology, schedule);
  console.out << (format == "json" ? write_schedule(document, subject.topology)
                                   : write_schedule_csv(document, subject.topology));
  return kDone;
}

}  // namespace

Command schedule_command() {
  return {.name = "schedule", .help = kHelp, .options = {{.name = "format"}}, .run = run_schedule};
}

}  // namespace dapple
