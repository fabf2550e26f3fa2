#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <ostream>
#include <string>
#include <utility>

#include "app/commands/json_result.h"
#include "app/commands/progress_line.h"
#include "app/commands/verify/verify_file.h"
#include "app/request/for_target.h"
#include "app/request/inputs.h"
#include "dapple/command_line/tool.h"
#include "dapple/io/documents/documents.h"
#include "dapple/io/documents/proof_document.h"
#include "dapple/io/files/read_file.h"
#include "dapple/planner/request/plan_restriction.h"
#include "dapple/planner/request/planner_options.h"
#include "dapple/planner/verify/verify.h"
#include "dapple/report/show.h"

namespace dapple::app {
namespace {

/// Returns what a proof consists of, such as "from 8 proofs of problems with 1,024 nodes, 2 of
/// which were searched again".
std::string proof_file_text(const ProofDocument& proof) {
  std::size_t nodes = 0;
  std::int64_t repeated = 0;
  for (const ProblemProof& problem : proof.problems) {
    nodes += problem.nodes.size();
    if (problem.method != ProofMethod::Nodes) ++repeated;
  }
  const std::int64_t count = std::ssize(proof.problems);
  std::string text =
      fmt::format("from the work that every plan has, and the proof{} of {} problem{}, {} nodes",
                  count == 1 ? "" : "s", report::show_count(count), count == 1 ? "" : "s",
                  report::show_count(static_cast<std::int64_t>(nodes)));
  if (repeated > 0) text += fmt::format("; {} without nodes were searched again", repeated);
  return text;
}

/// Returns from what the bound was derived; `end` says what ended the derivation if it was stopped.
/// `proof` is the one that was given, or null.
std::string proof_text(const PlanDocument& document, const planner::PlanVerification& verification,
                       const ProofDocument* proof, const std::string& end) {
  const std::int64_t tried = verification.partial_plans;
  const std::string partial_plans =
      fmt::format("{} partial plan{}", report::show_count(tried), tried == 1 ? "" : "s");
  if (verification.proof == BoundProof::Exhaustion) {
    return fmt::format("every plan that could be faster was examined: {}, {} simulated",
                       partial_plans, report::show_count(verification.simulated));
  }
  if (verification.proof == BoundProof::Diagrams) {
    return "from relaxed decision diagrams of all plans, which the search has too";
  }
  if (verification.proof == BoundProof::Search) {
    return "from diagrams, and from the exact search for a plan below it, which was repeated";
  }
  if (verification.proof == BoundProof::Orders) {
    return "from the tasks of these stages, in whatever order";
  }
  if (verification.proof == BoundProof::ProofFile && proof != nullptr) {
    const bool is_whole = verification.bound == BoundCheck::Proven;
    if (is_whole) return proof_file_text(*proof);
    return verification.is_stopped
               ? "the proof was not checked to its end, as " + end
               : "nothing in the proof is false, but no more follows from it: for schedules "
                 "other than 1f1b only the work is bounded, and a repeated search proved no more";
  }
  const std::string work = "from the work that every plan has";
  if (verification.bound == BoundCheck::Proven) return work;
  if (verification.is_stopped) return fmt::format("{}; {} after {}", work, end, partial_plans);
  if (tried > 0) {
    return fmt::format("{}; {} were not enough for more, --budget allows them", work,
                       partial_plans);
  }
  return is_planned_as_1f1b(document.plan.family)
             ? work
             : work + "; plans are tried only under 1f1b, gpipe and list-scheduled";
}

std::string bound_verdict(const PlanDocument& document,
                          const planner::PlanVerification& verification, const ProofDocument* proof,
                          const std::string& end) {
  const auto& stated = document.prediction.lower_bound;
  if (!stated) return "the file states no bound";
  return fmt::format("proven anew: no plan below {}; the file claims {} ({})",
                     report::show(verification.proven), report::show(*stated),
                     proof_text(document, verification, proof, end));
}

/// Returns a line about the first device that is short of memory; empty if there is none.
std::string memory_text(const Prediction& prediction, const Topology& topology) {
  for (const DeviceFigures& device : prediction.devices) {
    if (device.peak_memory <= device.memory_limit) continue;
    return fmt::format("  memory   does not fit: {} needs {} and has {}\n",
                       topology.device(device.device).name, report::show(device.peak_memory),
                       report::show(device.memory_limit));
  }
  return {};
}

std::string unchecked_text(const planner::PlanVerification& verification,
                           const report::TextStyle& style) {
  std::string text;
  for (const planner::Unchecked& part : verification.unchecked) {
    text += fmt::format("  open     {}\n",
                        report::fill_lines(printable(unchecked_reason(part)), 11, style));
  }
  return text;
}

io::ResultDocument result_of(const PlanDocument& document, const std::string& file,
                             const planner::PlanVerification& verification) {
  io::PlanResult plan = io::plan_result(document, file);
  plan.prediction = document.prediction;
  plan.warnings = document.warnings;
  io::VerificationResult found{.bound = verification.bound,
                               .is_stopped = verification.is_stopped,
                               .partial_plans = verification.partial_plans,
                               .simulated = verification.simulated};
  if (verification.bound != BoundCheck::NotStated) {
    found.proof = verification.proof;
    found.proven = verification.proven;
  }
  for (const planner::Unchecked& part : verification.unchecked) {
    found.unchecked.push_back(unchecked_reason(part));
  }
  const bool is_whole = verification.is_whole();
  return {.command = "verify",
          .exit_code = is_whole ? command_line::kDone : command_line::kNotVerified,
          .plans = {std::move(plan)},
          .verification = std::move(found)};
}

/// Reads the proof of a plan's bound. Throws Error(BadInput) if it is of another one.
ProofDocument proof_of(const PlanDocument& document, const std::string& path) {
  const std::string source = command_line::source_name(path);
  ProofDocument proof = io::read_proof(io::read_file(path), source, io::hash_of(document));
  const std::optional<Duration>& stated = document.prediction.lower_bound;
  if (proof.lower_bound == stated) return proof;
  throw Error{ErrorKind::BadInput,
              source,
              {{"/lower_bound_ns", fmt::format("expected {}, as the plan states, got {}",
                                               stated ? fmt::format("{}", stated->ns) : "none",
                                               proof.lower_bound.ns)}}};
}

}  // namespace

std::string unchecked_reason(const planner::Unchecked& unchecked) {
  using Kind = planner::UncheckedKind;
  switch (unchecked.kind) {
    case Kind::WhatWasNotAsked:
      return "baselines, warnings and the space: the file does not say what was asked";
    case Kind::WarningsOfOlderVersion:
      return "warnings: the file was written by a version that gave others";
    case Kind::WarningsOfImport:
      return fmt::format("{} warning{} of the import: the imported file is not available",
                         unchecked.count, unchecked.count == 1 ? "" : "s");
    case Kind::Baselines:
      return "baselines: stopped before they were chosen anew";
    case Kind::BaselinesOfStoppedSearch:
      return "baselines: the search was stopped before they were as good as they can be";
    case Kind::Families:
      return "the records of schedules and parallelism: stopped before the search was repeated";
    case Kind::FamiliesBeyondBudget:
      return "the records of schedules and parallelism: the search is too long to repeat, "
             "--budget allows more";
    case Kind::FamiliesOfStoppedSearch:
      return "the records of schedules and parallelism: the search was stopped, and cannot be "
             "repeated";
    case Kind::RecordsOfAnotherSearch:
      return fmt::format(
          "{} record{} of schedules and parallelism: another version's search, which "
          "found other plans or bounds there; none of this one's contradicts them",
          unchecked.count, unchecked.count == 1 ? "" : "s");
  }
  throw Bug("what was not checked is of no kind");
}

std::string end_text(StopReason reason) {
  return reason == StopReason::TimeLimit ? "stopped by --time-limit" : "interrupted";
}

int verify_plan(const VerifyRequest& request, const std::string& text,
                command_line::Console& console) {
  const std::string& path = request.file;
  const Subject subject = make_subject(own_plan(text, path), {}, command_line::source_name(path));
  const PlanDocument& document = subject.document;
  planner::VerifyOptions asked{.restriction =
                                   restriction_in(document, command_line::source_name(path))};
  asked.budget = request.budget;
  std::optional<ProofDocument> proof;
  if (request.proof) {
    proof = proof_of(document, *request.proof);
    asked.proof = &*proof;
  }
  StopReason reason = StopReason::None;
  planner::PlanVerification verification = [&] {
    ProgressLine progress{console, request.time_limit};
    planner::PlanVerification made = verify(document, subject.topology, asked, &progress);
    reason = progress.stop_reason();
    return made;
  }();
  if (!verification.violations.empty()) {
    throw Error{ErrorKind::BadInput, command_line::source_name(path),
                std::move(verification.violations)};
  }
  if (!verification.proof_faults.empty()) {
    throw Error{ErrorKind::BadInput, command_line::source_name(request.proof.value()),
                std::move(verification.proof_faults)};
  }
  if (request.is_json) {
    io::ResultDocument result = result_of(document, command_line::source_name(path), verification);
    const int code = result.exit_code;
    print_result(std::move(result), &subject.topology, console);
    return code;
  }
  const Prediction& prediction = document.prediction;
  const std::int64_t devices = std::ssize(prediction.devices) * document.topology.group_size;
  console.words(false).stream << fmt::format(
      "{}: {}: {} on {}\n"
      "  figures  iteration {}, {} stage{} and {} device{} as simulated anew\n"
      "{}  bound    {}\n{}",
      verification.is_whole() ? "verified" : "nothing is false, but not all is verified",
      printable(command_line::source_name(path)), printable(document.profile.name),
      printable(document.topology.name), report::show(prediction.iteration),
      prediction.stages.size(), prediction.stages.size() == 1 ? "" : "s", devices,
      devices == 1 ? "" : "s", memory_text(prediction, subject.topology),
      report::fill_lines(bound_verdict(document, verification, asked.proof, end_text(reason)), 11,
                         console.out_style),
      unchecked_text(verification, console.out_style));
  if (verification.is_whole()) return command_line::kDone;
  command_line::print_warnings_if_quiet(console, {"nothing is false, but not all is verified"});
  return command_line::kNotVerified;
}

}  // namespace dapple::app
