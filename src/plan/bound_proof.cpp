#include "dapple/plan/bound_proof.h"

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

}  // namespace dapple
