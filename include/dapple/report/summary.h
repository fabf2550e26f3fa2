// Describes a plan and its timeline to a person.
#pragma once

#include <optional>
#include <string>

#include "dapple/plan/document.h"
#include "dapple/plan/prediction.h"
#include "dapple/report/show.h"
#include "dapple/timeline/timeline.h"
#include "dapple/topology/topology.h"

namespace dapple::report {

/// Returns the summary of a plan: the stages with layer names, devices, times, and memory against
/// its limit; iteration, samples/s, speedup, bubble and exposed communication; the timeline of the
/// first and last micro-batches; baselines; what was searched, in two lines unless the style is
/// verbose; and warnings. The memory of a stage is that of its fullest device. `topology` is that
/// of the document. Requires: `document.plan` is valid and has a prediction.
std::string write_summary(const PlanDocument& document, const Timeline& timeline,
                          const Topology& topology, const TextStyle& style);

/// Returns a table of the parts of the plan's iteration beside those of the baselines that fit
/// memory; parts that none of them has are left out.
std::string write_time_parts(const PlanDocument& document, const TextStyle& style);

/// Returns a line that states the iteration with the replicas simulated the other way, together or
/// independent, such as "Independent replicas: 338.2 ms (0.1 % less)". `otherwise` is that
/// iteration; the text is empty without it.
std::string other_replicas_text(const Prediction& prediction, std::optional<Duration> otherwise);

/// Returns a few lines on how the iteration varies where devices are not equally fast; an empty
/// text if the prediction does not say it.
std::string jitter_text(const Prediction& prediction);

/// Returns a few lines that break down the time of a timeline: idle device time by cause, the kinds
/// of work on the critical path, the exposed communication of the lane that has the most of it, and
/// the stragglers if there are any. `collectives` is the part of the iteration that collectives
/// within layers take (TimeParts::collectives), which a timeline has in its forwards and backwards;
/// it is stated if it is not zero. Returns an empty text for an empty timeline.
/// O(actions log actions).
std::string write_statistics(const Timeline& timeline, const TextStyle& style,
                             Duration collectives = {});

}  // namespace dapple::report
