// Limits on the size of profiles that are read or imported.
#pragma once

#include <cstdint>

namespace dapple {

/// The largest number of layers of a profile.
inline constexpr std::int64_t kMaxLayers = 100'000;

/// The largest tensor-parallel degree.
inline constexpr std::int64_t kMaxTensorParallel = 1024;

}  // namespace dapple
