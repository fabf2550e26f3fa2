#include <catch2/catch.hpp>

#include <cstddef>
#include <string>
#include <string_view>

#include "dapple/report/page.h"
#include "dapple/report/summary.h"
#include "examples.h"

namespace dapple::report {
namespace {

std::size_t count_of(std::string_view part, std::string_view text) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string_view::npos;
       at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

TEST_CASE("texts are escaped for markup and lose their control characters") {
  CHECK(escape_markup("a<b>&\"c\"'d'") == "a&lt;b&gt;&amp;&quot;c&quot;&#39;d&#39;");
  CHECK(escape_markup("bell\a, next line\xc2\x85, \xc3\xa9") == "bell?, next line?, \xc3\xa9");
  CHECK(escape_markup("&amp;") == "&amp;amp;");
}

TEST_CASE("a page refers to nothing outside itself and has its texts once") {
  const Topology topology = examples::cluster(1, 2);
  const PlanDocument document = examples::document(topology, 2, 1);
  const Timeline timeline = examples::pipeline_timeline({.stages = 2, .micro_batches = 8});
  const std::string page = write_page({document, timeline, topology});
  CHECK(count_of("<title>toy on cluster</title>", page) == 1);
  CHECK(count_of("default-src 'none'", page) == 1);
  for (const char* reference : {"http:", "https:", " src=", "@import", "url(", "{{"}) {
    INFO(reference);
    CHECK(count_of(reference, page) == 0);
  }
  CHECK(count_of("</script>", page) == 2);
  CHECK(count_of("</style>", page) == 1);
}

TEST_CASE("what a page fills in is not filled in again") {
  const Topology topology = examples::cluster(1, 2);
  PlanDocument document = examples::document(topology, 2, 1);
  document.profile.name = "{{script}}";
  const Timeline timeline = examples::pipeline_timeline({.stages = 2});
  const std::string page = write_page({document, timeline, topology});
  CHECK(count_of("<title>{{script}} on cluster</title>", page) == 1);
}

TEST_CASE("a figure of many lanes shows computations alone and stays within its height") {
  const Topology topology = examples::cluster(8, 8);
  const PlanDocument document = examples::document(topology, 64, 1);
  const Timeline timeline = examples::pipeline_timeline(
      {.stages = 64, .micro_batches = 8, .all_reduce = Duration{1'000'000}});
  const std::string figure = write_figure({document, timeline, topology});
  // 22 above for the legend, 500 for all lanes, 2 and 26 below for the axis.
  CHECK(count_of(R"(viewBox="0 0 720 550")", figure) == 1);
  CHECK(count_of(">all-reduce<", figure) == 0);
  // A line of text takes 10 units, a lane 500 / 64 = 7.8: every second lane has a label.
  CHECK(count_of(">stage ", figure) == 32);
}

TEST_CASE("the statistics of a timeline are a few lines") {
  // Two stages, F 1 ms, B 2 ms: (4 + 1) * 3 = 15 ms each. Stage 0 waits 2 ms for B0's and 1 ms for
  // B3's gradient, 3 of 30 ms; stage 1 fills for 1 ms and drains for 2. The path is stage 0's first
  // forward, all of stage 1, stage 0's last backward: 1 + 4 * 3 + 2, with 5 forwards of 1 ms.
  const Timeline timeline = examples::pipeline_timeline({.stages = 2, .micro_batches = 4});
  CHECK(write_statistics(timeline, {.width = 100}) ==
        "Idle           waiting for a stage 10.0 %, draining 6.7 %, filling 3.3 % of device time\n"
        "Critical path  backward 66.7 %, forward 33.3 %\n"
        "Communication  at most 0 s of 0 s not hidden by computation, on stage 0\n");
  CHECK(write_statistics(Timeline{}, {}).empty());
  // Collectives within layers are a part of the passes, and are stated by their name: 3 of 15 ms.
  CHECK_THAT(
      write_statistics(timeline, {.width = 100}, Duration{3'000'000}),
      Catch::EndsWith("Collectives    20.0 % of the iteration, those within layers, which are "
                      "a part of forwards and\n               backwards above and not of "
                      "communication\n"));
}

TEST_CASE("the statistics name stragglers") {
  Timeline timeline = examples::pipeline_timeline({.stages = 3, .micro_batches = 1});
  // Stage 1's step of 1 ms makes it busy for 4 ms where the median is 3.
  timeline.actions.push_back({LaneIndex{1},
                              {ActionKind::OptimizerStep, 0},
                              iteration_time(timeline),
                              iteration_time(timeline) + Duration{1'000'000},
                              {}});
  CHECK(write_statistics(timeline, {})
            .find("Stragglers     stage 1: busy over 5 % longer than the median\n") !=
        std::string::npos);
}

}  // namespace
}  // namespace dapple::report
