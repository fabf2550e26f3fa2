#include "dapple/plan/bound_check.h"

#include "dapple/core/error.h"

namespace dapple {

std::string_view to_string(BoundCheck check) {
  switch (check) {
    case BoundCheck::NotStated:
      return "not-stated";
    case BoundCheck::Proven:
      return "proven";
    case BoundCheck::NotProven:
      return "not-proven";
    case BoundCheck::Refuted:
      return "refuted";
  }
  throw Bug("a check of a bound without a name");
}

std::string_view to_string(BoundProof proof) {
  switch (proof) {
    case BoundProof::LeastWork:
      return "least-work";
    case BoundProof::Orders:
      return "orders";
    case BoundProof::Exhaustion:
      return "exhaustion";
    case BoundProof::Diagrams:
      return "diagrams";
    case BoundProof::Search:
      return "search";
    case BoundProof::ProofFile:
      return "proof-file";
  }
  throw Bug("a proof of a bound without a name");
}

}  // namespace dapple
