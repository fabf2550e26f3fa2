#include "dapple/cuda/kernels/spin.h"

#include <algorithm>
#include <array>

#include "cuda/kernels/gpu_clock.h"
#include "cuda/kernels/launch.h"

namespace dapple::cuda {
namespace {

__global__ void spin_kernel(std::uint64_t* begin, std::uint64_t length, bool begins) {
  if (begins) *begin = gpu_nanoseconds();
  const std::uint64_t first = *begin;
  while (gpu_nanoseconds() - first < length) {}
}

}  // namespace

Spin::Spin(Device& device) : device_(device), begin_(device.allocate({sizeof(std::uint64_t)})) {
  overhead_ = measured_overhead();
}

void Spin::pass_until(Duration moment) {
  const Duration length{std::max<std::int64_t>(0, moment.ns - overhead_.ns)};
  launch(spin_kernel, Grid{}, device_.compute(), reinterpret_cast<std::uint64_t*>(begin_.address()),
         length.ns, !is_counting_);
  is_counting_ = true;
}

/// Measures the minimum over several kernels, since disturbances only make it longer. The kernels
/// wait behind others, as in a busy stream.
Duration Spin::measured_overhead() {
  constexpr Duration kLength{20'000};
  constexpr std::int64_t kToEnqueueAll = 20;
  constexpr std::size_t kSpins = 15;
  std::array<Event, kSpins + 1> ends;
  for (std::size_t i = 0; i < ends.size(); ++i) {
    restart();
    pass_until(i == 0 ? Duration{kToEnqueueAll * kLength.ns} : kLength);
    ends[i].record(device_.compute());
  }
  restart();
  ends.back().wait();
  Duration overhead{kLength};
  for (std::size_t i = 0; i < kSpins; ++i) {
    overhead = std::min(overhead, ends[i + 1].since(ends[i]) - kLength);
  }
  return std::max(overhead, Duration{});
}

}  // namespace dapple::cuda
