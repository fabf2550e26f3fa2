// Texts that the summary, the HTML report and the drawings have in common.
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

/// Returns the stage that determines the colour of a lane. O(1).
StageIndex home_stage(const Timeline& timeline, LaneIndex lane);

/// Returns the title of a lane in drawings: "stage 2", or "stage 2 replica 1" with independent
/// replicas. O(replicas).
std::string lane_title(const Timeline& timeline, LaneIndex lane);

/// Returns the device of a stage whose peak memory is the largest share of its limit, or nothing if
/// the prediction has no device of the stage. O(used devices * devices of the stage).
std::optional<DeviceFigures> fullest_device(const StagePlan& stage, const Prediction& prediction);

/// The longest times over all stages, whose units tables use for all times of that kind.
struct LongestTimes {
  /// The longest forward or backward of one micro-batch.
  Duration pass;
  /// The longest time of a stage's all-reduces or optimizer step.
  Duration end;
};
LongestTimes longest_times(const std::vector<StageFigures>& stages);

/// Formats a part of a whole, both in the unit that suits the whole: "9.83 of 15.0 GiB".
std::string show_part(Bytes part, Bytes whole, std::string_view between);

/// Returns how many samples of a micro-batch each device of a stage processes: "8", "2-3", or
/// "in turn" if micro-batches are dealt.
std::string samples_text(const Plan& plan, const StagePlan& stage);

/// Describes the gradient synchronization: "in buckets of 25 MiB, the optimizer at the end".
std::string gradients_text(const GradientSynchronization& gradients);

struct Figure {
  std::string name;
  std::string value;
};

/// Returns the headline figures: iteration, throughput, bubble, exposed communication, speedup,
/// lower bound and gap, among others.
std::vector<Figure> headline(const PlanDocument& document, const Topology& topology);

/// Returns how the iteration varies where devices are not equally fast, if the document says it.
std::vector<Figure> figures_of_jitter(const PlanDocument& document);

/// Returns by how much a time is longer: "+7.3 %".
std::string change_text(Duration time, Duration than);

/// Returns a time with that: "817.0 ms (+7.3 %)".
std::string longer_text(Duration time, Duration than);

/// Compares two times: "1.34x slower", "same time".
std::string factor_text(Duration theirs, Duration ours);

enum class CauseCount { Largest, All };
/// Returns the memory that a baseline lacks, or the causes for which it is slower than our plan;
/// "-" if it is not slower.
std::string loses_by(const Baseline& baseline, const Prediction& ours, CauseCount count);

/// Describes the search in up to two lines: how much of what was searched, and what was outside the
/// space.
std::vector<std::string> search_headlines(const SearchRecord& search);

/// Describes everything that is known of the search, with a line for each part that was cut.
std::vector<std::string> search_lines(const SearchRecord& search);

}  // namespace dapple::report
