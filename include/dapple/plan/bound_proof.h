// dapple-proof/1 as data: what proves the lower bound that a plan states, for each search problem
// of its space that the work alone does not close.
//
// Source: docs/bounds.md, (D8); docs/formats.md has the file.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dapple/core/quantity.h"
#include "dapple/profile/parallelism.h"

namespace dapple {

/// Which tensors pass a stage boundary, where that is known.
enum class BoundaryKind : std::uint8_t {
  Any,
  /// All of them between devices of one server.
  Local,
  /// At least one of them from server to server.
  Across,
};

/// A node of a relaxed decision diagram: lower bounds on the labels of all partial plans, from some
/// layer to the end of the model, that it stands for (docs/bounds.md, sections 3 and 5).
struct ProofNode {
  /// The first layer.
  std::int32_t layer = 0;
  /// The devices in use: their number or, where devices are of several classes, the mixed-radix
  /// number of the counts of each class, the first one counting fastest.
  std::int32_t used = 0;
  /// The devices of the first stage, numbered alike; none if they may be any.
  std::optional<std::int32_t> devices = std::nullopt;
  /// The boundary in front of the first stage (D6).
  BoundaryKind front = BoundaryKind::Any;
  /// The devices on a server, for each sample, of the stages that share servers (D6), in units of
  /// 2^-20.
  std::int64_t shared = 0;
  /// The least number of micro-batches in flight on the first stage.
  std::int64_t depth = 1;
  /// Forward and backward of one micro-batch on the first stage.
  Duration both = {};
  /// The label: RT, LT, V, E, T and N.
  Duration round_trip = {};
  Duration last_trip = {};
  Duration span = {};
  Duration end = {};
  Duration tail = {};
  Duration occupied = {};

  friend bool operator==(const ProofNode&, const ProofNode&) = default;
};

/// The figures of a node, in the order in which an array of the file has them: 0 to 12.
using ProofFigures = std::array<std::int64_t, 13>;
/// What stands for any devices, and for each kind of boundary by its position.
inline constexpr std::int64_t kAnyDevices = -1;
inline constexpr BoundaryKind kBoundaryKinds[] = {BoundaryKind::Any, BoundaryKind::Local,
                                                  BoundaryKind::Across};
ProofFigures figures_of(const ProofNode& node);

/// The means by which a problem is shown to have no plan below a bound.
enum class ProofMethod : std::uint8_t {
  /// The nodes of a relaxed diagram, which are checked one by one.
  Nodes,
  /// A relaxed diagram with at most `width` nodes for each state, which is compiled again: it has
  /// more nodes than a file may hold.
  Diagram,
  /// All paths of the relaxed diagram, which are gone through again (D7).
  Paths,
  /// The exact search for a plan below the bound, which is repeated.
  Search,
};
inline constexpr ProofMethod kProofMethods[] = {ProofMethod::Nodes, ProofMethod::Diagram,
                                                ProofMethod::Paths, ProofMethod::Search};

/// Returns "nodes", "diagram", "paths" or "search".
std::string_view to_string(ProofMethod method);

/// The proof for one search problem: one micro-batch size and one bucket size, of one form of
/// parallelism if there are several and, for a target runtime, of one number of replicas, with
/// recomputation or without.
struct ProblemProof {
  /// Missing if forms of parallelism were not told apart.
  std::optional<Parallelism> parallelism = std::nullopt;
  /// The other forms that single stages may have; empty where all stages have one form.
  std::vector<Parallelism> stage_forms = {};
  std::optional<std::int32_t> replicas = std::nullopt;
  /// The number of stages, where the runtime cuts the model into them itself.
  std::optional<std::int32_t> stages = std::nullopt;
  std::optional<bool> recompute = std::nullopt;
  std::int64_t micro_batch_size = 1;
  Bytes bucket_size = {};
  ProofMethod method = ProofMethod::Nodes;
  /// The width of a diagram that is compiled again; otherwise 0.
  std::int64_t width = 0;
  /// The nodes, by falling layer, then by rising `used`; empty for other methods.
  std::vector<ProofNode> nodes = {};

  friend bool operator==(const ProblemProof&, const ProblemProof&) = default;
};

struct ProofDocument {
  /// hash_of() the plan's document.
  std::string plan_sha256 = {};
  /// No plan of the space is below it.
  Duration lower_bound = {};
  /// In the order in which the search tries them: by form of parallelism, number of replicas,
  /// number of stages, recomputation, bucket size and micro-batch size. Problems that the work
  /// alone closes (P1) are not among them.
  std::vector<ProblemProof> problems = {};

  friend bool operator==(const ProofDocument&, const ProofDocument&) = default;
};

/// The most nodes that a proof holds, of all problems together; each may have its share of them.
inline constexpr std::size_t kMostProofNodes = 200'000;

}  // namespace dapple
