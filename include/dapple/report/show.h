// Formats quantities, devices and layers for people, and measures, wraps and colours text for a
// terminal. Everything that comes from an input file passes through printable()
// (core/characters.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dapple/core/characters.h"
#include "dapple/core/quantity.h"
#include "dapple/plan/document.h"
#include "dapple/profile/model_profile.h"
#include "dapple/topology/topology.h"

namespace dapple::report {

/// What the output device can show and how much the reader wants to see.
struct TextStyle {
  /// The width in columns, within which lines are kept where the content allows.
  int width = 100;
  /// Whether to use ANSI colours.
  bool color = false;
  /// Whether to use characters beyond ASCII for bars and shades.
  bool unicode = false;
  /// Whether to fit a terminal: the cells of tables are wrapped and long lists are truncated.
  /// Otherwise a row is one line, and nothing is omitted.
  bool wraps = false;
  /// Whether to show everything that is known rather than what most readers need.
  bool verbose = false;
};

/// Formats a time with at most four significant digits, rounded to nearest: "12.34 ms", "1.234 s",
/// "56 us".
std::string show(Duration time);

/// Formats a time in the unit that suits `whole`, so that compared times have the same unit, with
/// at most three decimals: "1359 ms" beside "761.3 ms", "76,130 ms", "0.978 ms", "<0.001 ms".
std::string show(Duration time, Duration whole);

/// Formats a size in binary units, with three significant digits below 1000: "512 B", "4.13 MiB",
/// "15.0 GiB".
std::string show(Bytes size);

/// Formats a size in the unit that suits `whole`, with at most two decimals: "0.49 GiB" beside
/// "15.0 GiB".
std::string show(Bytes size, Bytes whole);

/// Formats a fraction of one as a percentage: "12.3 %".
std::string show_percent(double fraction);

/// Formats a count with separators: "1,234,567".
std::string show_count(std::int64_t count);

/// Formats a rate with at most four significant digits, and as a whole number with separators from
/// 1000 on: "125.3".
std::string show_rate(double per_second);

/// Formats ascending numbers as ranges: "0-3,6".
std::string show_numbers(const std::vector<std::int32_t>& numbers);

/// Names devices as briefly as possible, in the order of their indices rather than of the replicas:
/// "node0:0-7", "node0:0-3,6, node1:2". Consecutive servers of a group with the same device numbers
/// are combined: "node0-15:0". Of groups all devices are named.
std::string show_devices(const std::vector<DeviceIndex>& devices, const Topology& topology);

/// Formats a number of devices of the topology: "8", or "2x4" for two groups of four.
std::string show_device_count(std::size_t count, const Topology& topology);

/// Names the form of parallelism of a plan: "tensor 8 with sequence parallelism", "2 forms of
/// parallelism" where stages differ, or an empty text without any.
std::string show_parallelism(const Plan& plan);

/// Names the schedule family of a plan, its form of parallelism, and direct skip tensors if it has
/// them: "1f1b, tensor 8 with sequence parallelism, direct skip tensors".
std::string show_ways(const Plan& plan);

/// Names the forms that a record is of in few words: "tensor 8, sequence", or "any of 3 forms on
/// groups of 8", with ", sharded" behind it where the optimizer's state is.
std::string show_forms(const ParallelismRecord& record);

/// Names a range of layers: "embeddings..encoder.24", "encoder.25..47" if both names agree up to
/// the last dot, or the name of a single layer.
std::string show_layers(LayerRange layers, const ModelProfile& profile);

/// Returns the number of columns that UTF-8 text takes on a terminal, escape sequences not counted.
std::size_t display_width(std::string_view text);

/// Shortens text to `width` columns by replacing its middle with a mark. It is meant for names that
/// are invalid anyway, because digits may be lost.
std::string shorten(std::string_view text, std::size_t width, const TextStyle& style);

/// Breaks text into lines of at most `width` columns, dropping the blanks at the breaks: at a blank
/// or before ".." if possible, else anywhere but inside a number. A number that is wider than
/// `width` is not broken, and its line exceeds the width. Requires: width > 0.
std::vector<std::string> wrap(std::string_view text, std::size_t width);

/// Fills words into lines of the style's width. Every line but the first begins with `indent`
/// blanks; the caller has already written `indent` columns in front of the first.
std::string fill_lines(std::string_view text, std::size_t indent, const TextStyle& style);

enum class Ink { Plain, Strong, Faint, Good, Warning, Bad };
/// Returns the text in that ink, or unchanged if the style has no colour.
std::string paint(std::string_view text, Ink ink, const TextStyle& style);

}  // namespace dapple::report
