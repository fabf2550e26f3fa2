#include <catch2/catch.hpp>

#include <cstdlib>
#include <string>

#include "dapple/core/random.h"
#include "dapple/report/show.h"
#include "examples.h"

namespace dapple::report {
namespace {

TEST_CASE("a time is shown with four significant digits in the unit that suits it") {
  CHECK(show(Duration{0}) == "0 s");
  CHECK(show(Duration{1}) == "1 ns");
  CHECK(show(Duration{999}) == "999 ns");
  CHECK(show(Duration{1'000}) == "1.000 us");
  CHECK(show(Duration{56'000}) == "56.00 us");
  CHECK(show(Duration{512'345'678}) == "512.3 ms");
  CHECK(show(Duration{75'123'000'000}) == "75.12 s");
  CHECK(show(Duration{12'345'600'000'000}) == "12346 s");
  CHECK(show(Duration{-2'500'000}) == "-2.500 ms");
}

TEST_CASE("a time that rounds up to the next unit is shown in it") {
  // 999,949 ns = 999.949 us -> 999.9 us; 999,950 ns = 999.95 us -> 1000.0 us = 1.000 ms.
  CHECK(show(Duration{999'949}) == "999.9 us");
  CHECK(show(Duration{999'950}) == "1.000 ms");
  CHECK(show(Duration{999'999'999}) == "1.000 s");
}

TEST_CASE("times that are compared have one unit") {
  const Duration whole{761'300'000};
  CHECK(show(whole, whole) == "761.3 ms");
  CHECK(show(Duration{1'359'000'000}, whole) == "1359 ms");
  CHECK(show(Duration{76'130'000'000}, whole) == "76,130 ms");
  CHECK(show(Duration{}, whole) == "0 ms");
  CHECK(show(Duration{977'500}, whole) == "0.978 ms");
  // 499 ns are 0.000499 ms, which three decimals do not show.
  CHECK(show(Duration{499}, whole) == "<0.001 ms");
  CHECK(show(Duration{500}, whole) == "0.001 ms");
  CHECK(show(Duration{-2'500'000}, whole) == "-2.500 ms");
  CHECK(show(Duration{3}, Duration{40}) == "3 ns");
  CHECK(show(Duration{12'345'600'000'000}, Duration{1}) == "12,345,600,000,000 ns");
  CHECK(show(Duration{5}, Duration{}) == "5 ns");
}

TEST_CASE("sizes that are compared have one unit") {
  const Bytes whole{std::int64_t{15} << 30};
  CHECK(show(whole, whole) == "15.0 GiB");
  CHECK(show(Bytes{std::int64_t{500} << 20}, whole) == "0.49 GiB");
  CHECK(show(Bytes{1}, whole) == "<0.01 GiB");
  CHECK(show(Bytes{}, whole) == "0 GiB");
  CHECK(show(Bytes{std::int64_t{20'480} << 30}, whole) == "20,480 GiB");
}

TEST_CASE("a size is shown with three significant digits in binary units") {
  CHECK(show(Bytes{0}) == "0 B");
  CHECK(show(Bytes{1023}) == "1023 B");
  CHECK(show(Bytes{1024}) == "1.00 KiB");
  // 4,325,376 / 1,048,576 = 4.125.
  CHECK(show(Bytes{4'325'376}) == "4.13 MiB");
  CHECK(show(Bytes{std::int64_t{15} << 30}) == "15.0 GiB");
  // 1023.6 MiB rounds to 1024 MiB, which is 1.00 GiB.
  CHECK(show(Bytes{1'073'322'394}) == "1.00 GiB");
  CHECK(show(Bytes{-1536}) == "-1.50 KiB");
}

TEST_CASE("what is shown of a time is never further from it than half its last digit") {
  RandomSequence random{7};
  for (int round = 0; round < 20'000; ++round) {
    const auto ns = static_cast<std::int64_t>(random() >> (random() % 50 + 14)) % kMaxCount + 1;
    const std::string text = show(Duration{ns});
    const std::size_t blank = text.find(' ');
    const std::string unit = text.substr(blank + 1);
    const double scale = unit == "ns" ? 1 : unit == "us" ? 1e3 : unit == "ms" ? 1e6 : 1e9;
    const std::size_t point = text.find('.');
    double half = scale / 2;
    if (point != std::string::npos) {
      for (std::size_t i = point + 1; i < blank; ++i) half /= 10;
    }
    INFO(ns << " shown as " << text);
    CHECK(std::abs(std::strtod(text.c_str(), nullptr) * scale - static_cast<double>(ns)) <=
          half * 1.000001);
  }
}

TEST_CASE("counts have separators, also below zero") {
  CHECK(show_count(0) == "0");
  CHECK(show_count(999) == "999");
  CHECK(show_count(1000) == "1,000");
  CHECK(show_count(1234567) == "1,234,567");
  CHECK(show_count(-123) == "-123");
  CHECK(show_count(-1234) == "-1,234");
}

TEST_CASE("rates keep four digits and lose none above a thousand") {
  CHECK(show_rate(0.12345) == "0.123");
  CHECK(show_rate(12.3456) == "12.35");
  CHECK(show_rate(124.9157) == "124.9");
  CHECK(show_rate(12345.6) == "12,346");
}

TEST_CASE("devices are named in as few words as possible") {
  const Topology topology = examples::cluster(3, 4);
  const auto named = [&topology](std::vector<std::int32_t> numbers) {
    std::vector<DeviceIndex> devices;
    for (std::int32_t number : numbers) devices.push_back({number});
    return show_devices(devices, topology);
  };
  CHECK(named({5}) == "node1:1");
  CHECK(named({0, 1, 2, 3}) == "node0:0-3");
  CHECK(named({3, 2, 0}) == "node0:0,2-3");
  CHECK(named({0, 1, 2, 3, 4, 5, 6, 7}) == "node0-1:0-3");
  CHECK(named({0, 4, 8}) == "node0-2:0");
  // Servers that are not neighbours, or hold other devices, are named apart.
  CHECK(named({0, 8}) == "node0:0, node2:0");
  CHECK(named({0, 1, 4}) == "node0:0-1, node1:0");
}

TEST_CASE("layers are named from first to last, a common stem once") {
  const ModelProfile profile = examples::profile(6);
  CHECK(show_layers({0, 1}, profile) == "embeddings");
  CHECK(show_layers({0, 3}, profile) == "embeddings..encoder.1");
  CHECK(show_layers({1, 6}, profile) == "encoder.0..4");
}

TEST_CASE("shortened text keeps both ends and exactly the width") {
  const TextStyle ascii{};
  const TextStyle unicode{.unicode = true};
  CHECK(shorten("embeddings", 10, ascii) == "embeddings");
  CHECK(shorten("embeddings", 7, ascii) == "emb~ngs");
  CHECK(shorten("embeddings", 4, unicode) == "em…s");
  CHECK(shorten("embeddings", 1, ascii) == "~");
  CHECK(shorten("embeddings", 0, ascii).empty());
  for (std::size_t width = 0; width < 12; ++width) {
    CHECK(display_width(shorten("größenordnung", width, unicode)) == width);
  }
}

TEST_CASE("escape sequences take no columns") {
  CHECK(display_width("\x1b[31;1mred\x1b[0m") == 3);
  const TextStyle colored{.color = true};
  CHECK(display_width(paint("word", Ink::Bad, colored)) == 4);
  CHECK(paint("word", Ink::Bad, TextStyle{}) == "word");
}

TEST_CASE("filled lines stay below the width and lose no word") {
  const std::string text = "one two three four five six seven eight nine ten";
  for (int width = 12; width < 60; ++width) {
    const std::string filled = fill_lines(text, 4, {.width = width});
    std::string joined;
    std::size_t column = 4;
    for (std::size_t i = 0; i < filled.size(); ++i) {
      column = filled[i] == '\n' ? 0 : column + 1;
      CHECK(column <= static_cast<std::size_t>(width));
      const bool is_blank = filled[i] == ' ' || filled[i] == '\n';
      if (!is_blank) joined += filled[i];
      if (is_blank && !joined.empty() && joined.back() != ' ') joined += ' ';
    }
    CHECK(joined == text);
  }
}

}  // namespace
}  // namespace dapple::report
