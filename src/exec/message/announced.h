// The current action of a device, readable by other threads and processes at any time.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "dapple/plan/action.h"

namespace dapple::exec {

/// Stores the action in one word, without a lock, so that it can lie in shared memory that outlives
/// its process.
class AnnouncedAction {
 public:
  void set(const Action& action) noexcept { word_.store(packed(action)); }
  std::optional<Action> get() const { return unpacked(word_.load()); }

  /// Packs an action into a word; 0 stands for no action. The stage must be below 2^24, which every
  /// plan satisfies.
  static std::uint64_t packed(const Action& action) {
    return (std::uint64_t{static_cast<std::uint8_t>(action.kind)} + 1) << 56 |
           (static_cast<std::uint64_t>(action.stage.value) & 0xFFFFFF) << 32 |
           static_cast<std::uint32_t>(action.index);
  }
  /// Returns nothing if the word holds no action, or an invalid one.
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
