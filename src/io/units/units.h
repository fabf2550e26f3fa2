// Quantities as written in topology files: a number, one blank, and a unit.
#pragma once

#include <optional>
#include <string>

#include "dapple/core/quantity.h"
#include "dapple/io/json/json_reader.h"

namespace dapple::io {

// Each of these records a violation and returns nothing if the text is not such a quantity, is not
// a whole number of bytes, bytes per second or nanoseconds, or is out of range.

/// Reads a bandwidth from 1 B/s to kMaxCount B/s, in B/s or bit/s with the prefix k, M, G, T, Ki,
/// Mi or Gi, or with the vendors' units Bps, b/s and bps.
std::optional<Bandwidth> read_bandwidth(const Field& field);
/// Reads a size from `least` to kMaxCount bytes, in B with the same prefixes.
std::optional<Bytes> read_size(const Field& field, Bytes least);
/// Reads a rate of operations from 1 to kMaxCount operations per nanosecond (GFLOP/s), in FLOP/s
/// with the prefix G or T, rounded down to a whole number of them.
std::optional<std::int64_t> read_rate(const Field& field);
/// Reads a duration from 0 to kMaxCount nanoseconds, in ns, us (or µs), ms or s.
std::optional<Duration> read_duration(const Field& field);

// These use the largest unit in which the number has an integer part and at most three decimals. A
// size is written in whole KiB, MiB or GiB instead if that text is not longer.
std::string bandwidth_text(Bandwidth bandwidth);
std::string size_text(Bytes size);
std::string duration_text(Duration duration);
/// Returns a rate, in GFLOP/s, in the same way.
std::string rate_text(std::int64_t gigaflops_per_second);

}  // namespace dapple::io
