// dapple-schedule/1: the action lists of a plan for any other runtime, as JSON or CSV. Per device
// in the order in which its actions are issued: what, on which stream, of which stage and
// micro-batch or bucket, with whom, how many bytes.
#pragma once

#include <string>

#include "dapple/core/text_source.h"
#include "dapple/schedule/device_schedule.h"
#include "dapple/topology/topology.h"

namespace dapple::io {

struct ScheduleDocument {
  std::string tool;         // "dapple-plan 0.1.0"
  std::string plan_sha256;  // hash_of() of the plan's document
  std::string digest;       // schedule_digest() of the plan
  const Schedule& schedule;
  const PlanCost& costs;  // of the plan from which the schedule was generated
};

/// One action on a line. Canonical: the same content gives the same bytes. The source
/// refers to both arguments, as the next one does, and keeps the actions of one device at a time.
TextSource write_schedule(const ScheduleDocument& document, const Topology& topology);

/// The same as rows below a header: device, position in the device's list, stream, kind, stage,
/// micro_batch, bucket, bytes, peers. A figure that an action does not have is empty; peers are
/// "node0:1=4096" with a semicolon between. In names ',', ';', '=', '"', '%' and what is_hidden()
/// are percent-encoded (RFC 3986, bytes of UTF-8), so that they end neither name nor cell, and so
/// is a '+', '-' or '@' in front, which spreadsheets take for the beginning of a formula.
TextSource write_schedule_csv(const ScheduleDocument& document, const Topology& topology);

}  // namespace dapple::io
