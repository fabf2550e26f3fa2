// Documents that the tests of this folder read, and comparison field by field.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "../../../support/dice.h"
#include "dapple/core/error.h"
#include "dapple/io/documents/documents.h"
#include "dapple/io/files/output_files.h"

namespace dapple::test {

using small::Dice;

/// A profile of three layers, of which `b` stands for two.
inline const std::string kProfileText = R"({
  "schema": "dapple-profile/1",
  "name": "m",
  "source": "made up",
  "device": "D",
  "batch_scaling": "proportional",
  "optimizer": {"name": "sgd", "state_bytes_per_parameter_byte": 0},
  "layers": [
    {
      "name": "a",
      "parameter_bytes": 100,
      "measurements": [{"batch_size": 1, "forward_ns": 10, "backward_ns": 20, "output_bytes": 8, "stash_bytes": 4}]
    },
    {
      "name": "b",
      "repeat": 2,
      "parameter_bytes": 200,
      "measurements": [{"batch_size": 1, "forward_ns": 30, "backward_ns": 40, "output_bytes": 8, "stash_bytes": 8}]
    }
  ]
}
)";

/// Two servers of two devices each.
inline const std::string kTopologyText = R"({
  "schema": "dapple-topology/1",
  "name": "t",
  "devices": {
    "D": {
      "memory": "16 GiB"
    }
  },
  "servers": [
    {
      "name": "n",
      "count": 2,
      "device": "D",
      "devices": 2,
      "links": {"kind": "switch", "bandwidth": "1 GB/s", "latency": "1 us"},
      "nics": [
        {"bandwidth": "1 GB/s", "latency": "1 us"}
      ]
    }
  ],
  "network": {"kind": "switch", "bandwidth": "1 GB/s", "latency": "0 us"}
}
)";

/// `text` with the first `from` replaced. Fails the test if there is none.
std::string replaced(std::string text, const std::string& from, const std::string& to);

/// "place: message" of each violation that `read` throws; empty if it throws none.
template <class Read>
std::vector<std::string> faults(Read read) {
  try {
    read();
  } catch (const Error& error) {
    std::vector<std::string> result;
    for (const Violation& violation : error.violations())
      result.push_back(violation.place.empty() ? violation.message
                                               : violation.place + ": " + violation.message);
    return result;
  }
  return {};
}
std::vector<std::string> profile_faults(const std::string& text);
std::vector<std::string> topology_faults(const std::string& text);
std::vector<std::string> plan_faults(const std::string& text);

bool same(const ModelProfile& a, const ModelProfile& b);
bool same(const TopologyDescription& a, const TopologyDescription& b);
bool same(const PlanDocument& a, const PlanDocument& b);

ModelProfile random_profile(Dice& dice);
TopologyDescription random_topology(Dice& dice);

/// A sound plan of kProfileText on kTopologyText: two stages, the second on two devices.
PlanDocument small_plan();

}  // namespace dapple::test
