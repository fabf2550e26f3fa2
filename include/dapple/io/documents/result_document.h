// dapple-result/1: what a command found out about plans, for programs. It contains what the command
// prints for people, without rounding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dapple/core/error.h"
#include "dapple/core/quantity.h"
#include "dapple/plan/bound_check.h"
#include "dapple/plan/document.h"
#include "dapple/plan/trade_off.h"
#include "dapple/topology/topology.h"

namespace dapple::io {

/// A fault of an input, and the name of the file or option that has it.
struct LocatedFault {
  std::string source;
  Violation fault;
};

/// A sound plan that a command read or made.
struct PlanResult {
  /// The name of the plan's file as the user gave it, or of the option that describes the plan.
  std::string file;
  /// hash_of() the plan's document; nothing where there is no such document.
  std::optional<std::string> sha256;
  std::string model;
  std::string topology;
  /// shape_of() the plan.
  std::string shape;
  Parallelism parallelism = {};
  std::vector<Parallelism> stage_forms = {};
  /// Nothing where the command does not simulate.
  std::optional<Prediction> prediction = {};
  std::vector<std::string> warnings = {};
};

/// How the figures of a new simulation differ from those in the plan's file.
struct SimulationResult {
  Duration iteration_in_file;
  bool is_as_in_file = false;
};

/// What a verification confirmed (planner/verify/verify.h).
struct VerificationResult {
  BoundCheck bound = BoundCheck::NotStated;
  /// How the bound was derived; nothing where none is stated.
  std::optional<BoundProof> proof = {};
  /// The lower bound as derived anew; nothing where none is stated.
  std::optional<Duration> proven = {};
  bool is_stopped = false;
  std::int64_t partial_plans = 0;
  std::int64_t simulated = 0;
  /// What was neither confirmed nor refuted, one sentence each.
  std::vector<std::string> unchecked = {};
};

/// What a verified trade-off claims.
struct TradeOffResult {
  struct Search {
    std::string topology;
    /// Nothing where there is no plan.
    std::optional<Duration> iteration;
    /// Infinite where no plan fits.
    Duration lower_bound;
    BoundCheck bound = BoundCheck::NotStated;
  };
  std::vector<Search> searches;
  std::vector<std::size_t> front;
  std::size_t chosen = 0;
  TradeOffClaim claim;
};

/// Why there is no plan, and what would help.
struct NoPlanResult {
  /// The device that lacks most memory under the closest plan.
  struct Shortage {
    std::string device;
    Bytes needed;
    Bytes limit;
    /// Whether plans as asked for may need more than that.
    bool is_least = false;
    /// The closest plan, in words.
    std::string closest;
  };
  /// Whether the search was stopped before this was known; then nothing below is filled in.
  bool is_stopped = false;
  /// Whether it is proven that no plan fits, and not only that none was found.
  bool is_certain = true;
  /// What the plans were restricted to.
  std::vector<std::string> pins = {};
  /// Why there is no plan, where the reason is not memory.
  std::optional<std::string> reason = {};
  std::optional<Shortage> shortage = {};
  /// The cheapest remedy that was found, in words.
  std::optional<std::string> remedy = {};
};

/// Why no estimate tells an alternative and the plan apart.
struct AlternativeTie {
  /// That of the profile.
  Factor calibration_error;
  /// What has to be measured to decide, in words.
  std::string measure;
};

/// A plan of another layout than the one that was chosen.
struct AlternativeResult {
  /// The options that fix its layout.
  std::string options;
  /// Its file; nothing if it was not written.
  std::optional<std::string> file = {};
  /// shape_of() the plan.
  std::string shape;
  Duration iteration;
  /// Lower bound on all plans of the layout, if one was proven.
  std::optional<Duration> lower_bound = {};
  Bytes most_memory;
  /// Where its time is within the calibration's error of the plan's, if that is known.
  std::optional<AlternativeTie> tie = {};
};

struct ResultDocument {
  /// The name and version of the tool, such as "dapple-plan 0.1.0".
  std::string tool = {};
  /// The name of the command, such as "verify".
  std::string command = {};
  int exit_code = 0;
  std::vector<LocatedFault> faults = {};
  std::vector<PlanResult> plans = {};
  std::optional<SimulationResult> simulation = {};
  std::optional<VerificationResult> verification = {};
  /// Only where a trade-off was verified.
  std::optional<TradeOffResult> trade_off = {};
  std::optional<NoPlanResult> no_plan = {};
  /// By rising iteration; nothing where none were asked for.
  std::optional<std::vector<AlternativeResult>> alternatives = {};
};

/// Returns the figures of a sound plan document. `file` names its file. O(size of the document).
PlanResult plan_result(const PlanDocument& document, const std::string& file);

/// Returns the document in canonical form: the same content gives the same bytes. O(size).
/// `topology` names the devices of predictions. Requires: it is not null if any plan has one.
std::string write_result_json(const ResultDocument& document, const Topology* topology);

}  // namespace dapple::io
