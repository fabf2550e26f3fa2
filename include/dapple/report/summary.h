// The plan for a person.
#pragma once

#include <optional>
#include <string>

#include "dapple/plan/document.h"
#include "dapple/plan/prediction.h"
#include "dapple/report/show.h"
#include "dapple/timeline/timeline.h"
#include "dapple/topology/topology.h"

namespace dapple::report {

/// Stages with layer names, devices, times, memory of its limit; iteration, samples/s, speedup,
/// bubble, exposed communication; the timeline of the first and last micro-batches; baselines; what
/// was searched, in two lines unless the style is verbose; warnings. `topology` is the document's
/// own. The memory of a stage is that of its fullest device. Requires: `document.plan` is valid and
/// has a prediction.
std::string write_summary(const PlanDocument& document, const Timeline& timeline,
                          const Topology& topology, const TextStyle& style);

/// What treating replicas the other way would change, in a line: "Replicas on their own: 338.2 ms
/// (0.1 % less)". Nothing where there is no other iteration.
std::string other_replicas_text(const Prediction& prediction, std::optional<Duration> otherwise);

/// Where the time of a timeline goes, in a few lines: idle device time by cause, the kinds of work
/// on the critical path, communication that no computation hides, of the lane that has most of it,
/// stragglers if any. O(actions log actions). Nothing for an empty timeline.
std::string write_statistics(const Timeline& timeline, const TextStyle& style);

}  // namespace dapple::report
