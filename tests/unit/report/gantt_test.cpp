#include "dapple/report/gantt.h"

#include <catch2/catch.hpp>

#include <sstream>
#include <string>
#include <vector>

#include "examples.h"

namespace dapple::report {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream{text};
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST_CASE("a whole iteration is drawn to scale, numbers first, backwards filled unlike forwards") {
  // Two stages, F = 1 ms, B = 2 ms, M = 2, depths 2 and 1. Stage 0: F0 [0,1) F1 [1,2) B0 [4,6)
  // B1 [7,9); stage 1: F0 [1,2) B0 [2,4) F1 [4,5) B1 [5,7); so the end is at 9 ms. 10 columns of
  // label and 37 of drawing give 36 columns for 9 ms, 4 to the millisecond, and one for the step.
  const Timeline timeline = examples::pipeline_timeline({.stages = 2, .micro_batches = 2});
  const auto lines = lines_of(draw_timeline(timeline, {.width = 47}));
  REQUIRE(lines.size() == 4);
  CHECK(lines[0] == "Timeline  0-- forward  0== backward of micro-batch 0  * step");
  CHECK(lines[1] == "  stage 0 0---1---        0=======    1=======*");
  CHECK(lines[2] == "  stage 1     0---0=======1---1=======*");
  CHECK(lines[3] == "          |0 ms               |5 ms");
}

TEST_CASE("ticks say all of their digits and no zero behind the last") {
  // One stage, one micro-batch: 3 ms on 90 columns, a tick every 0.5 ms.
  const Timeline timeline = examples::pipeline_timeline({.stages = 1, .micro_batches = 1});
  const auto lines = lines_of(draw_timeline(timeline, {.width = 101}));
  CHECK(lines.back() ==
        "          |0 ms          |0.5 ms        |1 ms          |1.5 ms        |2 ms          |2.5 "
        "ms");
}

TEST_CASE("an all-reduce is drawn where nothing is computed, the step at its end") {
  // As above with an all-reduce of 2 ms after each stage's last backward and a step of 1 ms: the
  // end is at 12 ms, 48 columns.
  const Timeline timeline = examples::pipeline_timeline(
      {.stages = 2, .micro_batches = 2, .all_reduce = {2'000'000}, .step = {1'000'000}});
  const auto lines = lines_of(draw_timeline(timeline, {.width = 59}));
  CHECK(lines[1] == "  stage 0 0---1---        0=======    1=======~~~~~~~~****");
  CHECK(lines[2] == "  stage 1     0---0=======1---1=======~~~~~~~~****");
}

TEST_CASE("a long iteration is cut, and both its ends are shown") {
  const Timeline timeline = examples::pipeline_timeline({.stages = 4, .micro_batches = 200});
  const std::string text = draw_timeline(timeline, {.width = 100});
  const auto lines = lines_of(text);
  REQUIRE(lines.size() == 6);
  for (std::size_t row = 1; row <= 4; ++row) CHECK(lines[row].find(" : ") != std::string::npos);
  CHECK(lines[1].find("0---") != std::string::npos);
  CHECK(lines[1].find("199===") != std::string::npos);
  // In the middle of the iteration, so in neither window.
  CHECK(text.find("100") == std::string::npos);
}

TEST_CASE("the number of a micro-batch is there as a whole or not at all") {
  for (int width : {60, 80, 100}) {
    const Timeline timeline = examples::pipeline_timeline({.stages = 3, .micro_batches = 1500});
    const auto lines = lines_of(draw_timeline(timeline, {.width = width}));
    for (std::size_t row = 1; row <= 3; ++row) {
      // A micro-batch goes forward and back: what is shown of the end begins near the last ones.
      std::istringstream numbers{lines[row].substr(10)};
      std::string digits;
      int shown = 0;
      for (char c = 0; numbers.get(c);) {
        if (c >= '0' && c <= '9') digits += c;
        if ((c >= '0' && c <= '9') || digits.empty()) continue;
        const int number = std::stoi(digits);
        INFO(width << ": " << lines[row]);
        CHECK((number < 100 || (number > 1400 && number < 1500)));
        digits.clear();
        ++shown;
      }
      CHECK(shown > 1);
    }
  }
}

TEST_CASE("no line is wider than the terminal at any width, depth or number of micro-batches") {
  for (int width : {60, 80, 100, 160, 200}) {
    for (std::int32_t stages : {1, 2, 8, 16}) {
      for (std::int32_t micro_batches : {1, 8, 1000}) {
        for (bool is_rich : {false, true}) {
          const Timeline timeline =
              examples::pipeline_timeline({.stages = stages, .micro_batches = micro_batches});
          const TextStyle style{.width = width, .color = is_rich, .unicode = is_rich};
          const auto lines = lines_of(draw_timeline(timeline, style));
          REQUIRE(lines.size() == static_cast<std::size_t>(stages) + 2);
          for (std::size_t row = 1; row < lines.size(); ++row) {
            CHECK(display_width(lines[row]) <= static_cast<std::size_t>(width));
          }
        }
      }
    }
  }
}

TEST_CASE("sixteen stages at eighty columns still show the first turn from forward to backward") {
  const Timeline timeline = examples::pipeline_timeline({.stages = 16, .micro_batches = 64});
  const auto lines = lines_of(draw_timeline(timeline, {.width = 80}));
  CHECK(lines[16].find("0-0===") != std::string::npos);
}

TEST_CASE("a stage that does next to nothing is seen and does not stretch the drawing") {
  Timeline timeline = examples::pipeline_timeline({.stages = 1, .micro_batches = 2});
  timeline.lanes.push_back({{StageIndex{1}}, {DeviceIndex{1}}});
  timeline.actions.push_back(
      {LaneIndex{1}, {ActionKind::Forward, 0}, {3'000'000}, {3'000'010}, {}});
  const auto lines = lines_of(draw_timeline(timeline, {.width = 80}));
  // 69 columns for 6 ms: the 10 ns at 3 ms are one column, the 35th (34.5 rounded) after the label.
  REQUIRE(lines.size() == 4);
  CHECK(lines[2] == "  stage 1 " + std::string(35, ' ') + "-");
}

TEST_CASE("independent replicas have rows of their own") {
  Timeline timeline = examples::pipeline_timeline({.stages = 2, .micro_batches = 2});
  timeline.lanes[1].stages = {StageIndex{0}};
  const auto lines = lines_of(draw_timeline(timeline, {.width = 80}));
  CHECK(lines[1].rfind("  stage 0.0 ", 0) == 0);
  CHECK(lines[2].rfind("  stage 0.1 ", 0) == 0);
}

TEST_CASE("more rows than a screen are counted, not drawn") {
  const Timeline timeline = examples::pipeline_timeline({.stages = 40, .micro_batches = 4});
  const auto lines = lines_of(draw_timeline(timeline, {.width = 80}));
  REQUIRE(lines.size() == kMostGanttRows + 3);
  CHECK(lines[kMostGanttRows + 1].find("and 8 rows more (-v)") != std::string::npos);
  CHECK(lines_of(draw_timeline(timeline, {.width = 80, .verbose = true})).size() == 40 + 2);
}

TEST_CASE("an empty timeline draws nothing") {
  CHECK(draw_timeline(Timeline{}, {}).empty());
}

}  // namespace
}  // namespace dapple::report
