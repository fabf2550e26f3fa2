#include "measured_diff.h"

#include <fmt/format.h>

#include <ostream>

#include "commands.h"
#include "dapple/io/documents.h"
#include "dapple/planner/planner.h"
#include "dapple/report/comparison.h"
#include "dapple/timeline/comparison.h"
#include "files.h"

namespace dapple {

int diff_measured(const std::string& plan_path, const MeasuredFile& measured,
                  const Options& options, Console& console) {
  for (const char* option : {"model", "topo"}) {
    if (!options.has(option)) continue;
    throw usage_error(std::string("--") + option,
                      "expected none beside a timeline, which is of the plan as it is");
  }
  PlanDocument document = load_plan(plan_path);
  const std::string hash = hash_of(document);
  Subject subject = make_subject(std::move(document), {}, source_name(plan_path));
  const TimelineDocument timeline =
      read_timeline(measured.text, source_name(measured.path), subject.topology);
  if (timeline.plan_sha256 != hash) {
    throw Error{ErrorKind::BadInput,
                source_name(measured.path),
                {{"/plan_sha256",
                  fmt::format("expected {}..., the hash of {}, got {}...", hash.substr(0, 12),
                              source_name(plan_path), timeline.plan_sha256.substr(0, 12))}}};
  }
  const Prediction& filed = subject.document.prediction;
  const SimulationMode mode{contention_of(options, filed.contention),
                            replicas_of(options, filed.replicas)};
  const Evaluation evaluation =
      evaluate(subject.document.plan, subject.document.profile, subject.topology, mode);
  const TimelineComparison comparison = compare_timelines(evaluation.timeline, timeline.timeline);
  console.out << write_measured({.plan = source_name(plan_path),
                                 .measurement = source_name(measured.path),
                                 .comparison = comparison},
                                console.out_style);
  return kDone;
}

}  // namespace dapple
