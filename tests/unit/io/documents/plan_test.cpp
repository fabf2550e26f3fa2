#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "documents_under_test.h"

#include "dapple/core/random.h"
#include "dapple/plan/validate.h"

namespace dapple::test {
namespace {

using Faults = std::vector<std::string>;

TEST_CASE("a plan that was written is read as it was, and written again as it was") {
  const PlanDocument document = small_plan();
  const std::string text = io::write_plan(document);
  const PlanDocument again = io::read_plan(text, "f.json");
  CHECK(same(document, again));
  CHECK(io::write_plan(again) == text);
  CHECK(io::hash_of(again) == io::hash_of(document));
}

TEST_CASE("how gradients are handled is read as it was written, and need not be there") {
  PlanDocument document = small_plan();
  const std::string usual =
      R"("gradients": {"bucket_bytes": 26214400, "optimizer_step": "at-end"},)";
  std::string text = io::write_plan(document);
  text.erase(text.find(usual), usual.size());
  CHECK(io::read_plan(text, "f.json").plan.gradients == GradientSynchronization{});
  document.plan.gradients = {.bucket_size = {400}, .optimizer = OptimizerTiming::PerBucket};
  CHECK(io::read_plan(io::write_plan(document), "f.json").plan.gradients ==
        document.plan.gradients);
}

TEST_CASE("a plan has the keys of its format, in their order") {
  const std::string text = io::write_plan(small_plan());
  const std::vector<std::string> lines{
      "{\n  \"schema\": \"dapple-plan/1\",\n  \"tool\": \"dapple-plan 0.1.0\",\n  \"model\": {\n   "
      " \"name\": \"m\",",
      "  \"global_batch_size\": 8,\n  \"micro_batch_size\": 2,\n  \"num_micro_batches\": 4,\n  "
      "\"gradients\": {\"bucket_bytes\": 26214400, \"optimizer_step\": \"at-end\"},\n  "
      "\"schedule\": {\n"
      "    \"family\": \"1f1b\",\n    \"warmup_depths\": [2, 1],\n    \"chunks_per_device\": 1,\n",
      "    \"order\": null\n  },\n  \"stages\": [\n    {\n      \"layers\": [0, 1],\n      "
      "\"devices\": [\"n0:0\"],\n"
      "      \"replication\": \"split\",\n      \"recompute\": false,\n"
      "      \"costs\": {\"forward_ns\": 20, \"backward_ns\": 40, \"send_bytes\": 16, "
      "\"gradient_buckets_bytes\": [], \"all_reduce_ns\": 0, \"optimizer_step_ns\": 1}\n    },",
      "      \"devices\": [\"n1:0\", \"n1:1\"],",
      "\"gradient_buckets_bytes\": [400]",
      "  \"predicted\": {\n    \"contention\": \"on\",\n    \"iteration_ns\": 1000,\n    "
      "\"samples_per_second\": "
      "0.3333333333333333,\n"
      "    \"speedup_over_one_device\": 1.7,\n    \"lower_bound_ns\": null,\n    "
      "\"optimality_gap\": null,\n"
      "    \"bubble_fraction\": 0.1,\n    \"exposed_transfer_ns\": 11,\n    "
      "\"exposed_all_reduce_ns\": 12,\n"
      "    \"time_parts\": {\"compute_ns\": 500, \"recomputation_ns\": 40, \"imbalance_ns\": 30, "
      "\"bubble_ns\": 200, \"transfers_ns\": 10, \"all_reduce_ns\": 210, "
      "\"optimizer_step_ns\": 10},\n"
      "    \"devices\": [\n      {\"device\": \"n0:0\", \"peak_memory_bytes\": 1, "
      "\"memory_limit_bytes\": 2, "
      "\"busy_fraction\": 0.5},",
      "  \"baselines\": [\n    {\"name\": \"data-parallel\", \"shape\": \"4, 1 of 8\", "
      "\"iteration_ns\": 2000, \"time_parts\": {\"compute_ns\": 500, \"recomputation_ns\": 0, "
      "\"imbalance_ns\": 0, \"bubble_ns\": 0, \"transfers_ns\": 0, \"all_reduce_ns\": 1500, "
      "\"optimizer_step_ns\": 0}, \"feasible\": false, \"missing_bytes\": 77, "
      "\"depth_limited\": true}\n  ],",
      "  \"search_space\": {\n    \"complete\": false,\n    \"planner\": \"dapple\",\n    "
      "\"searched\": [\n"
      "      \"stages\"\n    ],\n    \"cut\": [\n      \"placements: three policies\"\n    ],\n"
      "    \"outside\": \"tensor, sequence and expert parallelism; sharded state\",\n"
      "    \"states\": 10,\n    \"candidates\": 5,\n    \"simulated\": 3,\n    \"open\": 2,\n"
      "    \"kept\": 7\n  },\n"
      "  \"warnings\": [\n    \"one \\\"quoted\\\" warning\"\n  ]\n}\n",
  };
  std::size_t from = 0;
  for (const std::string& line : lines) {
    INFO(line << "\nis not in\n" << text);
    from = text.find(line, from);
    REQUIRE(from != std::string::npos);
  }
}

TEST_CASE("a plan says whether transfers slowed each other, and a file that does not means on") {
  PlanDocument document = small_plan();
  document.prediction.contention = Contention::Off;
  const std::string text = io::write_plan(document);
  CHECK(text.find("\"contention\": \"off\"") != std::string::npos);
  CHECK(same(io::read_plan(text, "f.json"), document));
  const std::string older = replaced(text, "\"contention\": \"off\",\n    ", "");
  CHECK(io::read_plan(older, "f.json").prediction.contention == Contention::Shared);
}

TEST_CASE("a plan says what its space never holds, and an older file stays as it is") {
  const PlanDocument document = small_plan();
  CHECK(document.search.outside == kOutsideSpace);
  const std::string text = io::write_plan(document);
  const std::string line = "    \"outside\": \"" + std::string(kOutsideSpace) + "\",\n";
  REQUIRE(text.find(line) != std::string::npos);
  CHECK(same(io::read_plan(text, "f.json"), document));
  const std::string older = replaced(text, line, "");
  const PlanDocument read = io::read_plan(older, "f.json");
  CHECK(read.search.outside.empty());
  CHECK(io::write_plan(read) == older);
}

TEST_CASE("a plan says where replicas were independent, and one that does not means together") {
  PlanDocument document = small_plan();
  document.prediction.replicas = Replicas::Independent;
  const std::string text = io::write_plan(document);
  const std::string line = "    \"replicas\": \"independent\",\n";
  CHECK(text.find("\"contention\": \"on\",\n" + line) != std::string::npos);
  CHECK(same(io::read_plan(text, "f.json"), document));
  document.prediction.replicas = Replicas::Together;
  CHECK(io::write_plan(document) == replaced(text, line, ""));
  const std::string spelt_out = replaced(text, "independent", "together");
  CHECK(same(io::read_plan(spelt_out, "f.json"), document));
}

TEST_CASE("a computed figure keeps its last bit through the file") {
  RandomSequence random(5);
  PlanDocument document = small_plan();
  for (int i = 0; i < 300; ++i) {
    const double figure =
        std::ldexp(static_cast<double>(random() >> 11), -static_cast<int>(random() % 80));
    document.prediction.samples_per_second = figure > 1e15 ? 1e15 : figure;
    document.prediction.bubble_fraction = static_cast<double>(random() >> 11) * 0x1p-53;
    document.prediction.optimality_gap = document.prediction.bubble_fraction / 3;
    document.prediction.lower_bound = Duration{i};
    REQUIRE(same(io::read_plan(io::write_plan(document), "f.json"), document));
  }
}

TEST_CASE("a figure that is not finite is our mistake and is not written") {
  PlanDocument document = small_plan();
  document.prediction.samples_per_second = std::numeric_limits<double>::infinity();
  CHECK_THROWS_AS(io::write_plan(document), Bug);
}

TEST_CASE("a plan that is not sound is our mistake and is not written") {
  PlanDocument document = small_plan();
  document.plan.warmup_depths = {1, 2};
  CHECK_THROWS_AS(io::write_plan(document), Bug);
  CHECK_THROWS_AS(io::hash_of(document), Bug);
}

TEST_CASE("a plan whose documents do not match their hashes is refused") {
  const PlanDocument document = small_plan();
  const std::string text = io::write_plan(document);
  CHECK(plan_faults(replaced(text, "\"forward_ns\": 10,", "\"forward_ns\": 11,")) ==
        Faults{"/model/sha256: expected the SHA-256 of the profile in its canonical form, " +
               io::hash_of(io::read_profile(
                   replaced(kProfileText, "\"forward_ns\": 10,", "\"forward_ns\": 11,"), "p")) +
               ", got \"" + io::hash_of(document.profile) + "\""});
  CHECK(plan_faults(replaced(text, "\"16 GiB\"", "\"17 GiB\"")).size() == 1);
  CHECK(plan_faults(replaced(text, "\"sha256\": \"", "\"sha256\": \"X")) ==
        Faults{"/model/sha256: expected 64 hexadecimal digits, got \"X" +
               io::hash_of(document.profile) + "\""});
}

TEST_CASE("a plan whose schedule is not the one of its digest is refused") {
  const PlanDocument document = small_plan();
  const Topology topology(document.topology);
  PlanDocument other = document;
  other.plan.warmup_depths = {3, 1};
  const std::string text = replaced(io::write_plan(document), "[2, 1]", "[3, 1]");
  CHECK(plan_faults(text) ==
        Faults{"/schedule/digest: expected the SHA-256 of the schedule that the plan generates, " +
               io::schedule_digest(other.plan, topology) + ", got \"" +
               io::schedule_digest(document.plan, topology) + "\""});
}

TEST_CASE("an unsound plan can be read, to be told what is wrong with it") {
  const std::string text = replaced(io::write_plan(small_plan()), "[2, 1]", "[1, 2]");
  const PlanDocument document = io::read_plan(text, "f.json");
  CHECK(document.plan.warmup_depths == std::vector<std::int64_t>{1, 2});
  CHECK_FALSE(validate(document.plan, 3, Topology(document.topology)).empty());
}

TEST_CASE("the digest is the hash of the schedule's whole text") {
  const PlanDocument document = small_plan();
  const Topology topology(document.topology);
  const std::string text =
      "n0:0: 0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0F2 0SEND_F2 0RECV_B1 0B1 0F3 0SEND_F3 "
      "0RECV_B2 0B2 0RECV_B3 0B3 0STEP\n"
      "n1:0: 1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1 1RECV_F2 1F2 1B2 1SEND_B2 "
      "1RECV_F3 1F3 1B3 1SEND_B3 1REDUCE_GRAD0 1STEP\n"
      "n1:1: 1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1 1RECV_F2 1F2 1B2 1SEND_B2 "
      "1RECV_F3 1F3 1B3 1SEND_B3 1REDUCE_GRAD0 1STEP\n";
  CHECK(to_text(generate(document.plan), topology) == text);
  // sha256sum of that text.
  CHECK(io::schedule_digest(document.plan, topology) ==
        "4d6bee723f7b39c89b882609c10f32ca4ddd6c0a40f0d5af86eec60bc8405f18");
}

struct BadPlan {
  const char* from;
  const char* to;
  const char* fault;
};

TEST_CASE("a plan that is wrong is refused with what was expected") {
  const std::vector<BadPlan> cases{
      {"dapple-plan/1", "dapple-plan/2",
       "/schema: expected \"dapple-plan/1\", got \"dapple-plan/2\", a version that this program "
       "does "
       "not read"},
      {"dapple-plan/1", "dapple-topology/1",
       "/schema: expected \"dapple-plan/1\", got \"dapple-topology/1\", another kind of document"},
      {"\"n0:0\"", "\"n7:0\"",
       "/stages/0/devices/0: expected the name of a device of the topology, such as \"n1:1\", "
       "got "
       "\"n7:0\""},
      {"\"chunks_per_device\": 1", "\"chunks_per_device\": 0",
       "/schedule/chunks_per_device: expected an integer from 1 to 100000, got 0"},
      {"\"order\": null", "\"order\": []",
       "/schedule/order: expected null, or a text of actions for each group of devices, got an "
       "empty "
       "array"},
      {"\"order\": null", "\"order\": [\"0F0 0X0\"]",
       "/schedule/order/0: expected an action such as 2F0, got \"0X0\""},
      {"\"order\": null", "\"order\": [\"0F0 0SEND_F0\"]",
       "/schedule/order/0: expected forwards and backwards only, got 0SEND_F0"},
      {"\"order\": null", "\"order\": [7]",
       "/schedule/order/0: expected a text of actions such as \"0F0 0F1 0B0 0B1\", got 7"},
      {"\"1f1b\"", "\"zb\"",
       "/schedule/family: expected \"gpipe\", \"1f1b\", \"interleaved\", \"breadth-first\", "
       "\"list-scheduled\", \"zb-h1\", \"zb-h2\", \"zb-v\" or \"given\", got \"zb\""},
      {"[2, 1]", "[2, -1]",
       "/schedule/warmup_depths/1: expected an integer from 0 to 2147483647, got -1"},
      {"\"layers\": [0, 1]", "\"layers\": [0]",
       "/stages/0/layers: expected two layer numbers, got 1"},
      {"\"layers\": [0, 1]", "\"layers\": [-1, 1]",
       "/stages/0/layers/0: expected an integer from 0 to 100000, got -1"},
      {"\"split\"", "\"deel\"",
       "/stages/0/replication: expected \"split\" or \"deal\", got \"deel\""},
      {"\"recompute\": false", "\"recompute\": 0",
       "/stages/0/recompute: expected true or false, got 0"},
      {"\"num_micro_batches\": 4", "\"num_micro_batches\": 2147483647",
       "/num_micro_batches: expected at most 6666666 micro-batches on 3 devices, got 2147483647"},
      {"\"bubble_fraction\": 0.1", "\"bubble_fraction\": 1.1",
       "/predicted/bubble_fraction: expected a number from 0 to 1, got 1.1"},
      {"\"bucket_bytes\": 26214400", "\"bucket_bytes\": 0",
       "/gradients/bucket_bytes: expected an integer from 1 to 1000000000000000, got 0"},
      {"\"at-end\"", "\"later\"",
       "/gradients/optimizer_step: expected \"at-end\" or \"per-bucket\", got \"later\""},
      {"\"contention\": \"on\"", "\"contention\": true",
       "/predicted/contention: expected \"on\" or \"off\", got true"},
      {"\"bubble_ns\": 200,", "\"bubble_ns\": -200,",
       "/predicted/time_parts/bubble_ns: expected an integer from 0 to 1000000000000000, got -200"},
      {"\"all_reduce_ns\": 1500, ", "",
       "/baselines/0/time_parts/all_reduce_ns: expected an integer from 0 to 1000000000000000, but "
       "the key is missing"},
      {"\"feasible\": false,", "",
       "/baselines/0/feasible: expected true or false, but the key is missing"},
      {"\"name\": \"m\",", "\"name\": \"n\",",
       "/model/name: expected the name in the document next to it, \"m\", got \"n\""},
      {"\"parameter_bytes\": 100", "\"parameter_bytes\": -100",
       "/model/profile/layers/0/parameter_bytes: expected an integer from 0 to 1000000000000000, "
       "got "
       "-100"},
      {"\"latency\": \"1 us\"", "\"latency\": \"1 h\"",
       "/topology/description/servers/0/links/latency: expected a time such as \"5 us\" (ns, us, "
       "ms or "
       "s), got \"1 h\""},
  };
  const std::string text = io::write_plan(small_plan());
  for (const BadPlan& bad : cases) {
    INFO(bad.to);
    CHECK(plan_faults(replaced(text, bad.from, bad.to)) == Faults{bad.fault});
  }
}

TEST_CASE("what keeps a plan's topology from being one is told with its place in the plan") {
  const PlanDocument document = small_plan();
  TopologyDescription apart = document.topology;
  apart.network.reset();
  const std::string network =
      ",\n      \"network\": {\"kind\": \"switch\", \"bandwidth\": \"1 GB/s\", \"latency\": \"0 "
      "us\"}";
  const std::string text = replaced(replaced(io::write_plan(document), network, ""),
                                    io::hash_of(document.topology), io::hash_of(apart));
  const Faults found = plan_faults(text);
  REQUIRE(found.size() == 1);
  CHECK(found[0].substr(0, 30) == "/topology/description/network:");
}

/// A plan that was chosen by its median.
PlanDocument plan_under_jitter() {
  PlanDocument document = small_plan();
  document.request = PlanRequest{};
  document.request->jitter = JitterRequest{.deviation = {50'000'000}, .seed = 3};
  document.prediction.jitter =
      JitterFigures{.median = {1'100},
                    .ninety_fifth = {1'200},
                    .draws = 200,
                    .with_slow_device = {Duration{1'050}, Duration{1'070}}};
  document.search.fastest = Duration{990};
  return document;
}

TEST_CASE("what is known of a choice by the median is read as it was written") {
  const PlanDocument document = plan_under_jitter();
  const std::string text = io::write_plan(document);
  CHECK(text.find(R"("jitter": {"deviation": 0.05, "seed": 3})") != std::string::npos);
  CHECK(text.find(R"("jitter": {"median_ns": 1100, "percentile_95_ns": 1200, "draws": 200, )"
                  R"("slow_device_ns": [1050, 1070], "worst_stage": 1})") != std::string::npos);
  CHECK(text.find(R"("fastest_ns": 990)") != std::string::npos);
  const PlanDocument again = io::read_plan(text, "f.json");
  CHECK(again.request == document.request);
  CHECK(again.prediction.jitter == document.prediction.jitter);
  CHECK(again.search.fastest == document.search.fastest);
  CHECK(io::write_plan(again) == text);
}

TEST_CASE("a choice by the median is in a file as a whole, or not at all") {
  const std::string text = io::write_plan(plan_under_jitter());
  const auto faults_with = [&](const std::string& from, const std::string& to) {
    return plan_faults(replaced(text, from, to));
  };
  CHECK(faults_with(R"(, "slow_device_ns": [1050, 1070])", R"(, "slow_device_ns": [1050])") ==
        Faults{"/predicted/jitter/slow_device_ns: expected a time for each stage, got an array",
               "/predicted/jitter/worst_stage: expected 0, the stage of the longest time, got 1"});
  CHECK(faults_with(R"("worst_stage": 1)", R"("worst_stage": 0)") ==
        Faults{"/predicted/jitter/worst_stage: expected 1, the stage of the longest time, got 0"});
  CHECK(faults_with(R"("deviation": 0.05)", R"("deviation": 1)") ==
        Faults{"/request/jitter/deviation: expected a number below 1, got 1"});
  CHECK(faults_with(R"("seed": 3)", R"("seed": 0)").size() == 1);
  PlanDocument part = plan_under_jitter();
  part.prediction.jitter.reset();
  part.search.fastest.reset();
  CHECK(plan_faults(io::write_plan(part)) ==
        Faults{"/predicted: expected the key \"jitter\", as /request/jitter is there",
               "/search_space: expected the key \"fastest_ns\", as /request/jitter is there"});
  part = plan_under_jitter();
  part.request->jitter.reset();
  CHECK(plan_faults(io::write_plan(part)) ==
        Faults{"/predicted: expected no key \"jitter\" without /request/jitter",
               "/search_space: expected no key \"fastest_ns\" without /request/jitter"});
}

}  // namespace
}  // namespace dapple::test
