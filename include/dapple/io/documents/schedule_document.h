// dapple-schedule/1: the action lists of a plan, for use by other runtimes, as JSON or CSV. Each
// device has its actions in the order in which they are issued, with their kind, stream, stage,
// micro-batch or bucket, peers and bytes.
#pragma once

#include <string>
#include <string_view>

#include "dapple/core/text_source.h"
#include "dapple/plan/action.h"
#include "dapple/schedule/device_schedule.h"
#include "dapple/topology/topology.h"

namespace dapple::io {

/// Returns the name of a kind of action in dapple-schedule/1: "forward", "send_activation".
std::string_view schedule_kind(ActionKind kind);
/// Returns the name of an action's stream in dapple-schedule/1. A receive has no stream of its own,
/// because it is only the moment at which a dependency is met; its name is "receive".
std::string_view schedule_stream(ActionKind kind);

struct ScheduleDocument {
  /// The name and version of the tool, such as "dapple-plan 0.1.0".
  std::string tool;
  /// hash_of() the plan's document.
  std::string plan_sha256;
  /// schedule_digest() of the plan.
  std::string digest;
  const Schedule& schedule;
  /// The costs of the plan from which the schedule was generated.
  const PlanCost& costs;
};

/// Returns the schedule as JSON in canonical form (the same content gives the same bytes), with one
/// action per line. The source refers to both arguments and holds the actions of one device at a
/// time.
TextSource write_schedule(const ScheduleDocument& document, const Topology& topology);

/// Returns the schedule as CSV with a header: device, position in the device's list, stream, kind,
/// stage, micro_batch, bucket, bytes, peers. A figure that an action does not have is empty; peers
/// have the form "node0:1=4096" and are separated by semicolons. In names, ',', ';', '=', '"', '%'
/// and characters that are is_hidden() are percent-encoded (RFC 3986, bytes of UTF-8), so that they
/// end neither a name nor a cell; so is an initial '+', '-' or '@', which spreadsheets interpret as
/// the start of a formula. The source refers to both arguments and holds the actions of one device
/// at a time.
TextSource write_schedule_csv(const ScheduleDocument& document, const Topology& topology);

}  // namespace dapple::io
