#include "nn/kernels.h"

#include <algorithm>
#include <atomic>

#include "dapple/nn/kernel_choice.h"

namespace dapple::nn {
namespace {

constexpr Kernels kPortable{"portable", portable::add_product, &baseline::kElementwise};
constexpr Kernels kBaseline{"baseline", baseline::add_product, &baseline::kElementwise};

/// Returns the kernels that can run, fastest first. __builtin_cpu_supports() also takes into
/// account whether the operating system saves the registers.
std::vector<const Kernels*> usable_kernels() {
  std::vector<const Kernels*> usable;
#ifdef __x86_64__
  static constexpr Kernels kAvx512{"avx512", avx512::add_product, &avx512::kElementwise};
  static constexpr Kernels kAvx2{"avx2", avx2::add_product, &avx2::kElementwise};
  __builtin_cpu_init();
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) {
    usable.push_back(&kAvx512);
  }
  if (has_avx2) usable.push_back(&kAvx2);
#endif
  usable.push_back(&kBaseline);
  usable.push_back(&kPortable);
  return usable;
}

std::atomic<const Kernels*>& chosen() {
  static std::atomic<const Kernels*> kernels = usable_kernels().front();
  return kernels;
}

}  // namespace

const Kernels& kernels() {
  return *chosen().load(std::memory_order_relaxed);
}

std::vector<std::string_view> kernel_names() {
  std::vector<std::string_view> names;
  for (const Kernels* kernels : usable_kernels()) names.emplace_back(kernels->name);
  return names;
}

std::string_view kernels_in_use() {
  return kernels().name;
}

bool use_kernels(std::string_view name) {
  for (const Kernels* kernels : usable_kernels()) {
    if (kernels->name != name) continue;
    chosen().store(kernels, std::memory_order_relaxed);
    return true;
  }
  return false;
}

}  // namespace dapple::nn
