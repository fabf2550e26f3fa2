#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "dapple/io/documents/trade_off_document.h"
#include "dapple/plan/bound_proof.h"
#include "documents_under_test.h"

namespace dapple::test {
namespace {

PlanDocument planned() {
  PlanDocument document = small_plan();
  document.request = PlanRequest{};
  document.prediction.lower_bound = Duration{900};
  document.prediction.optimality_gap = 0.1;
  return document;
}

/// A plan with a proof, one without, and a topology for which there is no plan.
TradeOffDocument small_trade_off() {
  PlanDocument first = planned();
  ProofDocument proof{.plan_sha256 = io::hash_of(first), .lower_bound = Duration{900}};
  proof.problems = {{.bucket_size = Bytes{100}, .method = ProofMethod::Search}};
  TopologyDescription none = first.topology;
  none.devices.front().memory = Bytes{1000};
  none.name = "less";
  return {.tool = "dapple-plan 0.0.0",
          .request = {.against = Against::Memory,
                      .min_throughput = Factor{kOne.billionths / 4},
                      .slack = Factor{kOne.billionths / 20}},
          .searches = {{.document = std::move(first), .proof = std::move(proof)},
                       {.document = planned()},
                       {.topology = std::move(none), .lower_bound = Duration::infinite()}},
          .front = {0, 1},
          .chosen = 1,
          .claim = {.memory = Bytes{1000}}};
}

std::string written(const TradeOffDocument& document) {
  return io::write_trade_off(document);
}

std::vector<std::string> faults_of(const std::string& text) {
  return faults([&] { io::read_trade_off(text, "t.json"); });
}

TEST_CASE("a trade-off is read as it was written") {
  const TradeOffDocument document = small_trade_off();
  const TradeOffDocument read = io::read_trade_off(written(document), "t.json");
  CHECK(written(read) == written(document));
  CHECK(read.tool == document.tool);
  CHECK(read.request == document.request);
  REQUIRE(read.searches.size() == 3);
  CHECK(same(*read.searches[0].document, *document.searches[0].document));
  CHECK(read.searches[0].proof == document.searches[0].proof);
  CHECK_FALSE(read.searches[1].proof);
  CHECK_FALSE(read.searches[2].document);
  CHECK(same(read.searches[2].topology, document.searches[2].topology));
  CHECK(read.searches[2].lower_bound.is_infinite());
  CHECK(read.front == document.front);
  CHECK(read.chosen == document.chosen);
  CHECK(read.claim == document.claim);
}

TEST_CASE("the parts of a trade-off belong together") {
  TradeOffDocument document = small_trade_off();
  SECTION("plans of another model") {
    document.searches[1].document->profile.layers[0].parameters = Bytes{104};
    CHECK(
        faults_of(written(document)) ==
        std::vector<std::string>{"/searches/1: expected the model of the first plan, got another"});
  }
  SECTION("plans of another request") {
    document.searches[1].document->request->target_gap = Factor{kOne.billionths / 100};
    CHECK(faults_of(written(document)) ==
          std::vector<std::string>{
              "/searches/1: expected the request of the first plan, got another"});
  }
  SECTION("plans without a request") {
    document.searches[1].document->request.reset();
    CHECK(faults_of(written(document)) ==
          std::vector<std::string>{
              "/searches/1: expected a plan that states its request, got one without"});
  }
  SECTION("plans whose searches were stopped are of the same request") {
    document.searches[1].document->request->stopped_by = StopReason::TimeLimit;
    document.searches[1].document->request->time_limit = Duration{5};
    CHECK(faults_of(written(document)).empty());
  }
  SECTION("another topology, against memory alone") {
    document.searches[2].topology.servers.front().links.port.latency = Duration{7};
    CHECK(faults_of(written(document)) ==
          std::vector<std::string>{"/searches/2: expected the topology of the first search with a "
                                   "limit on the memory of each device, got another"});
    document.request.against = Against::Price;
    CHECK(faults_of(written(document)).empty());
  }
  SECTION("a limit on the memory of one of two kinds of devices") {
    for (TradeOffSearch* search : {&document.searches[0], &document.searches[1]}) {
      DeviceKind other = search->document->topology.devices.front();
      other.name = "other";
      search->document->topology.devices.push_back(other);
      search->proof.reset();
    }
    TopologyDescription& limited = document.searches[2].topology;
    limited = document.searches[0].document->topology;
    limited.devices[0].memory = Bytes{1000};
    CHECK(faults_of(written(document)).size() == 1);
    limited.devices[1].memory = Bytes{1000};
    CHECK(faults_of(written(document)).empty());
  }
  SECTION("a plan for unlimited memory, against memory") {
    for (TradeOffSearch& search : document.searches) {
      if (search.document) search.document->request->ignore_memory = true;
      search.proof.reset();
    }
    CHECK(faults_of(written(document)).size() == 2);
    document.request.against = Against::Price;
    CHECK(faults_of(written(document)).empty());
  }
  SECTION("no plan") {
    document.searches.erase(document.searches.begin(), document.searches.begin() + 2);
    document.front = {};
    document.chosen = 0;
    CHECK(faults_of(written(document)) ==
          std::vector<std::string>{"/searches: expected a search with a plan, got none"});
  }
  SECTION("the proof of another plan") {
    document.searches[0].proof->plan_sha256 = std::string(64, '0');
    CHECK_THAT(faults_of(written(document)).at(0),
               Catch::Matchers::StartsWith("/searches/0/proof/plan_sha256: "));
  }
  SECTION("the proof of another bound") {
    document.searches[0].proof->lower_bound = Duration{899};
    CHECK(
        faults_of(written(document)) ==
        std::vector<std::string>{"/searches/0/proof: expected the proof of the bound that the plan "
                                 "states, got that of another"});
  }
}

TEST_CASE("every fault of a trade-off is told with its place") {
  const std::string text = written(small_trade_off());
  CHECK(faults_of(replaced(text, "\"chosen\": 1", "\"chosen\": 3")) ==
        std::vector<std::string>{"/chosen: expected an integer from 0 to 2, got 3"});
  CHECK(faults_of(replaced(text, "\"front\": [0, 1]", "\"front\": [0, -1]")) ==
        std::vector<std::string>{"/front/1: expected an integer from 0 to 2, got -1"});
  CHECK(faults_of(replaced(text, "\"against\": \"memory\"", "\"against\": \"time\"")).size() == 1);
  CHECK(faults_of(replaced(text, "\"slack\": 0.05", "\"slack\": 1")).at(0).starts_with("/slack: "));
  CHECK(faults_of(replaced(text, "\"min_throughput\": 0.25", "\"budget\": 3")) ==
        std::vector<std::string>{"/budget: expected no budget beside \"memory\", got one"});
  CHECK(faults_of(replaced(text, "\"memory_bytes\": 1000", "\"bytes\": 1000"))
            .at(0)
            .starts_with("/proven/bytes: "));
  CHECK(faults_of(
            replaced(text, "{\"memory_bytes\": 1000}", "{\"memory_bytes\": 1000, \"price\": 1}")) ==
        std::vector<std::string>{"/proven: expected at most one claim, got 2"});
  CHECK(faults_of(replaced(text, "\"front\": [0, 1]", "\"front\": [0, 1, 0, 1]")) ==
        std::vector<std::string>{"/front: expected at most 3 positions, got 4"});
  CHECK(faults_of(R"({"schema": "dapple-trade-off/2"})").at(0).starts_with("/schema: "));
  // The digest of a plan's schedule.
  CHECK(faults_of(replaced(text, "\"warmup_depths\": [2, 1]", "\"warmup_depths\": [1, 1]"))
            .at(0)
            .starts_with("/searches/0/"));
}

}  // namespace
}  // namespace dapple::test
