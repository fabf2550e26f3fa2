#include "dapple/plan/bound_proof.h"

#include <algorithm>
#include <iterator>

#include "dapple/core/error.h"

namespace dapple {

std::string_view to_string(ProofMethod method) {
  switch (method) {
    case ProofMethod::Nodes:
      return "nodes";
    case ProofMethod::Diagram:
      return "diagram";
    case ProofMethod::Paths:
      return "paths";
    case ProofMethod::Search:
      return "search";
  }
  throw Bug("a method of proof without a name");
}

ProofFigures figures_of(const ProofNode& node) {
  return {node.layer,
          node.used,
          node.devices ? std::int64_t{*node.devices} : kAnyDevices,
          std::find(std::begin(kBoundaryKinds), std::end(kBoundaryKinds), node.front) -
              std::begin(kBoundaryKinds),
          node.shared,
          node.depth,
          node.both.ns,
          node.round_trip.ns,
          node.last_trip.ns,
          node.span.ns,
          node.end.ns,
          node.tail.ns,
          node.occupied.ns};
}

}  // namespace dapple
