// What every plan of the exact planner must hold, whatever the problem: shared by the tests of its
// optimality and of its promises.
#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <variant>

#include "../oracle/planner_oracle.h"
#include "../support/random_planning_problem.h"
#include "dapple/cost/cost_model.h"
#include "dapple/io/documents/documents.h"
#include "dapple/plan/validate.h"
#include "dapple/planner/make_plan.h"
#include "dapple/planner/request/planner_options.h"
#include "dapple/planner/result/infeasible.h"
#include "dapple/planner/result/made_plan.h"

namespace dapple::small {

using Made = std::variant<planner::MadePlan, planner::Infeasible>;

/// A problem, and what is asked of the planner about it.
struct Question {
  PlanningProblem made;
  planner::PlannerOptions options;
  Topology topology;
  planner::Diagrams diagrams = planner::Diagrams::WhereLarge;

  explicit Question(PlanningProblem problem)
      : made(std::move(problem)), topology(made.problem.topology) {
    options.global_batch_size = made.problem.global_batch;
    options.contention = made.contention;
    options.threads = 1;
    options.baselines = false;
  }

  std::vector<GradientSynchronization> gradients() const;

  Made answer(planner::Progress* progress = nullptr) const {
    planner::PlanningContext context{made.problem.profile, topology, options, progress};
    context.diagrams = diagrams;
    return planner::make_plan(context);
  }

  /// The fastest of all plans that are asked for and faster than `below`.
  OracleAnswer fastest(Duration below = Duration{INT64_MAX}) const {
    OracleOptions oracle{.contention = options.contention,
                         .replicas = options.replicas,
                         .transfers = options.transfers,
                         .ignore_memory = options.ignore_memory,
                         .micro_batch_size = options.micro_batch_size,
                         .gradients = gradients(),
                         .pins = options.pins,
                         .shares_by_speed = options.shares == Shares::Any &&
                                            options.replicas == Replicas::Together &&
                                            options.transfers == Transfers::Overlapped,
                         .may_deal = planner::may_deal(options),
                         .allow = {},
                         .below = below};
    if (options.family == ScheduleFamily::GPipe) {
      oracle.allow = [](const Plan& plan) {
        for (std::size_t s = 0; s < plan.stages.size(); ++s) {
          if (plan.warmup_depths[s] < micro_batches_of(plan, plan.stages[s], 0)) return false;
        }
        return true;
      };
    }
    return fastest_plan(made.problem, topology, oracle);
  }
};

/// What is asked for; of bucket sizes that may be any, those that the README names.
inline std::vector<GradientSynchronization> Question::gradients() const {
  std::vector<GradientSynchronization> all;
  constexpr std::int64_t kMiB = 1024 * 1024;
  for (const std::int64_t size :
       {1 * kMiB, 5 * kMiB, 25 * kMiB, 100 * kMiB, 400 * kMiB, kMaxCount}) {
    if (options.bucket_size && all.size() == 1) break;
    all.push_back(
        {options.bucket_size.value_or(Bytes{size}), options.optimizer, options.overlaps_gradients});
  }
  return all;
}

inline const PlanDocument* document_of(const Made& made) {
  const auto* plan = std::get_if<planner::MadePlan>(&made);
  return plan == nullptr ? nullptr : &plan->document;
}

inline std::string text_of(const Plan& plan) {
  std::string text = "B " + std::to_string(plan.micro_batch_size);
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const StagePlan& stage = plan.stages[s];
    text += "; layers " + std::to_string(stage.layers.begin) + "-" +
            std::to_string(stage.layers.end) + " K " + std::to_string(plan.warmup_depths[s]) +
            (stage.recompute ? " recompute" : "") + " on";
    for (const DeviceIndex device : stage.devices) text += " " + std::to_string(device.value);
    if (stage.replication == Replication::Deal) text += " in turn";
    for (const std::int64_t share : stage.samples) text += " share " + std::to_string(share);
  }
  return text;
}

/// Whether it ended before it knew of any plan that fits, or of none.
inline bool is_unknown(const Made& made) {
  const auto* infeasible = std::get_if<planner::Infeasible>(&made);
  return infeasible != nullptr && infeasible->stopped;
}

inline std::string text_of(const Made& made) {
  const PlanDocument* document = document_of(made);
  if (document == nullptr) return is_unknown(made) ? "unknown" : "infeasible";
  return text_of(document->plan) + " of " + std::to_string(document->prediction.iteration.ns) +
         " ns";
}

/// The question as files and options, to be asked again by hand.
inline std::string text_of(const Question& question) {
  const planner::PlannerOptions& options = question.options;
  std::string text = options.contention == Contention::Off ? "contention off" : "contention shared";
  text += ", replicas " + std::string(to_string(options.replicas));
  text += ", transfers " + std::string(to_string(options.transfers));
  if (!options.overlaps_gradients) text += ", reductions behind the last backward";
  if (options.shares == Shares::Any) text += ", shares auto";
  if (planner::may_deal(options)) text += ", micro-batches may be dealt";
  if (options.ignore_memory) text += ", ignore memory";
  if (options.micro_batch_size) text += ", B " + std::to_string(*options.micro_batch_size);
  if (options.family == ScheduleFamily::GPipe) text += ", gpipe";
  text += options.bucket_size ? ", buckets of " + std::to_string(options.bucket_size->count)
                              : ", buckets of any size";
  text += ", optimizer " + std::string(to_string(options.optimizer));
  const Pins& pins = options.pins;
  if (pins.stages) text += ", stages " + std::to_string(*pins.stages);
  if (pins.replicas) text += ", replicas " + std::to_string(*pins.replicas);
  if (pins.recompute) text += *pins.recompute ? ", recompute" : ", no recompute";
  for (const std::int32_t cut : pins.cuts) text += ", cut " + std::to_string(cut);
  for (const std::int32_t joint : pins.joints) text += ", joint " + std::to_string(joint);
  return text + "\nprofile:\n" + io::write_profile(question.made.problem.profile) +
         "\ntopology:\n" + io::write_topology(question.made.problem.topology) + "\n";
}

/// What is wrong with a plan as such, however good it is: not of the declared space, does not fit,
/// does not simulate as it says. Empty if nothing.
inline std::string fault_of(const PlanDocument& document, const Question& question) {
  const Plan& plan = document.plan;
  const ModelProfile& profile = question.made.problem.profile;
  const auto layers = static_cast<std::int32_t>(profile.layers.size());
  if (!validate(plan, layers, question.topology).empty()) return "unsound";
  if (plan.global_batch_size != question.made.problem.global_batch) return "of another batch";
  for (const StagePlan& stage : plan.stages) {
    const bool is_asked = planner::may_deal(question.options) && stage.devices.size() > 1;
    if (stage.replication != Replication::Split && !is_asked) return "dealt";
    if (!std::is_sorted(stage.devices.begin(), stage.devices.end())) return "not in device order";
  }
  const PlanCost costs = CostModel(profile, question.topology).plan_cost(plan);
  if (!question.options.ignore_memory && !memory_shortages(costs).empty()) return "does not fit";
  const Duration simulated =
      simulate::simulate(generate(plan, question.options.replicas), costs, question.topology,
                         {.contention = question.options.contention,
                          .transfers = question.options.transfers,
                          .record = false})
          .iteration;
  if (simulated != document.prediction.iteration) return "simulates otherwise";
  return "";
}

/// What is wrong with the proof that the plan is the fastest. Empty if nothing.
inline std::string fault_of_proof(const PlanDocument& document, const Question& question) {
  const Prediction& prediction = document.prediction;
  if (!prediction.lower_bound) return "no bound";
  if (*prediction.lower_bound != prediction.iteration) {
    return "a bound of " + std::to_string(prediction.lower_bound->ns);
  }
  if (prediction.optimality_gap != 0.0) return "a gap";
  const bool is_cut = question.options.micro_batch_size || !question.options.pins.empty() ||
                      question.options.family == ScheduleFamily::GPipe;
  if (document.search.complete == is_cut) {
    return document.search.complete ? "complete" : "not complete";
  }
  return "";
}

/// Fails unless the answer is the oracle's, with a complete proof. Returns the oracle's, whose plan
/// is missing where it found none faster than the planner's.
inline OracleAnswer require_fastest(const Question& question, const Made& answer) {
  const PlanDocument* document = document_of(answer);
  Duration below{INT64_MAX};
  std::string faults;
  if (document != nullptr) {
    faults = fault_of(*document, question);
    if (faults.empty()) faults = fault_of_proof(*document, question);
    // A sound plan of the space, so that only faster ones need to be looked for.
    below = document->prediction.iteration;
  }
  OracleAnswer fastest = question.fastest(below);
  if (fastest.plan) {
    faults += "\nslower than " + text_of(*fastest.plan) + " of " +
              std::to_string(fastest.iteration.ns) + " ns";
  }
  if (!faults.empty()) FAIL(text_of(answer) << ": " << faults << "\n" << text_of(question));
  return fastest;
}

}  // namespace dapple::small
