// The project's JSON formats: dapple-profile/1, dapple-topology/1, dapple-plan/1,
// dapple-timeline/1, dapple-schedule/1, and the Chrome/Perfetto trace. Readers are strict and
// report every violation with its JSON pointer. Writers are canonical: the same content gives the
// same bytes.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "dapple/core/text_source.h"
#include "dapple/plan/document.h"
#include "dapple/plan/plan.h"
#include "dapple/profile/model_profile.h"
#include "dapple/schedule/schedule.h"
#include "dapple/timeline/timeline.h"
#include "dapple/topology/description.h"
#include "dapple/topology/topology.h"

namespace dapple::io {

/// Reads a whole document. Errors refer to it as `source_name`. All readers throw Error(BadInput).
ModelProfile read_profile(std::string_view text, const std::string& source_name);
TopologyDescription read_topology(std::string_view text, const std::string& source_name);

/// Reads a plan and checks that its hashes and its schedule digest are those of its content. An
/// invalid plan can be read too, so that validate() can explain its violations.
PlanDocument read_plan(std::string_view text, const std::string& source_name);

/// A plan whose schedule digest is not checked yet. The check takes time proportional to the length
/// of the schedule and may run concurrently with other work.
struct UncheckedPlan {
  PlanDocument document;
  /// Checks the digest; throws Error(BadInput) as read_plan() would. Refers to no other object.
  /// O(actions).
  std::function<void()> check_digest;
};
/// Reads a plan with all checks of read_plan() but that of the schedule digest.
UncheckedPlan read_unchecked_plan(std::string_view text, const std::string& source_name);

/// Reads a timeline of the plan with the given hash, in which each device is a lane of its own. If
/// the timeline is of another plan, the hash is the only violation reported. `topology` is that of
/// the plan and contains the devices that the timeline names.
Timeline read_timeline(std::string_view text, const std::string& source_name,
                       const Topology& topology, const std::string& plan_sha256);

/// Returns the kind that the document's "schema" names ("profile", "topology", "plan", ...), or an
/// empty text.
std::string document_kind(std::string_view text);

/// Parses a size as in topology files, such as "25 MiB"; the blank may be omitted. Returns nothing
/// if the text is not a size from 1 to kMaxCount bytes, or not a whole number of bytes.
std::optional<Bytes> parse_size(std::string_view text);

/// Returns a profile or topology as a document. O(size of the document), like all writers and
/// hashes here. Requires: names are unique and figures are from 0 to kMaxCount, as the readers
/// check.
std::string write_profile(const ModelProfile& profile);
std::string write_topology(const TopologyDescription& topology);
/// Returns a plan as a document. Requires: validate(plan, ...) is empty, and the prediction has the
/// figures of every stage, all of which are finite.
std::string write_plan(const PlanDocument& document);

/// Returns the timeline as a trace. Times are in microseconds with nanoseconds as decimals. There
/// is a process per server, tracks per device and stream, a counter of each device's memory, and
/// arrows from each message to the computation that consumes it. The source refers to both
/// arguments.
TextSource write_trace(const Timeline& timeline, const Topology& topology);
/// Returns the timeline as a document. An action of several devices has an entry for each of them,
/// with the bytes of all of them together. The source refers to the timeline and the topology.
TextSource write_timeline(const Timeline& timeline, const Topology& topology,
                          std::string plan_sha256);

/// Returns the SHA-256 of the document's canonical form, in hexadecimal.
std::string hash_of(const ModelProfile& profile);
std::string hash_of(const TopologyDescription& topology);
std::string hash_of(const PlanDocument& document);
std::string hash_of(const Runtime& runtime);

/// Returns the SHA-256 of the text form of generate(plan), in hexadecimal. O(actions). Requires:
/// validate(plan, ...) is empty.
std::string schedule_digest(const Plan& plan, const Topology& topology);

}  // namespace dapple::io
