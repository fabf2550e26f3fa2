// Quantities as people write them in topologies: a number, one blank, and a unit.
#pragma once

#include <optional>
#include <string>

#include "dapple/core/quantity.h"
#include "dapple/io/json/json_reader.h"

namespace dapple::io {

// Each records a fault and returns nothing where the text is no such quantity, is no whole number
// of bytes, bytes per second or nanoseconds, or is out of range.
/// 1 B/s to kMaxCount B/s: B/s or bit/s with k, M, G, T, Ki, Mi or Gi before it; also Bps, b/s and
/// bps, as vendors write them.
std::optional<Bandwidth> read_bandwidth(const Field& field);
/// From `least` to kMaxCount bytes: B with the same prefixes.
std::optional<Bytes> read_size(const Field& field, Bytes least);
/// 0 to kMaxCount nanoseconds: ns, us (or µs), ms, s.
std::optional<Duration> read_duration(const Field& field);

// The largest unit in which the number has an integer part and at most three decimals. A size is
// whole KiB, MiB or GiB instead where that is no longer.
std::string bandwidth_text(Bandwidth bandwidth);
std::string size_text(Bytes size);
std::string duration_text(Duration duration);

}  // namespace dapple::io
