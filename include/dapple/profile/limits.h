// Limits on the size of profiles that are read or imported.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dapple {

/// The largest number of layers of a profile.
inline constexpr std::int64_t kMaxLayers = 100'000;

/// The largest number of variants of a layer.
inline constexpr std::size_t kMaxVariants = 128;
/// The most kinds of device of a profile besides the one that all figures are of.
inline constexpr std::size_t kMaxOtherDevices = 15;
/// The most kinds with times of their own in one topology.
inline constexpr std::size_t kMaxMeasuredKindsInUse = 4;

/// The largest tensor-parallel and context-parallel degree.
inline constexpr std::int64_t kMaxTensorParallel = 1024;
inline constexpr std::int64_t kMaxContextParallel = 1024;

/// The largest number of devices of a group, of experts on different devices, and of shards.
inline constexpr std::int64_t kMaxGroup = 65'536;

/// The largest number of experts of a layer.
inline constexpr std::int64_t kMaxExperts = 1 << 20;

}  // namespace dapple
