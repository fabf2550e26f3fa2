// What a device is at, for other threads and processes to read at any moment.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "dapple/plan/action.h"

namespace dapple::exec {

/// One word without a lock, so that it can lie in memory that a dead process has left.
class AnnouncedAction {
 public:
  void set(const Action& action) noexcept { word_.store(packed(action)); }
  std::optional<Action> get() const { return unpacked(word_.load()); }

  /// Stages below 2^24, as an Index of them is no larger in any plan; 0 is no action.
  static std::uint64_t packed(const Action& action) {
    return (std::uint64_t{static_cast<std::uint8_t>(action.kind)} + 1) << 56 |
           (static_cast<std::uint64_t>(action.stage.value) & 0xFFFFFF) << 32 |
           static_cast<std::uint32_t>(action.index);
  }
  /// Nothing where there is none, or no such.
  static std::optional<Action> unpacked(std::uint64_t word) {
    constexpr auto kKinds = static_cast<std::uint64_t>(ActionKind::OptimizerStep) + 1;
    if (word >> 56 == 0 || word >> 56 > kKinds) return std::nullopt;
    return Action{.kind = static_cast<ActionKind>((word >> 56) - 1),
                  .index = static_cast<std::int32_t>(word & 0xFFFFFFFF),
                  .stage = {static_cast<std::int32_t>(word >> 32 & 0xFFFFFF)}};
  }

 private:
  std::atomic<std::uint64_t> word_{0};
};

}  // namespace dapple::exec
