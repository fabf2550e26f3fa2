#include "kernels.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <stdexcept>

namespace cuda_on_host {
namespace {

/// Those that were noted come first, in any order.
std::array<std::atomic<const void*>, 1'024> launched{};

}  // namespace

void note_launch(const void* kernel) {
  for (std::atomic<const void*>& place : launched) {
    const void* found = place.load(std::memory_order_relaxed);
    if (found == nullptr) {
      place.compare_exchange_strong(found, kernel, std::memory_order_relaxed);
      if (found == nullptr) return;
    }
    if (found == kernel) return;
  }
  throw std::logic_error("more kernels than there is room for");
}

std::size_t kernels_launched() {
  const auto end =
      std::ranges::find(launched, nullptr, [](const auto& place) { return place.load(); });
  return static_cast<std::size_t>(end - launched.begin());
}

void forget_kernels() {
  for (std::atomic<const void*>& place : launched) place = nullptr;
}

}  // namespace cuda_on_host
