// How large a plan may be that is searched for or imported.
#pragma once

#include <cstdint>

namespace dapple {

/// Micro-batches of an iteration: with more of them, simulating one plan takes as long as a search
/// should.
inline constexpr std::int64_t kMostMicroBatches = 131'072;

}  // namespace dapple
