// Limits on the size of plans that are searched for or imported.
#pragma once

#include <cstdint>

namespace dapple {

/// The largest number of micro-batches of an iteration: with more, simulating a single plan would
/// take as long as a whole search should.
inline constexpr std::int64_t kMostMicroBatches = 131'072;

}  // namespace dapple
