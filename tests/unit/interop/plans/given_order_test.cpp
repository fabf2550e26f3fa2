#include <catch2/catch.hpp>

#include <string>
#include <vector>

#include "../../../support/plans.h"
#include "../../../support/refusals.h"
#include "dapple/interop/plans/given_order.h"
#include "dapple/schedule/schedule.h"

namespace dapple::interop {
namespace {

using namespace small;

/// Stage 0 on node0:0 and node0:1, stage 1 on node0:2.
CostedPlan two_stages() {
  const std::vector<LayerFigures> layers(2, {.forward = 1, .backward = 2, .parameters = 4});
  return {model_of(layers), cluster({.devices = 3}),
          PlanShape{.micro_batch_size = 2,
                    .num_micro_batches = 1,
                    .depths = {1, 1},
                    .stages = {{.devices = {0, 1}}, {.devices = {2}}}}};
}

std::vector<std::vector<Action>> read(const std::string& text) {
  const CostedPlan pipeline = two_stages();
  return read_order(text, "order.txt", pipeline.plan, pipeline.topology);
}

std::string refusal_of_order(const std::string& text) {
  return test::refusal_of([&] { read(text); });
}

TEST_CASE("an order is read from text as it is printed, without what follows from it") {
  const CostedPlan pipeline = two_stages();
  const std::vector<std::vector<Action>> wanted{parse_actions("0F0 0B0"), parse_actions("1F0 1B0")};
  CHECK(read(to_text(generate(pipeline.plan), pipeline.topology)) == wanted);
  CHECK(read("node0:2: 1F0 1B0\r\n\nnode0:0: 0F0 0B0\n") == wanted);
}

TEST_CASE("an order is read from a grid of cells, empty ones for waiting") {
  CHECK(read("0F0,,,0I0,0W0\n,1F0,1B0,,\n") ==
        std::vector<std::vector<Action>>{parse_actions("0F0 0I0 0W0"), parse_actions("1F0 1B0")});
}

TEST_CASE("a row of a grid belongs to the devices that have its first action's stage") {
  CHECK(read(",1F0,1B0,\n0F0,,,0B0\n") ==
        std::vector<std::vector<Action>>{parse_actions("0F0 0B0"), parse_actions("1F0 1B0")});
  CHECK(refusal_of_order("1F0,0B0\n0F0,1B0\n") ==
        "order.txt: line 1: expected an action of a stage on node0:2 (1), got 0B0");
  CHECK(refusal_of_order("1F0,1B0\n1F0,1B0\n") ==
        "order.txt: line 2: expected an action of a stage on node0:0 (0), got 1F0");
}

TEST_CASE("faults of a given order name their line") {
  CHECK(refusal_of_order("node0:0: 0F0 0X0\n") ==
        "order.txt: line 1: expected an action such as 2F0, got \"0X0\"");
  CHECK(refusal_of_order("\nnode7:0: 0F0\n") ==
        "order.txt: line 2: expected a device of the topology, got \"node7:0\"");
  CHECK(refusal_of_order("node0:0: 0F0 0B0\nnode0:1: 0F0\n") ==
        "order.txt: line 2: expected the actions of the other devices with node0:1's stages");
  CHECK(refusal_of_order("node0:0: 0F0\nnode0:0: 0F0\n") ==
        "order.txt: line 2: expected one line for each device, got another for node0:0");
  CHECK(refusal_of_order("node0:0: 0F0 0B0\n") ==
        "order.txt: line 2: expected a line for node0:2, got none");
  CHECK(refusal_of_order("node0:0: 0F0 0B0\nnode0:2: 1F0 0B0 1B0\n") ==
        "order.txt: line 2: expected an action of a stage on node0:2 (1), got 0B0");
  CHECK(refusal_of_order("0F0,0B0\n1F0,0B0\n") ==
        "order.txt: line 2: expected an action of a stage on node0:2 (1), got 0B0");
  CHECK(refusal_of_order("node0:0 0F0\n") ==
        "order.txt: line 1: expected a device's name, a colon and its actions");
  CHECK(refusal_of_order("0F0,0B0\n") ==
        "order.txt: line 2: expected 2 rows, one for each group of devices, got 1");
  CHECK(refusal_of_order("0F0\n1F0\n\n0B0\n") ==
        "order.txt: line 4: expected 2 rows, one for each group of devices, got 3");
  for (const char* blank : {"", "\n", " \t\r\n\n"}) {
    CHECK(refusal_of_order(blank) ==
          "order.txt: expected the actions of each device, got only blank lines");
  }
  CHECK(refusal_of_order("0F0,0B0\n1F0,OVERLAP\n") ==
        "order.txt: line 2: expected an action such as 2F0, got \"OVERLAP\"");
}

}  // namespace
}  // namespace dapple::interop
