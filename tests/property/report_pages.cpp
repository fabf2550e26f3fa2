// What holds for the page and the figure of any plan.

#include <catch2/catch.hpp>

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <vector>

#include "../support/random_pipeline.h"
#include "dapple/report/page.h"

namespace dapple {
namespace {

using namespace small;

/// Lane, kind, index, start, end, bytes.
using Drawn =
    std::tuple<std::int64_t, std::string, std::int64_t, std::int64_t, std::int64_t, std::int64_t>;

PlanDocument document_of(const Pipeline& pipeline) {
  PlanDocument document;
  document.profile = pipeline.profile;
  document.topology = pipeline.topology.description();
  document.plan = pipeline.plan;
  document.prediction.stages.resize(pipeline.plan.stages.size());
  return document;
}

nlohmann::json content_of(const std::string& page) {
  const std::string opener = R"(id="content">)";
  const std::size_t begin = page.find(opener) + opener.size();
  return nlohmann::json::parse(page.substr(begin, page.find("</script>", begin) - begin));
}

/// The actions of one lane, summed up as the page does it.
void decode(const nlohmann::json& content, std::int64_t number, std::vector<Drawn>& drawn) {
  const nlohmann::json& lane = content["lanes"][static_cast<std::size_t>(number)];
  std::int64_t start = 0;
  std::map<std::size_t, std::int64_t> lengths;
  std::map<std::size_t, std::int64_t> bytes;
  for (std::size_t i = 0; i < lane["kind"].size(); ++i) {
    const auto kind = lane["kind"][i].get<std::size_t>();
    start += lane["start"][i].get<std::int64_t>();
    lengths[kind] += lane["length"][i].get<std::int64_t>();
    bytes[kind] += lane["bytes"][i].get<std::int64_t>();
    drawn.emplace_back(number, content["kinds"][kind]["name"].get<std::string>(),
                       lane["index"][i].get<std::int64_t>(), start, start + lengths[kind],
                       bytes[kind]);
  }
}

TEST_CASE("a page holds the timeline of any plan, to the nanosecond and the byte") {
  Dice dice(41);
  for (int i = 0; i < scaled(150); ++i) {
    const Pipeline pipeline = random_pipeline(dice, {.slowdown = true, .deal = true});
    INFO("instance " << i << ": " << text_of(pipeline));
    const Timeline timeline = pipeline.run().timeline;
    const PlanDocument document = document_of(pipeline);
    const nlohmann::json content =
        content_of(report::write_page({document, timeline, pipeline.topology}));
    std::vector<Drawn> drawn;
    std::vector<Drawn> expected;
    for (std::size_t lane = 0; lane < timeline.lanes.size(); ++lane) {
      decode(content, static_cast<std::int64_t>(lane), drawn);
      for (const TimedAction& timed : timeline.actions) {
        if (timed.lane.position() != lane) continue;
        expected.emplace_back(timed.lane.value, to_string(timed.action.kind), timed.action.index,
                              timed.start.ns, timed.end.ns, timed.size.count);
      }
    }
    REQUIRE((drawn == expected));
  }
}

TEST_CASE("a figure draws any plan in the same space") {
  Dice dice(42);
  for (int i = 0; i < scaled(100); ++i) {
    const Pipeline pipeline = random_pipeline(dice, {.slowdown = true, .deal = true});
    INFO("instance " << i << ": " << text_of(pipeline));
    const Timeline timeline = pipeline.run().timeline;
    const PlanDocument document = document_of(pipeline);
    const std::string figure = report::write_figure({document, timeline, pipeline.topology});
    REQUIRE(figure.find("nan") == std::string::npos);
    REQUIRE(figure.find("inf") == std::string::npos);
    REQUIRE(figure.rfind("</svg>\n") == figure.size() - 7);
    REQUIRE(figure == report::write_figure({document, timeline, pipeline.topology}));
  }
}

}  // namespace
}  // namespace dapple
