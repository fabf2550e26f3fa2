// The result of checking whether nodes prove that no plan is below a time (docs/bounds.md, (D8)).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "dapple/core/quantity.h"
#include "dapple/plan/bound_proof.h"

namespace dapple::search {

/// What keeps nodes from proving that no plan is below the threshold.
struct DiagramFault {
  enum class Kind : std::uint8_t {
    /// The node at `position` has something that no node of the problem can have: that at `figure`
    /// of its ProofFigures.
    Impossible,
    /// The node at `position` is not in order, or is the one before it again.
    Disordered,
    /// No node stands for some partial plans that may be faster, whose least figures are those of
    /// `node`.
    Missing,
    /// A figure of the node at `position` is below those of all partial plans that it stands for.
    NotLeast,
    /// A label that covers all layers ends at `end`, below the threshold.
    Below,
  };
  Kind kind{};
  std::size_t position = 0;
  std::size_t figure = 0;
  ProofNode node = {};
  Duration end = {};
};

struct DiagramCheck {
  /// Whether the allowance sufficed.
  bool is_finished = false;
  std::optional<DiagramFault> fault = std::nullopt;

  bool is_proof() const { return is_finished && !fault; }
};

}  // namespace dapple::search
