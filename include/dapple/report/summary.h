// Tables and drawings for people, as text.
#pragma once

#include <string>

#include "dapple/plan/plan.h"
#include "dapple/timeline/timeline.h"
#include "dapple/topology/topology.h"

namespace dapple {

struct SummaryOptions {
  int width = 100;     // columns
  bool color = false;  // ANSI colours
};

/// The plan for a person: stages with layer names, devices, times, memory of its limit; iteration,
/// samples/s, speedup, bubble, exposed communication; the timeline of the first and last
/// micro-batches; baselines; warnings.
std::string write_summary(const PlanDocument& document, const Timeline& timeline,
                          const Topology& topology, const SummaryOptions& options);

/// One row per stage: which micro-batch is computed when, at the start and at the end of the
/// iteration.
std::string draw_timeline(const Timeline& timeline, const SummaryOptions& options);

/// "12.3 ms", "1.50 GiB", "3.9 GB/s", and the like: four significant digits at most.
std::string show(Duration time);
std::string show(Bytes size);

/// Devices in as few words as possible: "node0:0-7, node1:2".
std::string show_devices(const std::vector<DeviceIndex>& devices, const Topology& topology);

}  // namespace dapple
