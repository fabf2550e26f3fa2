// Parses quantities that users type; see also parse_size() of documents.h.
#pragma once

#include <optional>
#include <string_view>

#include "dapple/core/quantity.h"

namespace dapple::io {

/// Parses a bandwidth as in topology files, such as "25 Gbit/s" or "130 GB/s", or as vendors write
/// it, such as "25Gbps" or "25 Gb/s"; the blank may be omitted. Returns nothing if the text is not
/// a bandwidth from 1 to kMaxCount B/s, or not a whole number of bytes per second.
std::optional<Bandwidth> parse_bandwidth(std::string_view text);

}  // namespace dapple::io
