#include "dapple/report/summary.h"

#include <catch2/catch.hpp>

#include <sstream>
#include <string>

#include "dapple/report/causes.h"
#include "dapple/report/comparison.h"
#include "examples.h"

namespace dapple::report {
namespace {

std::string summary_of(const PlanDocument& document, const Topology& topology,
                       const TextStyle& style) {
  const Timeline timeline = examples::pipeline_timeline(
      {.stages = static_cast<std::int32_t>(document.plan.stages.size()), .micro_batches = 8});
  return write_summary(document, timeline, topology, style);
}

TEST_CASE("the summary says what runs where, how long it takes and how full memory is") {
  const Topology topology = examples::cluster(2, 8);
  const PlanDocument document = examples::document(topology, 2, 8);
  const std::string text = summary_of(document, topology, {.width = 140});
  CHECK(text.find("toy on cluster   global batch 64 = 8 micro-batches of 8, 1f1b") == 0);
  CHECK(text.find("    0  4: embeddings..encoder.2  8: node0:0-7        1  15.25 ms  25.38 ms") !=
        std::string::npos);
  // 4 of 15 GiB are 27 %, 2.1 of 8 marks; 5 of 15 are 33 %, 2.7 marks.
  CHECK(text.find("2  [##......] 4.00 of 15.0 GiB  27 %") != std::string::npos);
  CHECK(text.find("1  [###.....] 5.00 of 15.0 GiB  33 %") != std::string::npos);
  for (const char* figure :
       {"512.3 ms, simulated", "124.9 samples/s", "13.40 x one device  ", "bubble         12.3 %",
        "devices used   16 of 16", "exposed all-reduce  38.00 ms", "exposed transfers   1.200 ms",
        "recomputation  nowhere"}) {
    INFO(figure);
    CHECK(text.find(figure) != std::string::npos);
  }
}

TEST_CASE("a device that was measured as several GPUs is said to be, and a group is not") {
  const Topology topology = examples::cluster(2, 8);
  PlanDocument document = examples::document(topology, 2, 8);
  document.profile.tensor_parallel = 4;
  CHECK(summary_of(document, topology, {.width = 140}).find("16 of 16, each 4 GPUs") !=
        std::string::npos);
  document.ungrouped = {document.profile, topology.description()};
  document.ungrouped->profile.tensor_parallel = 1;
  CHECK(summary_of(document, topology, {.width = 140}).find("GPUs") == std::string::npos);
}

TEST_CASE("throughput is in tokens, too, where the profile says what a sample is") {
  const Topology topology = examples::cluster(2, 8);
  PlanDocument document = examples::document(topology, 2, 8);
  document.topology = topology.description();
  document.profile.device = "card";
  document.prediction.samples_per_second = 128;
  CHECK(summary_of(document, topology, {.width = 140}).find("tokens") == std::string::npos);
  // 128 samples of 50 GFLOP a second are half of what 16 devices of 800 GFLOP/s could do.
  document.profile.sample = SampleWork{.tokens = 1000, .gflop = 50, .peak_gflop_per_second = 800};
  const std::string text = summary_of(document, topology, {.width = 140});
  CHECK(text.find("128,000 a second, 8,000 a device") != std::string::npos);
  const std::string::size_type utilization = text.find("MFU ");
  REQUIRE(utilization != std::string::npos);
  CHECK(text.find("50.0 %", utilization) != std::string::npos);
  // The peak is of the device that was measured.
  document.profile.device = "other";
  const std::string of_others = summary_of(document, topology, {.width = 140});
  CHECK(of_others.find("tokens") != std::string::npos);
  CHECK(of_others.find("MFU") == std::string::npos);
}

TEST_CASE("what was searched takes two lines, and all lines where all is asked for") {
  const Topology topology = examples::cluster(2, 8);
  PlanDocument document = examples::document(topology, 2, 8);
  const auto searched = [&](const TextStyle& style) {
    const std::string text = summary_of(document, topology, style);
    return text.substr(text.find("Searched"));
  };
  CHECK(searched({.width = 100}) ==
        "Searched  12,345 partial plans, 678 complete ones, 90 simulated; 1 part cut (-v)\n"
        "          not searched: tensor, sequence and expert parallelism; sharded state\n");
  CHECK(searched({.width = 100, .verbose = true}) ==
        "Searched  12,345 partial plans, 678 complete ones, 90 simulated\n"
        "          by the planner dapple\n"
        "          over stage boundaries; replicas per stage; micro-batch sizes that divide the "
        "global batch\n"
        "          left out: placements other than fresh, append and scatter first\n"
        "          not searched: tensor, sequence and expert parallelism; sharded state\n");
}

TEST_CASE("a search that completed no plan says why") {
  const Topology topology = examples::cluster(2, 8);
  PlanDocument document = examples::document(topology, 2, 8);
  SearchRecord& search = document.search;
  search.cut.clear();
  search.candidates = 0;
  search.simulated = 0;
  const auto first_line = [&] {
    const std::string text = summary_of(document, topology, {.width = 100});
    const std::size_t begin = text.find("Searched  ") + 10;
    return text.substr(begin, text.find('\n', begin) - begin);
  };
  CHECK(first_line() == "12,345 partial plans; none can beat the first plan");
  search.open = 3;
  CHECK(first_line() == "12,345 partial plans; none was complete when the search ended");
  search.states = 0;
  search.planner = "exact";
  CHECK(first_line() == "nothing beyond the first plans");
  search.open = 0;
  CHECK(first_line() == "nothing beyond the first plans, which none can beat");
  search.planner = "reschedule";
  search.searched = {"orders of zb-h1"};
  CHECK(first_line() == "orders of zb-h1");
}

TEST_CASE("in a pipe the table is as wide as its names, each row a line") {
  const Topology topology = examples::cluster(2, 8);
  PlanDocument document = examples::document(topology, 2, 8);
  document.profile.layers[0].name = std::string(150, 'x') + ".0123456789";
  const std::string text = summary_of(document, topology, {.width = 80});
  CHECK(text.find(document.profile.layers[0].name) != std::string::npos);
  CHECK(text.find("~") == std::string::npos);
}

TEST_CASE("a line says what treating replicas the other way would change") {
  Prediction prediction;
  prediction.iteration = {200'000'000};
  CHECK(other_replicas_text(prediction, std::nullopt).empty());
  CHECK(other_replicas_text(prediction, Duration{199'000'000}) ==
        "Independent replicas: 199.0 ms (0.5 % less)\n");
  CHECK(other_replicas_text(prediction, prediction.iteration) ==
        "Independent replicas: 200.0 ms (no difference)\n");
  prediction.replicas = Replicas::Independent;
  CHECK(other_replicas_text(prediction, Duration{202'000'000}) ==
        "Replicas together: 202.0 ms (1.0 % more)\n");
}

TEST_CASE("the summary stays within any usual terminal") {
  for (std::int32_t stages : {2, 8, 16}) {
    const Topology topology = examples::cluster(2, 8);
    PlanDocument document = examples::document(topology, stages, 16 / stages);
    document.warnings = {std::string("a long warning ") + std::string(40, 'x') +
                         " and more words " + std::string(40, 'y') + " until it must be broken"};
    for (int width : {80, 100, 112, 146, 160, 200}) {
      for (bool is_rich : {false, true}) {
        std::istringstream lines{
            summary_of(document, topology,
                       {.width = width, .color = is_rich, .unicode = is_rich, .wraps = true})};
        for (std::string line; std::getline(lines, line);) {
          INFO(width << ": " << line);
          CHECK(display_width(line) <= static_cast<std::size_t>(width));
        }
      }
    }
  }
}

TEST_CASE("without a UTF-8 locale every byte is ASCII") {
  const Topology topology = examples::cluster(2, 8);
  for (char c : summary_of(examples::document(topology, 8, 2), topology, {.width = 160})) {
    CHECK(static_cast<unsigned char>(c) < 0x80);
  }
}

TEST_CASE("memory is that of the stage's fullest device, and more than all is more than 100 %") {
  const Topology topology = examples::cluster(1, 4);
  PlanDocument document = examples::document(topology, 2, 2);
  // Stage 0: 4 of 15 GiB, and 3 of 2 GiB, which is fuller though fewer bytes: 150 %.
  document.prediction.devices[1].peak_memory = {std::int64_t{3} << 30};
  document.prediction.devices[1].memory_limit = {std::int64_t{2} << 30};
  CHECK(summary_of(document, topology, {.width = 100}).find("3.00 of 2.00 GiB 150 %") !=
        std::string::npos);
}

TEST_CASE("the stages that recompute are named") {
  const Topology topology = examples::cluster(1, 8);
  PlanDocument document = examples::document(topology, 4, 2);
  document.plan.stages[1].recompute = true;
  document.plan.stages[2].recompute = true;
  CHECK(summary_of(document, topology, {}).find("recomputation  stages 1-2") != std::string::npos);
  for (StagePlan& stage : document.plan.stages) stage.recompute = true;
  CHECK(summary_of(document, topology, {}).find("recomputation  every stage") != std::string::npos);
}

TEST_CASE("uneven shares of a micro-batch are shown as such") {
  const Topology topology = examples::cluster(1, 6);
  PlanDocument document = examples::document(topology, 2, 3);  // 8 = 3 + 3 + 2
  CHECK(summary_of(document, topology, {.width = 100}).find("2-3  15.25 ms") != std::string::npos);
}

TEST_CASE("warnings stand in the summary, made safe for a terminal") {
  const Topology topology = examples::cluster(1, 2);
  PlanDocument document = examples::document(topology, 2, 1);
  document.warnings = {"first \x1b[2J", "second"};
  const std::string text = summary_of(document, topology, {});
  CHECK(text.find("Warning  first ?[2J\nWarning  second\n") != std::string::npos);
  CHECK(text.find('\x1b') == std::string::npos);
}

TEST_CASE("a baseline is shown with its shape, its factor, and what it loses by") {
  const Topology topology = examples::cluster(2, 8);
  PlanDocument document = examples::document(topology, 2, 8);
  Baseline slow{.name = "slow",
                .shape = "16, 8 of 8",
                .iteration = {768'518'517},  // 1.5 x 512,345,678
                .parts = document.prediction.parts,
                .feasible = true,
                .missing = {},
                .depth_limited = false};
  slow.parts.all_reduce += Duration{206'172'839};
  slow.parts.bubble += Duration{50'000'000};
  Baseline equal = slow;
  equal.name = "equal";
  equal.iteration = document.prediction.iteration;
  Baseline held = slow;
  held.name = "held";
  held.depth_limited = true;
  Baseline large = slow;
  large.name = "large";
  large.feasible = false;
  large.missing = {std::int64_t{3} << 30};
  document.baselines = {slow, equal, held, large};
  const std::string text = summary_of(document, topology, {.width = 140});
  for (const char* line : {"slow           16, 8 of 8              768.5 ms  1.50x slower  "
                           "all-reduce 206.2 ms, bubble "
                           "50.00 ms\n",
                           "equal          16, 8 of 8              512.3 ms  same time     -\n",
                           "all-reduce 206.2 ms, bubble 50.00 ms; memory limits its depth\n",
                           "1.50x slower  does not fit, lacks 3.00 GiB\n"}) {
    INFO(line << "\nis not in\n" << text);
    CHECK(text.find(line) != std::string::npos);
  }
  const std::string narrow = summary_of(document, topology, {.width = 80, .wraps = true});
  CHECK(narrow.find("16, 8 of 8") == std::string::npos);
  CHECK(narrow.find("1.50x slower  all-reduce 206.2 ms\n") != std::string::npos);
}

TEST_CASE("a faster baseline is shown with the options that exclude it") {
  const Topology topology = examples::cluster(2, 8);
  PlanDocument document = examples::document(topology, 2, 8);
  document.baselines = {{.name = "fast",
                         .shape = "16, 8 of 8",
                         .iteration = {256'172'839},  // half of 512,345,678
                         .parts = document.prediction.parts,
                         .feasible = true,
                         .missing = {},
                         .depth_limited = false}};
  const auto row = [&] {
    const std::string text = summary_of(document, topology, {.width = 140});
    const std::size_t begin = text.find("fast  ");
    return text.substr(begin, text.find('\n', begin) - begin);
  };
  document.request = PlanRequest{};
  CHECK_THAT(row(), Catch::EndsWith("-"));
  document.request->pins.stages = 2;
  document.request->pins.least_depths = true;
  CHECK_THAT(row(), Catch::EndsWith("not allowed by --pin stages=2, --pin depths=least"));
  document.request->target = "deepspeed";
  document.request->family = ScheduleFamily::ZeroBubbleH1;
  CHECK_THAT(row(), Catch::EndsWith("--pin depths=least, --for deepspeed, --schedule zb-h1"));
  // With jitter the fastest plan need not be the one that is chosen.
  document.request->jitter = JitterRequest{};
  CHECK_THAT(row(), Catch::EndsWith("-"));
  // One that is not fast enough or does not fit loses by what it loses by.
  document.request->jitter.reset();
  document.baselines.front().feasible = false;
  CHECK_THAT(row(), Catch::Contains("does not fit"));
}

TEST_CASE("causes stand by their size, small ones and gains are left out") {
  const TimeParts none;
  TimeParts some;
  some.bubble = {100};
  some.transfers = {20};    // a fifth of the largest
  some.imbalance = {19};    // less
  some.all_reduce = {100};  // as large, later in the order of the parts
  CHECK(main_causes(none, some, {100}) == "bubble 100 ns, all-reduce 100 ns, transfers 20 ns");
  CHECK(main_causes(none, some, {5'000}) ==
        "bubble 0.100 us, all-reduce 0.100 us, transfers 0.020 us");
  CHECK(main_causes(some, none, {100}).empty());
}

TEST_CASE("a comparison marks what is the same, what differs, and which is faster") {
  const Topology topology = examples::cluster(2, 8);
  const PlanDocument a = examples::document(topology, 2, 8);
  PlanDocument b = a;
  b.plan.stages[0].layers = {0, 5};
  b.plan.stages[1].layers = {5, 8};
  b.prediction.iteration = {614'814'814};  // 512,345,678 * 1.2 = 614,814,813.6
  b.prediction.parts.bubble += b.prediction.iteration - a.prediction.iteration;
  const auto compare = [&](const PlanDocument& x, const PlanDocument& y) {
    return write_comparison({.first = {"a.json", x.plan, x.prediction},
                             .second = {"b.json", y.plan, y.prediction},
                             .profile = a.profile,
                             .topology = topology},
                            {.width = 100});
  };
  const std::string differing = compare(a, b);
  CHECK(differing.find("iteration           512.3 ms  614.8 ms      +20.0 %\n") !=
        std::string::npos);
  CHECK(differing.find(" 0  A  4: embed") != std::string::npos);
  CHECK(differing.find(" 0  B  5: embed") != std::string::npos);
  CHECK(differing.find("bubble          62.15 ms  164.6 ms  +102.5 ms\n") != std::string::npos);
  CHECK(differing.find("imbalance       10.00 ms  10.00 ms       same\n") != std::string::npos);
  CHECK(differing.find("recomputation") == std::string::npos);
  CHECK(differing.find("B loses by bubble 102.5 ms.\n") != std::string::npos);
  CHECK(differing.find("A is faster: 102.5 ms less per iteration, 1.200 x.") != std::string::npos);
  const std::string same = compare(a, a);
  CHECK(same.find("0 AB  4: embed") != std::string::npos);
  CHECK(same.find("The plans are the same.") != std::string::npos);
}

}  // namespace
}  // namespace dapple::report
