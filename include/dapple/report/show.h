// Quantities, devices and layers in a few words, and the width and ink of text on a terminal.
// Everything that comes from an input file is shown as printable() (core/characters.h) has it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dapple/core/characters.h"
#include "dapple/core/quantity.h"
#include "dapple/profile/model_profile.h"
#include "dapple/topology/topology.h"

namespace dapple::report {

/// What the reader can be shown, and wants to see.
struct TextStyle {
  int width = 100;       // columns; lines are kept below it where the content allows
  bool color = false;    // ANSI colours
  bool unicode = false;  // bars and shades beyond ASCII
  bool wraps = false;    // on a terminal: rows of tables take more lines rather than more columns,
                         // and long lists end early; elsewhere a row is a line, and all is there
  bool verbose = false;  // all that is known, not only what most readers need
};

/// "12.34 ms", "1.234 s", "56 us": four significant digits at most, rounded to nearest.
std::string show(Duration time);

/// The same in the unit that suits `whole`, so that times that are compared have one unit: "1359
/// ms" beside "761.3 ms", "76,130 ms", "0.978 ms", "<0.001 ms". Three decimals at most.
std::string show(Duration time, Duration whole);

/// "512 B", "4.13 MiB", "15.0 GiB": three significant digits below 1000, binary units.
std::string show(Bytes size);

/// The same in the unit that suits `whole`: "0.49 GiB" beside "15.0 GiB". Two decimals at most.
std::string show(Bytes size, Bytes whole);

/// "12.3 %" of a fraction of one.
std::string show_percent(double fraction);

/// "1,234,567".
std::string show_count(std::int64_t count);

/// "125.3": four significant digits at most, with separators above a thousand.
std::string show_rate(double per_second);

/// "0-3,6" of ascending numbers.
std::string show_numbers(const std::vector<std::int32_t>& numbers);

/// Devices in as few words as possible, by number, whatever the order of the replicas:
/// "node0:0-7", "node0:0-3,6, node1:2"; servers that hold the same ones together: "node0-15:0".
std::string show_devices(const std::vector<DeviceIndex>& devices, const Topology& topology);

/// "embeddings..encoder.24", "encoder.25..47" where what stands before the last dot is the same, or
/// the one layer's name.
std::string show_layers(LayerRange layers, const ModelProfile& profile);

/// Columns that UTF-8 text takes on a terminal, escape sequences not counted.
std::size_t display_width(std::string_view text);

/// Text cut in its middle to `width` columns, with a mark where something is missing. For names
/// that are wrong anyway: what is cut may be a digit.
std::string shorten(std::string_view text, std::size_t width, const TextStyle& style);

/// Lines of at most `width` columns that together are the text, but for blanks where it was broken:
/// at a blank or before ".." where there is one, else anywhere but inside a number. A number that
/// is wider stays whole, and its line is. Requires: width > 0.
std::vector<std::string> wrap(std::string_view text, std::size_t width);

/// Words filled into lines of the style's width; every line but the first begins with `indent`
/// blanks, the first is expected to stand there already.
std::string fill_lines(std::string_view text, std::size_t indent, const TextStyle& style);

enum class Ink { Plain, Strong, Faint, Good, Warning, Bad };
/// Text in that ink, or as it is where the style has no colour.
std::string paint(std::string_view text, Ink ink, const TextStyle& style);

}  // namespace dapple::report
