#include "app/commands/measured_diff.h"

#include <fmt/format.h>

#include <map>
#include <ostream>
#include <utility>
#include <vector>

#include "app/commands/commands.h"
#include "app/request/inputs.h"
#include "app/request/modes.h"
#include "dapple/io/documents/documents.h"
#include "dapple/io/documents/measurement_document.h"
#include "dapple/planner/candidates/evaluate.h"
#include "dapple/report/comparison.h"
#include "dapple/timeline/comparison.h"

namespace dapple::app {
namespace {

/// Returns how often each device executes each action, by the action's text.
std::map<std::pair<DeviceIndex, std::string>, int> counts_of(const Timeline& timeline) {
  std::map<std::pair<DeviceIndex, std::string>, int> counts;
  for (const TimedAction& timed : timeline.actions) {
    for (const DeviceIndex device : timeline.lanes[timed.lane.position()].devices) {
      ++counts[{device, to_text(timed.action)}];
    }
  }
  return counts;
}

/// Throws Error(BadInput) if the timeline's actions are not those of the plan.
void require_same_actions(const Timeline& predicted, const Timeline& measured,
                          const std::string& source) {
  const auto expected = counts_of(predicted);
  const auto found = counts_of(measured);
  int missing = 0;
  int beyond = 0;
  std::string first;
  for (const auto& [action, count] : expected) {
    const auto same = found.find(action);
    if (same != found.end() && same->second >= count) continue;
    ++missing;
    if (first.empty()) first = action.second;
  }
  for (const auto& [action, count] : found) {
    const auto same = expected.find(action);
    if (same != expected.end() && same->second >= count) continue;
    ++beyond;
    if (first.empty()) first = action.second;
  }
  if (missing == 0 && beyond == 0) return;
  throw Error{ErrorKind::BadInput,
              source,
              {{"/actions", fmt::format("expected every action of the plan once on each of its "
                                        "devices, got {} missing and {} unknown or more than "
                                        "once, {} the first",
                                        missing, beyond, first)}}};
}

/// Throws Error(BadInput) if computations of a lane overlap; messages may. Requires: the actions
/// are sorted.
void require_one_after_another(const Timeline& timeline, const Topology& topology,
                               const std::string& source) {
  std::vector<const TimedAction*> last(timeline.lanes.size(), nullptr);
  for (const TimedAction& timed : timeline.actions) {
    if (stream_of(timed.action.kind) != Stream::Compute) continue;
    const TimedAction*& before = last[timed.lane.position()];
    if (before != nullptr && timed.start < before->end) {
      const DeviceIndex device = timeline.lanes[timed.lane.position()].devices.front();
      throw Error{
          ErrorKind::BadInput,
          source,
          {{"/actions",
            fmt::format("expected what {} computes one after another, got {} from {} ns on, "
                        "before {} has ended at {} ns",
                        topology.device(device).name, to_text(timed.action), timed.start.ns,
                        to_text(before->action), before->end.ns)}}};
    }
    before = &timed;
  }
}

}  // namespace

int diff_measured(const DiffRequest& request, const std::string& text,
                  command_line::Console& console) {
  if (request.model || request.topology) {
    throw command_line::usage_error(
        request.model ? "--model" : "--topo",
        "cannot be used with a timeline, which was measured of the plan as it is");
  }
  const std::string& plan_path = request.first;
  PlanDocument document = load_own_plan(plan_path);
  const std::string hash = io::hash_of(document);
  Subject subject = make_subject(std::move(document), {}, command_line::source_name(plan_path));
  const std::string source = command_line::source_name(request.second);
  const Timeline timeline = io::read_timeline(text, source, subject.topology, hash);
  if (timeline.origin != Timeline::Origin::Measured) {
    command_line::print_warning(console,
                                source + " was simulated, so what is called measured here is not");
  }
  const Prediction& filed = subject.document.prediction;
  if (filed.transfers != timeline.transfers) {
    command_line::print_warning(
        console, fmt::format("transfers of the plan are {}, those of {} {}",
                             to_string(filed.transfers), source, to_string(timeline.transfers)));
  }
  const SimulationMode mode{request.contention.value_or(filed.contention),
                            request.replicas.value_or(filed.replicas), filed.transfers};
  const planner::Evaluation evaluation =
      planner::evaluate(subject.document.plan, subject.document.profile, subject.topology, mode);
  require_same_actions(evaluation.timeline, timeline, source);
  require_one_after_another(timeline, subject.topology, source);
  const TimelineComparison comparison = compare_timelines(evaluation.timeline, timeline);
  const std::string plan = command_line::source_name(plan_path);
  if (request.is_json) {
    console.documents << io::write_measurement_json({.tool = kTool,
                                                     .plan = plan,
                                                     .plan_sha256 = hash,
                                                     .timeline = source,
                                                     .comparison = comparison});
  } else {
    console.out << report::write_measured(
        {.plan = plan, .measurement = source, .comparison = comparison}, console.out_style);
  }
  return command_line::kDone;
}

}  // namespace dapple::app
