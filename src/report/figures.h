// What the summary, the HTML report and the drawings say alike.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dapple/core/index.h"
#include "dapple/core/quantity.h"
#include "dapple/plan/document.h"
#include "dapple/plan/plan.h"
#include "dapple/plan/prediction.h"
#include "dapple/timeline/timeline.h"
#include "dapple/topology/topology.h"

namespace dapple::report {

/// The stage that a lane is coloured after. O(1).
StageIndex home_stage(const Timeline& timeline, LaneIndex lane);

/// What a lane is called in drawings: "stage 2", or "stage 2 replica 1" where replicas are on their
/// own. O(replicas).
std::string lane_title(const Timeline& timeline, LaneIndex lane);

/// The device of a stage that its memory fills most. O(used devices * the stage's devices).
std::optional<DeviceFigures> fullest_device(const StagePlan& stage, const Prediction& prediction);

/// The longest of all stages: tables tell times of a kind in the unit that suits it.
struct LongestTimes {
  Duration pass;  // a forward or backward of one micro-batch
  Duration end;   // all-reduces, or an optimizer step
};
LongestTimes longest_times(const std::vector<StageFigures>& stages);

/// "9.83 of 15.0 GiB": both in the unit that suits the whole.
std::string show_part(Bytes part, Bytes whole, std::string_view between);

/// Samples of a micro-batch that each device of a stage works on: "8", "2-3", "in turn".
std::string samples_text(const Plan& plan, const StagePlan& stage);

/// "in buckets of 25 MiB, the optimizer at the end".
std::string gradients_text(const GradientSynchronization& gradients);

struct Figure {
  std::string name;
  std::string value;
};

/// Iteration, throughput, bubble, exposed communication, speedup, bound and gap, in words.
std::vector<Figure> headline(const PlanDocument& document, const Topology& topology);

/// "1.34x slower", "same time".
std::string factor_text(Duration theirs, Duration ours);

enum class CauseCount { Largest, All };
/// What a baseline lacks, or what it loses by; "-" where it does not.
std::string loses_by(const Baseline& baseline, const Prediction& ours, CauseCount count);

/// What was searched in two lines: how much of what, and what was never in the space.
std::vector<std::string> search_headlines(const SearchRecord& search);

/// All that is known of it, with every part that was left out, a sentence each.
std::vector<std::string> search_lines(const SearchRecord& search);

}  // namespace dapple::report
