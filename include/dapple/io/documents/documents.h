// Our own JSON formats: dapple-profile/1, dapple-topology/1, dapple-plan/1, dapple-timeline/1,
// dapple-schedule/1, and the Chrome/Perfetto trace. Readers are strict and report every violation
// with its JSON pointer. Writers are canonical: the same content gives the same bytes.
#pragma once

#include <cstddef>
#include <cstdint>
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

/// `text` is a whole document, `source_name` what errors call it. All throw Error(BadInput).
ModelProfile read_profile(std::string_view text, const std::string& source_name);
TopologyDescription read_topology(std::string_view text, const std::string& source_name);

/// Also checks that the embedded hashes and the schedule digest are those of the content.
/// The plan itself may still be unsound (validate() says so); it can be read, to be told why.
PlanDocument read_plan(std::string_view text, const std::string& source_name);

/// A plan of which the schedule is yet to be compared with its digest, which takes as long as the
/// schedule is: it may be done beside other work.
struct UncheckedPlan {
  PlanDocument document;
  /// Throws Error(BadInput) as read_plan() would. Refers to nothing. O(actions).
  std::function<void()> check_digest;
};
/// All checks of read_plan() but that one.
UncheckedPlan read_unchecked_plan(std::string_view text, const std::string& source_name);

/// A timeline of the plan with that hash, each of its devices a lane of its own; of another plan's
/// the hash is the only fault. `topology` is the plan's: the timeline names its devices.
Timeline read_timeline(std::string_view text, const std::string& source_name,
                       const Topology& topology, const std::string& plan_sha256);

/// The kind named by the document's "schema" ("profile", "topology", "plan", ...), or empty.
std::string document_kind(std::string_view text);

/// A size as topologies have it, "25 MiB", the blank left out if one likes: 1 byte to kMaxCount.
/// Nothing if it is none, or no whole number of bytes.
std::optional<Bytes> parse_size(std::string_view text);

/// O(size of the document), like all writers and hashes here. Requires of these two: names are
/// unique and figures from 0 to kMaxCount, as the readers check.
std::string write_profile(const ModelProfile& profile);
std::string write_topology(const TopologyDescription& topology);
/// Requires: validate(plan, ...) is empty, the prediction has the figures of every stage, and all
/// of its figures are finite.
std::string write_plan(const PlanDocument& document);

/// `time_unit` of the trace is the microsecond, with nanoseconds as its decimals; one process per
/// server, tracks per device and stream, a counter of each device's memory, arrows from what is
/// sent to the computation that takes it in. A source that refers to both.
TextSource write_trace(const Timeline& timeline, const Topology& topology);
/// An action of several devices stands once for each; its bytes are those of all of them together.
/// A source that refers to the timeline and the topology.
TextSource write_timeline(const Timeline& timeline, const Topology& topology,
                          std::string plan_sha256);

/// SHA-256 of the canonical form, in hex.
std::string hash_of(const ModelProfile& profile);
std::string hash_of(const TopologyDescription& topology);
std::string hash_of(const PlanDocument& document);

/// SHA-256 of the text form of generate(plan), in hex. O(actions). Requires: validate(plan, ...) is
/// empty.
std::string schedule_digest(const Plan& plan, const Topology& topology);

/// Whole file as text; "-" is stdin. Throws Error(Environment) if it cannot be read (a directory,
/// missing, no permission) or is larger than `most` bytes.
std::string read_file(const std::string& path, std::size_t most = std::size_t{256} << 20);

/// Of a file that may be large, before it is read.
struct FileStart {
  std::string bytes;       // the first ones, fewer where the file has no more
  std::uint64_t size = 0;  // of the whole file
};
/// `count` first bytes of a regular file, which can still be read from there; nothing where it is a
/// pipe, which is read only once. Throws Error(Environment) if it cannot be read, or is a device,
/// which may have no end.
std::optional<FileStart> look_at_file(const std::string& path, std::size_t count);

}  // namespace dapple::io
