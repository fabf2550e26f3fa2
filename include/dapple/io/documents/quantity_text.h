// Quantities as people type them; beside parse_size() of documents.h.
#pragma once

#include <optional>
#include <string_view>

#include "dapple/core/quantity.h"

namespace dapple::io {

/// A bandwidth as topologies have it, "25 Gbit/s" or "130 GB/s", the blank left out if one likes,
/// also as vendors write it, "25Gbps" or "25 Gb/s":
/// 1 B/s to kMaxCount B/s. Nothing if it is none, or no whole number of bytes per second.
std::optional<Bandwidth> parse_bandwidth(std::string_view text);

}  // namespace dapple::io
