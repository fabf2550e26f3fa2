// The outcome of deriving a plan's stated lower bound anew (planner/verify/verify.h).
#pragma once

#include <string_view>

namespace dapple {

/// The result of checking the stated bound.
enum class BoundCheck {
  /// The file states no bound.
  NotStated,
  /// No plan of the requested space is below the stated bound.
  Proven,
  /// Some plan may be below the stated bound, though none is below the bound that was derived.
  NotProven,
  /// A plan below the stated bound was found, which is one of the violations.
  Refuted,
};

/// Returns "not-stated", "proven", "not-proven" or "refuted".
std::string_view to_string(BoundCheck check);

/// The means by which a bound was derived anew.
enum class BoundProof {
  /// The work that every plan has to do.
  LeastWork,
  /// The heads and tails of the tasks of a rescheduled plan, in any order.
  Orders,
  /// The enumeration of all plans that might be faster.
  Exhaustion,
  /// Relaxed decision diagrams of all plans, whose bounds are those of the search.
  Diagrams,
  /// The exact search for a plan below the stated bound.
  Search,
  /// A proof that was given.
  ProofFile,
};

/// Returns "least-work", "orders", "exhaustion", "diagrams", "search" or "proof-file".
std::string_view to_string(BoundProof proof);

}  // namespace dapple
