// Exports a folder of Chakra execution traces (Sridharan et al., 2023; mlcommons/chakra, schema
// 0.0.4), which ASTRA-sim replays: a file trace.RANK.et for each rank, with computations of the
// plan's times and with transfers and all-reduces of the plan's sizes. groups.json lists the groups
// of ranks that reduce together, for ASTRA-sim's --comm-group-configuration.
//
// The actions of a device's stream form a chain of control dependencies. Data dependencies lead
// from a computation to the sends of its result, from a receive to the computation that uses it,
// from the last computation to an all-reduce, and from all-reduces to the optimizer step.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "dapple/cost/cost_model.h"
#include "dapple/cost/plan_cost.h"
#include "dapple/cost/stage.h"
#include "dapple/interop/text/protobuf_writer.h"
#include "dapple/schedule/device_schedule.h"
#include "interop/exports/exporting.h"

namespace dapple::interop {
namespace {

enum class NodeType { Compute = 4, Send = 5, Receive = 6, Collective = 7 };
// The value of the attribute comm_type for an all-reduce.
constexpr std::uint64_t kAllReduce = 0;

// The field numbers of a node and of an attribute in Chakra's protobuf schema.
namespace node_field {
constexpr int kId = 1, kName = 2, kType = 3, kControl = 4, kInputs = 5, kDuration = 7,
              kAttribute = 10;
}
namespace attribute_field {
constexpr int kName = 1, kInt32 = 7, kInt64 = 9, kBool = 27, kString = 29;
}

/// Numbers the groups of ranks that reduce together from 1 on; 0 stands for all ranks.
class Groups {
 public:
  std::size_t number(const std::vector<std::size_t>& ranks) {
    const auto [group, is_new] = numbers_.try_emplace(ranks, ranks_.size() + 1);
    if (is_new) ranks_.push_back(ranks);
    return group->second;
  }

  /// Returns the groups as JSON: {"1": [0, 1], ...}.
  std::string text() const {
    std::string text;
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      text +=
          fmt::format("{}  \"{}\": [{}]", i == 0 ? "" : ",\n", i + 1, fmt::join(ranks_[i], ", "));
    }
    return text.empty() ? "{}\n" : "{\n" + text + "\n}\n";
  }

 private:
  std::map<std::vector<std::size_t>, std::size_t> numbers_;
  std::vector<std::vector<std::size_t>> ranks_;
};

/// The data that the traces of all ranks share.
struct Run {
  const Plan& plan;
  PlanCost costs;
  std::map<DeviceIndex, std::size_t> ranks;
  // Whether buckets are reduced and scattered.
  bool shards_optimizer = false;
  Groups groups = {};
};

/// Converts a time to the whole microseconds of a trace, rounding up.
std::uint64_t microseconds(Duration time) {
  constexpr std::int64_t kNanoseconds = 1000;
  return static_cast<std::uint64_t>((time.ns + kNanoseconds - 1) / kNanoseconds);
}

class Trace {
 public:
  Trace(Run& run, const DeviceSchedule& schedule) : run_(run), schedule_(schedule) {}

  std::string text() {
    std::string text = ProtobufWriter().text(1, "0.0.4").delimited();
    for (const DeviceAction& entry : schedule_.actions) text += nodes_of(entry);
    return text;
  }

 private:
  using Dependencies = std::vector<std::uint64_t>;

  std::string nodes_of(const DeviceAction& entry);
  std::string transfers(const DeviceAction& entry, bool is_send);
  std::string reduction(const DeviceAction& entry);
  Duration time_of(Action action) const;
  Dependencies inputs_of(Action action) const;

  /// Begins a node that follows the last one of its stream; a receive belongs to no stream.
  ProtobufWriter node(Action action, NodeType type, const Dependencies& inputs) {
    ProtobufWriter writer;
    const std::uint64_t id = next_++;
    if (id > 0) writer.integer(node_field::kId, id);
    writer.text(node_field::kName, to_text(action));
    writer.integer(node_field::kType, static_cast<std::uint64_t>(type));
    const Stream stream = stream_of(action.kind);
    const auto last = last_.find(stream);
    if (last != last_.end()) writer.integer(node_field::kControl, last->second);
    if (stream != Stream::None) last_[stream] = id;
    for (const std::uint64_t dependency : inputs) writer.integer(node_field::kInputs, dependency);
    made_[key(action)].push_back(id);
    return writer;
  }

  static std::pair<std::pair<ActionKind, StageIndex>, std::int32_t> key(Action action) {
    return {{action.kind, action.stage}, action.index};
  }

  static void add_integer(ProtobufWriter& writer, const char* name, int field,
                          std::uint64_t value) {
    writer.text(node_field::kAttribute,
                ProtobufWriter().text(attribute_field::kName, name).integer(field, value).bytes());
  }

  std::size_t own_rank() const { return run_.ranks.at(schedule_.device); }

  Run& run_;
  const DeviceSchedule& schedule_;
  std::uint64_t next_ = 0;
  std::map<Stream, std::uint64_t> last_;
  std::map<std::pair<std::pair<ActionKind, StageIndex>, std::int32_t>, Dependencies> made_;
  // The most recent computation, which all-reduces depend on.
  Dependencies computed_;
};

/// Returns the nodes of all actions on this device that the action depends on.
Trace::Dependencies Trace::inputs_of(Action action) const {
  const auto of = [&](std::initializer_list<ActionKind> kinds) {
    Dependencies nodes;
    for (const ActionKind kind : kinds) {
      Action before = action;
      before.kind = kind;
      const auto found = made_.find(key(before));
      if (found != made_.end())
        nodes.insert(nodes.end(), found->second.begin(), found->second.end());
    }
    return nodes;
  };
  switch (action.kind) {
    case ActionKind::Forward:
      return of({ActionKind::ReceiveActivation});
    case ActionKind::Backward:
    case ActionKind::InputGradient:
      return of({ActionKind::ReceiveGradient});
    case ActionKind::SendActivation:
      return of({ActionKind::Forward});
    case ActionKind::SendGradient:
      return of({ActionKind::Backward, ActionKind::InputGradient});
    case ActionKind::OptimizerStep: {
      Dependencies nodes;
      for (const auto& [which, made] : made_) {
        const auto& [kind, stage] = which.first;
        const bool is_own = kind == ActionKind::AllReduce && stage == action.stage;
        if (is_own || kind == ActionKind::ReduceTied) {
          nodes.insert(nodes.end(), made.begin(), made.end());
        }
      }
      return nodes;
    }
    default:
      return {};
  }
}

Duration Trace::time_of(Action action) const {
  const StageCost& stage = run_.costs.stages[action.stage.position()];
  const std::vector<DeviceIndex>& devices = run_.plan.stages[action.stage.position()].devices;
  const auto replica = static_cast<std::size_t>(
      std::find(devices.begin(), devices.end(), schedule_.device) - devices.begin());
  const ReplicaCost& cost = stage.replicas[replica];
  switch (action.kind) {
    case ActionKind::Forward:
      return cost.forward;
    case ActionKind::Backward:
      return cost.backward;
    case ActionKind::InputGradient:
      return cost.input_gradient;
    case ActionKind::WeightGradient:
      return cost.backward - cost.input_gradient;
    default:
      return stage.bucket_steps.empty()
                 ? stage.optimizer_step
                 : stage.bucket_steps[static_cast<std::size_t>(action.index)];
  }
}

/// Returns a node for each peer. Sender and receiver match messages by tag, which identifies the
/// boundary, the direction and the micro-batch.
std::string Trace::transfers(const DeviceAction& entry, bool is_send) {
  const Action action = entry.action;
  const bool is_activation =
      action.kind == ActionKind::SendActivation || action.kind == ActionKind::ReceiveActivation;
  // A boundary has the number of the stage in front of it.
  const bool is_front = is_activation == is_send;
  const std::int64_t boundary = is_front ? action.stage.value : action.stage.value - 1;
  const std::int64_t tag =
      (2 * boundary + (is_activation ? 0 : 1)) * run_.plan.num_micro_batches + action.index;
  std::string text;
  const Dependencies inputs = inputs_of(action);
  for (const SchedulePeer& peer : entry.peers) {
    ProtobufWriter writer = node(action, is_send ? NodeType::Send : NodeType::Receive, inputs);
    const std::size_t other = run_.ranks.at(peer.device);
    add_integer(writer, "is_cpu_op", attribute_field::kBool, 0);
    add_integer(writer, "comm_src", attribute_field::kInt32, is_send ? own_rank() : other);
    add_integer(writer, "comm_dst", attribute_field::kInt32, is_send ? other : own_rank());
    add_integer(writer, "comm_tag", attribute_field::kInt32, static_cast<std::uint64_t>(tag));
    add_integer(writer, "comm_size", attribute_field::kInt64,
                static_cast<std::uint64_t>(peer.size.count));
    text += writer.delimited();
  }
  return text;
}

std::string Trace::reduction(const DeviceAction& entry) {
  std::vector<std::size_t> ranks{own_rank()};
  for (const SchedulePeer& peer : entry.peers) ranks.push_back(run_.ranks.at(peer.device));
  std::sort(ranks.begin(), ranks.end());
  ProtobufWriter writer = node(entry.action, NodeType::Collective, computed_);
  add_integer(writer, "is_cpu_op", attribute_field::kBool, 0);
  add_integer(writer, "comm_type", attribute_field::kInt64, kAllReduce);
  // A reduce-scatter moves as many bytes as an all-reduce of half the size.
  const bool is_scattered = run_.shards_optimizer && entry.action.kind == ActionKind::AllReduce;
  const std::int64_t size = is_scattered ? divide_up(entry.size.count, 2) : entry.size.count;
  add_integer(writer, "comm_size", attribute_field::kInt64, static_cast<std::uint64_t>(size));
  writer.text(node_field::kAttribute,
              ProtobufWriter()
                  .text(attribute_field::kName, "pg_name")
                  .text(attribute_field::kString, fmt::format("{}", run_.groups.number(ranks)))
                  .bytes());
  return writer.delimited();
}

std::string Trace::nodes_of(const DeviceAction& entry) {
  switch (entry.action.kind) {
    case ActionKind::SendActivation:
    case ActionKind::SendGradient:
      return transfers(entry, true);
    case ActionKind::ReceiveActivation:
    case ActionKind::ReceiveGradient:
      return transfers(entry, false);
    case ActionKind::AllReduce:
    case ActionKind::ReduceTied:
      return reduction(entry);
    default: {
      computed_ = {next_};
      ProtobufWriter writer = node(entry.action, NodeType::Compute, inputs_of(entry.action));
      writer.integer(node_field::kDuration, microseconds(time_of(entry.action)));
      add_integer(writer, "is_cpu_op", attribute_field::kBool, 0);
      return writer.delimited();
    }
  }
}

/// The largest number of passes of a micro-batch through a replica; each takes some hundred bytes
/// of a trace or more.
constexpr std::int64_t kMostPasses = 2'000'000;

void check_size(const Plan& plan) {
  std::int64_t passes = 0;
  for (const StagePlan& stage : plan.stages) {
    for (std::size_t r = 0; r < stage.devices.size(); ++r) {
      passes += micro_batches_of(plan, stage, r);
    }
  }
  if (passes <= kMostPasses) return;
  throw Error{ErrorKind::BadInput,
              "",
              {{"/num_micro_batches",
                fmt::format("expected traces of at most {} passes of a micro-batch through a "
                            "stage's replica, got {}",
                            kMostPasses, passes)}}};
}

}  // namespace

Export export_chakra(const ExportSubject& subject) {
  const Plan& plan = subject.document.plan;
  check_size(plan);
  const CostModel model{subject.document.profile, subject.topology};
  Run run{.plan = plan,
          .costs = model.plan_cost(plan),
          .ranks = {},
          .shards_optimizer = plan.parallelism.shards_over_replicas()};
  for (const DeviceIndex device : devices_by_rank(plan)) run.ranks[device] = run.ranks.size();
  std::map<std::size_t, std::string> traces;
  for (const DeviceSchedule& schedule : device_schedules(generate(plan), run.costs)) {
    traces[run.ranks.at(schedule.device)] = Trace(run, schedule).text();
  }
  Export result;
  result.files.push_back({.name = "groups.json", .text = run.groups.text()});
  for (auto& [rank, trace] : traces) {
    result.files.push_back({.name = fmt::format("trace.{}.et", rank), .text = std::move(trace)});
  }
  const char* const late =
      "an all-reduce begins behind its stage's last backward, where the plan begins a bucket's "
      "while that still runs; ";
  result.warnings.push_back(fmt::format("{}times are rounded up to whole microseconds",
                                        plan.gradients.overlaps ? late : ""));
  if (run.shards_optimizer) {
    result.warnings.emplace_back(
        "a bucket's reduce-scatter is in the traces as an all-reduce of half its size, and the "
        "all-gather behind it as part of the optimizer step");
  }
  if (const std::size_t degree = gpus_of_device(subject.document); degree != 1) {
    result.warnings.push_back(fmt::format(
        "a rank of the traces is a device of {} GPUs: what these send each other is in none",
        degree));
  }
  return result;
}

}  // namespace dapple::interop
