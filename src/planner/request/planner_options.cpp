#include <fmt/format.h>

#include "dapple/planner/request/planner.h"
#include "planner/request/search_record.h"

namespace dapple::planner {
namespace {

/// Warns of what ended the search, unless the requested gap was reached.
void warn_of_end(const PlanDocument& document, std::vector<std::string>& warnings) {
  const PlanRequest& request = *document.request;
  const bool is_exact = request.planner == PlannerKind::Exact;
  if (has_reached_gap(document)) return;
  if (request.stopped_by == StopReason::None) {
    if (!is_exact) return;
    warnings.push_back(cause_of_gap(document));
    return;
  }
  const double limit = static_cast<double>(request.time_limit.value_or(Duration{}).ns) * 1e-9;
  warnings.push_back(fmt::format("the search was {} before {}",
                                 request.stopped_by == StopReason::Signal
                                     ? "interrupted"
                                     : fmt::format("stopped by --time-limit {}", limit),
                                 is_exact ? "the gap was closed" : "it was through"));
}

}  // namespace

bool has_reached_gap(const PlanDocument& document) {
  const PlanRequest& request = *document.request;
  const std::optional<Duration>& bound = document.prediction.lower_bound;
  if (request.planner != PlannerKind::Exact || !bound) return false;
  return *bound >= gap_threshold(document.prediction.iteration, request.target_gap);
}

bool is_search_done(const PlanDocument& document) {
  const PlanRequest& request = *document.request;
  if (!has_reached_gap(document)) return false;
  if (document.prediction.lower_bound == document.prediction.iteration) return true;
  return request.family && is_planned_as_1f1b(*request.family) && request.target.empty();
}

PlanRequest request_of(const PlannerOptions& options) {
  PlanRequest request{.planner = options.planner,
                      .family = options.family.value_or(ScheduleFamily::OneFOneB),
                      .micro_batch_size = options.micro_batch_size,
                      .bucket_size = options.bucket_size,
                      .optimizer = options.optimizer,
                      .mode = options.mode(),
                      .ignore_memory = options.ignore_memory,
                      .memory_limit = options.memory_limit,
                      .target_gap = options.target_gap,
                      .pins = options.pins,
                      .target = {},
                      .baselines = options.baselines};
  if (options.every_family) request.family.reset();
  return request;
}

PlannerOptions options_of(const PlanRequest& request, std::int64_t global_batch_size) {
  PlannerOptions options{.global_batch_size = global_batch_size,
                         .micro_batch_size = request.micro_batch_size,
                         .bucket_size = request.bucket_size,
                         .optimizer = request.optimizer,
                         .family = request.family,
                         .every_family = !request.family,
                         .contention = request.mode.contention,
                         .replicas = request.mode.replicas,
                         .ignore_memory = request.ignore_memory,
                         .memory_limit = request.memory_limit,
                         .planner = request.planner,
                         .target_gap = request.target_gap,
                         .pins = request.pins,
                         .baselines = request.baselines};
  // 1F1B includes GPipe, which is 1F1B with all micro-batches in flight.
  if (options.family == ScheduleFamily::OneFOneB) options.family.reset();
  return options;
}

std::vector<std::string> warnings_of(const PlanDocument& document, const Topology& topology) {
  const PlanRequest& request = *document.request;
  std::vector<std::string> warnings = request.input_warnings;
  for (std::string& warning : warnings_about(document, topology)) {
    warnings.push_back(std::move(warning));
  }
  if (request.ignore_memory) {
    warnings.emplace_back("searched with --unlimited-memory: the plan may not fit");
  }
  if (request.mode.contention == Contention::Off) {
    warnings.emplace_back(
        "simulated with --contention off: transfers do not slow each other, so real iterations may "
        "take longer");
  }
  warn_of_end(document, warnings);
  return warnings;
}

}  // namespace dapple::planner
