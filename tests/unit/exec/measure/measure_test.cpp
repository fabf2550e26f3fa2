#include "dapple/exec/measure/measure.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "../../../support/files.h"
#include "dapple/core/error.h"
#include "dapple/io/documents/documents.h"

namespace dapple::exec {
namespace {

io::Specification shipped(const std::string& name) {
  const std::string path = "profiles/" + name + ".json";
  return io::read_specification(test::source_file(path), path);
}

TEST_CASE("a measured model can be planned from, and layers that do the same count as one") {
  const MeasuredModel measured =
      measure_model(shipped("gpt2-tiny"), "m.json", {.batch_sizes = {1, 2}, .repeats = 1});
  const ModelProfile& profile = measured.profile;
  REQUIRE(measured.layers.size() == 6);  // tokens, positions, block, norm, head, loss
  CHECK(measured.layers[2].name == "block.0");
  CHECK(measured.layers[2].copies == 4);
  REQUIRE(profile.layers.size() == 9);
  CHECK(profile.ties == std::vector<Tie>{{{0}, {{7}}}});  // the head to the tokens
  for (std::size_t block = 2; block <= 5; ++block) {
    const Measurement& one = profile.layers[block].measurements[0];
    CHECK(one.forward == measured.layers[2].measurements[0].forward);
    CHECK(one.backward == *one.input_gradient + *one.weight_gradient);
    CHECK(one.output == Bytes{4 * 64 * 64});
    // Per position and of hidden 64 and feed-forward 256: two norms of 65, two inputs of linear
    // layers and what the heads give, 64 each, queries, keys and values 192, feed-forward 512; and
    // 4 heads of 64 x 64 shares.
    CHECK(one.stash == Bytes{4 * (64 * (130 + 3 * 64 + 192 + 512) + 4 * 64 * 64)});
    CHECK(profile.layers[block].measurements[1].stash == 2 * one.stash);
  }
  const std::string text = io::write_profile(profile);
  CHECK(io::write_profile(io::read_profile(text, "m.json")) == text);
  CHECK(io::read_specification(text, "m.json").operations.size() == 9);
}

TEST_CASE(
    "measurements that spread by more than a fifth of the median are warned of, the widest named") {
  const auto layer = [](const char* name, std::vector<double> spreads) {
    MeasuredLayer measured;
    measured.name = name;
    measured.measurements.resize(spreads.size());
    measured.measurements.front().batch_size = 1;
    measured.measurements.back().batch_size = 8;
    measured.spreads = std::move(spreads);
    return measured;
  };
  CHECK(warn_of_spread({layer("a", {0.2, 0.1}), layer("b", {0, 0.2})}).empty());
  CHECK(warn_of_spread({layer("a", {0.25, 0.1}), layer("b", {0.21, 0.5}), layer("c", {0.5, 0})}) ==
        std::vector<std::string>{
            "measured times spread by more than 20 % in 4 of the profile's measurements, most in b "
            "at "
            "batch 8, by 50 %: a quieter machine or more passes (--repeat) make them truer"});
}

std::vector<Duration> times_of(const std::vector<std::int64_t>& nanoseconds) {
  std::vector<Duration> times;
  for (const std::int64_t ns : nanoseconds) times.push_back({ns});
  return times;
}

TEST_CASE("the drift of passes is by how much the medians of both halves differ") {
  const std::vector<Duration> steady = times_of({100, 300, 100, 100, 100, 100});
  const std::vector<Duration> slower = times_of({10, 10, 10, 12, 12, 12});
  const std::vector<Duration> quicker = times_of({12, 12, 12, 10, 10, 10});
  CHECK(drift_of({steady}) == 0);
  CHECK(drift_of({slower}) == Approx(0.2));  // of the lower median
  CHECK(drift_of({quicker}) == Approx(0.2));
  CHECK(drift_of({slower, quicker}) == Approx(0.2));
  CHECK(drift_of({steady, slower}) == Approx(2.0 / 110));
  CHECK(drift_of({times_of({1, 1, 9})}) == 0);
  CHECK(drift_of({times_of({0, 0, 0, 0})}) == 0);
}

TEST_CASE("passes are made in rounds until they are stable, or there are as many as are allowed") {
  for (const std::int64_t cores : {1, 2}) {
    const MeasureOptions options{
        .batch_sizes = {1}, .repeats = 4, .most_repeats = 12, .cores = cores};
    MeasuredModel measured;
    try {
      measured = measure_model(shipped("gpt2-tiny"), "m.json", options);
    } catch (const Error&) {
      continue;  // on a machine of one core
    }
    INFO(measured.passes << " passes on " << cores << " cores");
    CHECK(measured.passes % 4 == 0);
    CHECK(measured.passes <= 12);
    const bool is_unstable = std::any_of(
        measured.profile.warnings.begin(), measured.profile.warnings.end(),
        [](const std::string& text) { return text.find("not stable") != std::string::npos; });
    if (is_unstable) CHECK(measured.passes == 12);
  }
}

TEST_CASE("a core that is stopped does not keep the others waiting") {
  std::mutex mutex;
  std::map<std::thread::id, int> passes;
  const auto stop_the_first = [&] {
    const std::lock_guard lock(mutex);
    const bool is_first = passes.empty() || passes.count(std::this_thread::get_id()) > 0;
    if (passes.size() < 2 || is_first) ++passes[std::this_thread::get_id()];
    return passes.size() == 1 && passes.begin()->second == 1;
  };
  try {
    measure_model(shipped("gpt2-tiny"), "m.json",
                  {.batch_sizes = {1},
                   .repeats = 4,
                   .most_repeats = 8,
                   .cores = 2,
                   .should_stop = stop_the_first});
  } catch (const Error&) {
    return;  // on a machine of one core
  }
  REQUIRE(passes.size() == 2);
  std::vector<int> counts;
  for (const auto& [thread, count] : passes) counts.push_back(count);
  CHECK(*std::min_element(counts.begin(), counts.end()) == 1);
  CHECK(*std::max_element(counts.begin(), counts.end()) >= 4);
}

TEST_CASE("no more cores are measured on than there are") {
  CHECK_THROWS_WITH(
      measure_model(shipped("gpt2-tiny"), "m.json", {.batch_sizes = {1}, .cores = 100'000}),
      Catch::Matchers::Contains("which this process may use, got 100000"));
}

TEST_CASE("layers of the same kind on other inputs are measured apart") {
  const MeasuredModel measured =
      measure_model(shipped("vgg-11-like"), "m.json", {.batch_sizes = {1}, .repeats = 1});
  // Of the 28, convolutions 6 and 7 are alike; ReLUs behind convolutions 2 and 3, 4 and 5, 6 and 7,
  // and behind linear layers 0 and 1; linear layers 0 and 1.
  CHECK(measured.layers.size() == 28 - 6);
  CHECK(measured.profile.batch_scaling == BatchScaling::Proportional);
}

TEST_CASE("a measurement that is stopped has the passes that were made, and says how many") {
  struct Stop {
    int at;  // the pass after which it is told to
    std::int64_t counted;
    std::string source;
  };
  const std::vector<Stop> stops{{1, 1, "medians of 1 pass over all layers after 0 to warm up"},
                                {2, 1, "medians of 1 pass over all layers after 1 to warm up"},
                                {3, 1, "medians of 1 pass over all layers after 2 to warm up"},
                                {5, 3, "medians of 3 passes over all layers after 2 to warm up"},
                                {99, 4, "medians of 4 passes over all layers after 2 to warm up"}};
  for (const Stop& stop : stops) {
    INFO(stop.at);
    int passes = 0;
    const MeasuredModel measured =
        measure_model(shipped("vgg-11-like"), "m.json",
                      {.batch_sizes = {1}, .repeats = 4, .should_stop = [&passes, &stop] {
                         return ++passes == stop.at;
                       }});
    CHECK(measured.passes == stop.counted);
    CHECK(passes == std::min(stop.at, 6));
    CHECK_THAT(measured.profile.source, Catch::Matchers::Contains(stop.source));
    CHECK(measured.profile.layers.front().measurements.front().forward.ns > 0);
  }
}

}  // namespace
}  // namespace dapple::exec
