// Documents embedded in other documents: a plan contains a profile and a topology, and a trade-off
// contains plans and proofs; and what results and trade-offs both have.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "dapple/io/documents/documents.h"
#include "dapple/io/json/json_reader.h"
#include "dapple/plan/bound_proof.h"
#include "dapple/plan/trade_off.h"
#include "dapple/profile/model_profile.h"
#include "dapple/topology/description.h"
#include "io/documents/layers_json.h"
#include "io/json/json_writer.h"

namespace dapple::io {

// The readers record violations in the field's; their results may be used only if there are none.
ModelProfile read_profile(const Field& field, Measurements measurements = Measurements::Required);
TopologyDescription read_topology(const Field& field);
UncheckedPlan read_unchecked_plan(const Field& field);
ProofDocument read_proof(const Field& field, const std::string& plan_sha256);

void write_profile(JsonWriter& writer, const ModelProfile& profile);
void write_topology(JsonWriter& writer, const TopologyDescription& topology);
void write_plan(JsonWriter& writer, const PlanDocument& document);
void write_claim(JsonWriter& writer, const TradeOffClaim& claim);
void write_positions(JsonWriter& writer, const std::vector<std::size_t>& positions);
void write_proof(JsonWriter& writer, const ProofDocument& proof, const std::string& tool);

}  // namespace dapple::io
