#include <catch2/catch.hpp>
#include <string>

#include "dapple/core/error.h"
#include "dapple/io/documents/proof_document.h"
#include "documents_under_test.h"

namespace dapple::test {
namespace {

const std::string kPlanHash(64, 'a');

/// A problem with two nodes, and one each of those without nodes.
ProofDocument small_proof() {
  const ProofNode last{.layer = 2,
                       .used = 1,
                       .devices = 1,
                       .front = BoundaryKind::Across,
                       .shared = 0,
                       .depth = 1,
                       .both = {30},
                       .round_trip = {31},
                       .last_trip = {32},
                       .span = {33},
                       .end = {34},
                       .tail = {35},
                       .occupied = {36}};
  ProofNode any = last;
  any.layer = 1;
  any.used = 3;
  any.devices.reset();
  any.front = BoundaryKind::Any;
  ProofDocument proof{.plan_sha256 = kPlanHash, .lower_bound = {150}};
  proof.problems = {{.parallelism = Parallelism{.tensor = 2, .sequence = true},
                     .replicas = 4,
                     .stages = 2,
                     .recompute = false,
                     .micro_batch_size = 8,
                     .bucket_size = {100},
                     .nodes = {last, any}},
                    {.bucket_size = {100}, .method = ProofMethod::Diagram, .width = 4},
                    {.bucket_size = {100}, .method = ProofMethod::Paths},
                    {.bucket_size = {100}, .method = ProofMethod::Search}};
  return proof;
}

TEST_CASE("a proof has a line for each node") {
  CHECK(whole_text(io::write_proof(small_proof(), "dapple-plan 0.0.0")) == R"({
  "schema": "dapple-proof/1",
  "tool": "dapple-plan 0.0.0",
  "plan_sha256": ")" + kPlanHash + R"(",
  "lower_bound_ns": 150,
  "problems": [
    {
      "parallelism": {"tensor": 2, "sequence": true},
      "replicas": 4,
      "stages": 2,
      "recompute": false,
      "micro_batch_size": 8,
      "bucket_bytes": 100,
      "method": "nodes",
      "nodes": [
        [2, 1, 1, 2, 0, 1, 30, 31, 32, 33, 34, 35, 36],
        [1, 3, -1, 0, 0, 1, 30, 31, 32, 33, 34, 35, 36]
      ]
    },
    {
      "micro_batch_size": 1,
      "bucket_bytes": 100,
      "method": "diagram",
      "width": 4
    },
    {
      "micro_batch_size": 1,
      "bucket_bytes": 100,
      "method": "paths"
    },
    {
      "micro_batch_size": 1,
      "bucket_bytes": 100,
      "method": "search"
    }
  ]
}
)");
}

TEST_CASE("a proof that was written is read as it was") {
  const std::string text = whole_text(io::write_proof(small_proof(), "dapple-plan 0.0.0"));
  CHECK(io::read_proof(text, "f.json", kPlanHash) == small_proof());
}

TEST_CASE("faults of a proof are named by their places") {
  const std::string sound = whole_text(io::write_proof(small_proof(), "dapple-plan 0.0.0"));
  const auto fault_of = [&](const std::string& part, const std::string& instead) {
    std::string text = sound;
    text.replace(text.find(part), part.size(), instead);
    try {
      io::read_proof(text, "f", kPlanHash);
    } catch (const Error& error) { return std::string(error.what()); }
    return std::string("none");
  };
  CHECK(fault_of("[2, 1, 1, 2,", "[2, 1, 1, 3,") ==
        "f: /problems/0/nodes/0/3: expected an integer from 0 to 2, got 3");
  CHECK(fault_of("[2, 1, 1, 2,", "[2, 1, -2, 2,") ==
        "f: /problems/0/nodes/0/2: expected an integer from -1 to 2147483647, got -2");
  CHECK(fault_of("[2, 1, 1, 2,", "[2, 1, 2,") ==
        "f: /problems/0/nodes/0: expected 13 integers, got 12");
  CHECK(fault_of("[2, 1, 1, 2, 0, 1, 30", "[2, 1, 1, 2, 0, 1, -30") ==
        "f: /problems/0/nodes/0/6: expected an integer from 0 to 1000000000000000, got -30");
  CHECK(fault_of("[2, 1, 1, 2, 0, 1, 30, 31, 32, 33, 34, 35, 36]", "7") ==
        "f: /problems/0/nodes/0: expected an array of 13 integers, got 7");
  CHECK(fault_of("\"paths\"", "\"faith\"") ==
        "f: /problems/2/method: expected \"nodes\", \"diagram\", \"paths\" or \"search\", got "
        "\"faith\"");
  CHECK(fault_of("\"paths\"", "\"diagram\"") ==
        "f: /problems/2/width: expected an integer from 1 to 1000000, but the key is missing");
  CHECK(fault_of("\"width\": 4", "\"width\": 0") ==
        "f: /problems/1/width: expected an integer from 1 to 1000000, got 0");
  CHECK(fault_of("\"method\": \"search\"", "\"method\": \"search\", \"nodes\": []") ==
        "f: /problems/3/nodes: expected one of the keys \"parallelism\", \"stage_forms\", "
        "\"replicas\", \"stages\", \"recompute\", "
        "\"micro_batch_size\", \"bucket_bytes\" or \"method\", got an unknown key");
  CHECK(fault_of("\"tensor\": 2", "\"tensor\": 0").find("f: /problems/0/parallelism/tensor: ") ==
        0);
  CHECK(fault_of("dapple-proof/1", "dapple-plan/1").find("f: /schema: ") == 0);
  // The proof of another plan is refused.
  CHECK(
      fault_of("aaaa", "bbbb") ==
      "f: /plan_sha256: expected aaaaaaaaaaaa..., the hash of the plan, got bbbbaaaaaaaa..., that "
      "of another one");
}

TEST_CASE("a proof with more nodes than a file may hold is refused") {
  ProofDocument proof = small_proof();
  proof.problems[0].nodes.resize(kMostProofNodes + 1);
  const std::string text = whole_text(io::write_proof(proof, "dapple-plan 0.0.0"));
  try {
    io::read_proof(text, "f", kPlanHash);
    FAIL("it was read");
  } catch (const Error& error) {
    CHECK(std::string(error.what()) ==
          "f: /problems/0/nodes: expected at most 200000 nodes in all, got more");
  }
}

}  // namespace
}  // namespace dapple::test
