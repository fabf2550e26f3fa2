// A small plan as a document, and what the exports make of it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "dapple/core/error.h"
#include "dapple/interop/exports/exports.h"
#include "plans.h"

namespace dapple::small {

/// An embedding, four blocks and a head, on two servers of two devices.
inline PlanDocument document_of(const PlanShape& shape) {
  PlanDocument document;
  document.profile = model_of(std::vector<LayerFigures>(
      6, {.forward = 2000, .backward = 4000, .output = 1, .parameters = 4}));
  document.profile.name = "tiny";
  const char* names[] = {"embedding", "block.0", "block.1", "block.2", "block.3", "head"};
  for (std::size_t i = 0; i < 6; ++i) document.profile.layers[i].name = names[i];
  document.topology = cluster({.servers = 2, .devices = 2});
  document.topology.name = "2x2";
  document.plan = plan_of(document.profile, shape);
  return document;
}

/// Three layers each; two replicas each, of a sample each.
inline PlanShape two_by_two() {
  return {.micro_batch_size = 2,
          .num_micro_batches = 3,
          .depths = {2, 1},
          .stages = {{.layers = 3, .devices = {0, 1}}, {.layers = 3, .devices = {2, 3}}}};
}

inline const interop::ExportTarget& target(std::string_view name) {
  for (const interop::ExportTarget& each : interop::export_targets()) {
    if (each.name == name) return each;
  }
  throw Bug("no such target");
}

inline interop::Export exported(const PlanDocument& document, std::string_view name) {
  const Topology topology(document.topology);
  return interop::export_plan(target(name), {document, topology});
}

/// Places and messages, a line each.
inline std::string refusal(const PlanDocument& document, std::string_view name) {
  try {
    exported(document, name);
  } catch (const Error& error) { return error.what(); }
  return "";
}

}  // namespace dapple::small
