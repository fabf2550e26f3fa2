// The enumerations of the schemas are the lists that the code has.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "../../../support/files.h"
#include "dapple/core/error.h"
#include "dapple/io/documents/schedule_document.h"
#include "dapple/plan/bound_check.h"
#include "dapple/plan/request.h"
#include "dapple/plan/schedule_family.h"
#include "dapple/plan/simulation_mode.h"
#include "dapple/plan/trade_off.h"
#include "dapple/profile/boundary_shares.h"
#include "dapple/profile/model_profile.h"
#include "dapple/profile/skip_tensors.h"
#include "dapple/schedule/schedule.h"
#include "documents_under_test.h"

namespace dapple::test {
namespace {

using Json = nlohmann::json;
using Names = std::vector<std::string>;

constexpr std::string_view kSchemas[] = {"comparison", "export",   "measurement", "plan",
                                         "profile",    "result",   "runtime",     "schedule",
                                         "timeline",   "topology", "trade-off"};

Json schema_of(std::string_view kind) {
  return Json::parse(source_file("src/io/schemas/" + std::string(kind) + ".schema.json"));
}

/// Adds every enumeration below a node by its place.
void collect(const Json& node, const std::string& place, std::map<std::string, Json>& found) {
  if (node.is_object() && node.contains("enum")) found[place] = node["enum"];
  if (!node.is_structured()) return;
  for (const auto& [key, member] : node.items()) collect(member, place + "/" + key, found);
}

/// Names of all enumerators, as many as have a name.
template <class Enum>
Names names(std::string_view (*name_of)(Enum)) {
  Names all;
  try {
    for (std::underlying_type_t<Enum> i = 0;; ++i) all.emplace_back(name_of(static_cast<Enum>(i)));
  } catch (const Bug&) { return all; }
}

template <class Enum>
Names names() {
  return names<Enum>(&to_string);
}

Names families_to_ask_for() {
  Names families{"auto"};
  for (const ScheduleFamily family : kScheduleFamilies) {
    if (family != ScheduleFamily::Given) families.emplace_back(to_string(family));
  }
  return families;
}

/// What plan files say of how a search ended.
Json ends() {
  Json all = Json::array();
  for (const StopReason end : {StopReason::TimeLimit, StopReason::Signal, StopReason::None}) {
    PlanDocument document = small_plan();
    document.request = PlanRequest{};
    document.request->stopped_by = end;
    all.push_back(Json::parse(io::write_plan(document)).at("request").at("stopped_by"));
  }
  return all;
}

Json batch_scalings() {
  ModelProfile profile = io::read_profile(kProfileText, "f.json");
  Json all = Json::array();
  for (const BatchScaling scaling : {BatchScaling::Proportional, BatchScaling::Floor}) {
    profile.batch_scaling = scaling;
    all.push_back(Json::parse(io::write_profile(profile)).at("batch_scaling"));
  }
  return all;
}

/// What timelines have under the key, predicted ones and measured ones.
Json of_timelines(const char* key) {
  const Topology topology(io::read_topology(kTopologyText, "t"));
  Json all = Json::array();
  for (const auto origin : {Timeline::Origin::Predicted, Timeline::Origin::Measured}) {
    Timeline timeline;
    timeline.origin = origin;
    all.push_back(Json::parse(whole_text(io::write_timeline(timeline, topology, ""))).at(key));
  }
  return all;
}

Names streams() {
  Names all = names<Stream>();
  all.erase(std::find(all.begin(), all.end(), to_string(Stream::None)));
  return all;
}

Names schedule_streams() {
  Names all = streams();
  all.emplace_back(io::schedule_stream(ActionKind::ReceiveActivation));
  return all;
}

TEST_CASE("every enumeration of the schemas lists what the code has, and each is known here") {
  const Json families = names<ScheduleFamily>();
  const Json timings = names<OptimizerTiming>();
  // What else shares links has a key of its own.
  const Json contentions = Names{"on", "off"};
  const Json collectives = Names{"shared"};
  const Json replicas = names<Replicas>();
  const Json replications = names<Replication>();
  const Json transfers = names<Transfers>();
  const Json overlaps = Names{"buckets", "none"};
  const Json skip_tensors = names<SkipTensors>();
  const Json boundaries = names<Boundaries>();
  const std::map<std::string, Json> expected = {
      {"comparison/$defs/plan/properties/family", families},
      {"comparison/$defs/plan/properties/gradients/properties/optimizer_step", timings},
      {"comparison/$defs/plan/properties/gradients/properties/overlap", overlaps},
      {"comparison/$defs/plan/properties/skip_tensors", skip_tensors},
      {"comparison/$defs/plan/properties/boundaries", boundaries},
      {"comparison/$defs/plan/properties/transfers", transfers},
      {"comparison/$defs/stage/properties/replication", replications},
      {"comparison/properties/collectives", collectives},
      {"comparison/properties/contention", contentions},
      {"comparison/properties/replicas", replicas},
      {"comparison/properties/transfers", transfers},
      {"plan/$defs/parallelism/properties/sharding", Names{"optimizer", "full"}},
      {"plan/$defs/prediction/properties/collectives", collectives},
      {"plan/$defs/prediction/properties/contention", contentions},
      {"plan/$defs/prediction/properties/replicas", replicas},
      {"plan/$defs/prediction/properties/transfers", transfers},
      {"plan/$defs/request/properties/collectives", collectives},
      {"plan/$defs/request/properties/contention", contentions},
      {"plan/$defs/request/properties/gradient_overlap", overlaps},
      {"plan/$defs/request/properties/optimizer_step", timings},
      {"plan/$defs/request/properties/planner", names<PlannerKind>()},
      {"plan/$defs/request/properties/replicas", replicas},
      {"plan/$defs/request/properties/schedule", families_to_ask_for()},
      {"plan/$defs/request/properties/sharding", Names{"optimizer", "full", "auto"}},
      {"plan/$defs/request/properties/shares", Names{"equal", "auto"}},
      {"plan/$defs/request/properties/group_sizes", Names{"same", "any"}},
      {"plan/$defs/request/properties/replication", Names{"split", "auto"}},
      {"plan/$defs/request/properties/recomputed_layers", Names{"all", "auto"}},
      {"plan/$defs/request/properties/stopped_by", ends()},
      {"plan/$defs/request/properties/transfers", transfers},
      {"plan/$defs/schedule/properties/family", families},
      {"plan/$defs/stage/properties/replication", replications},
      {"plan/properties/boundaries", boundaries},
      {"plan/properties/gradients/properties/optimizer_step", timings},
      {"plan/properties/gradients/properties/overlap", overlaps},
      {"plan/properties/skip_tensors", skip_tensors},
      {"profile/$defs/collectives/items/properties/beside", Names{"forward_core", "backward_core"}},
      {"profile/$defs/collectives/items/properties/kind", names<CollectiveKind>()},
      {"profile/$defs/collectives/items/properties/over", names<CollectiveMembers>()},
      {"profile/properties/batch_scaling", batch_scalings()},
      {"profile/properties/precision", Names(std::begin(kNumberFormats), std::end(kNumberFormats))},
      {"runtime/properties/boundaries", boundaries},
      {"runtime/properties/context", names<ContextExchange>()},
      {"runtime/properties/depths", Names{"any", "least"}},
      {"runtime/properties/dispatcher", Names{"all-to-all", "merging"}},
      {"runtime/properties/gradient_overlap", overlaps},
      {"runtime/properties/interleaved_transfers", Names{"overlapped"}},
      {"runtime/properties/transfers", transfers},
      {"result/properties/command", Names{"plan", "simulate", "validate", "verify"}},
      {"result/properties/verification/properties/bound", names<BoundCheck>()},
      {"result/properties/verification/properties/proof/oneOf/1", names<BoundProof>()},
      {"result/properties/trade_off/properties/searches/items/properties/bound",
       names<BoundCheck>()},
      {"schedule/$defs/action/properties/kind", names<ActionKind>(&io::schedule_kind)},
      {"schedule/$defs/action/properties/stream", schedule_streams()},
      {"timeline/$defs/action/properties/stream", streams()},
      {"timeline/properties/clock", of_timelines("clock")},
      {"timeline/properties/origin", of_timelines("origin")},
      {"timeline/properties/transfers", transfers},
      {"trade-off/properties/against", names<Against>()},
      {"trade-off/properties/objective", names<Objective>()},
  };
  std::map<std::string, Json> found;
  for (const std::string_view kind : kSchemas) collect(schema_of(kind), std::string(kind), found);
  for (const auto& [place, values] : expected) {
    INFO(place);
    CHECK(found[place] == values);
  }
  for (const auto& [place, values] : found) {
    INFO(place);
    CHECK(expected.contains(place));
  }
}

TEST_CASE("the list of schedule families has each of them, in their order") {
  Names listed;
  for (const ScheduleFamily family : kScheduleFamilies) listed.emplace_back(to_string(family));
  CHECK(listed == names<ScheduleFamily>());
}

}  // namespace
}  // namespace dapple::test
