// dapple-proof/1: the proof of the lower bound that a plan states.
#pragma once

#include <string>
#include <string_view>

#include "dapple/core/text_source.h"
#include "dapple/plan/bound_proof.h"

namespace dapple::io {

/// Returns the proof in canonical form (the same content gives the same bytes), with one node per
/// line. `tool` is the name and version of the program. The source refers to the proof.
TextSource write_proof(const ProofDocument& proof, std::string tool);

/// Reads the proof of the bound of the plan with the given hash. If it is of another plan, the hash
/// is the only violation reported. Whether it proves anything is not checked. Throws
/// Error(BadInput). O(text).
ProofDocument read_proof(std::string_view text, const std::string& source_name,
                         const std::string& plan_sha256);

}  // namespace dapple::io
