#include "cuda/kernels/layers/pooling.h"

#include "cuda/kernels/launch.h"
#include "cuda/kernels/numbers.h"
#include "cuda/kernels/threads.h"

namespace dapple::cuda {
namespace {

struct WindowCounts {
  Windows windows;
  std::int64_t rows;
  std::int64_t columns;
};

template <class Number>
__global__ void forward_kernel(WindowCounts of, const Number* input, Number* output,
                               std::int32_t* pixels) {
  const Windows& windows = of.windows;
  const std::int64_t count = windows.planes * of.rows * of.columns;
  for (std::int64_t i = thread_number(); i < count; i += thread_count()) {
    const std::int64_t plane = i / (of.rows * of.columns);
    const std::int64_t row = i / of.columns % of.rows;
    const std::int64_t column = i % of.columns;
    const Number* numbers = input + plane * windows.height * windows.width;
    const std::int64_t corner = (row * windows.width + column) * windows.stride;
    std::int64_t largest = corner;
    for (std::int64_t y = 0; y < windows.kernel; ++y) {
      for (std::int64_t x = 0; x < windows.kernel; ++x) {
        const std::int64_t pixel = corner + y * windows.width + x;
        if (to_float(numbers[pixel]) > to_float(numbers[largest])) largest = pixel;
      }
    }
    output[i] = numbers[largest];
    pixels[i] = static_cast<std::int32_t>(largest);
  }
}

/// Returns the first window along a side that contains the pixel, if any does.
__device__ std::int64_t first_window(std::int64_t pixel, const Windows& windows) {
  return pixel < windows.kernel ? 0 : (pixel - windows.kernel) / windows.stride + 1;
}

template <class Number>
__global__ void gradient_kernel(WindowCounts of, const std::int32_t* pixels,
                                const Number* output_gradient, Number* input_gradient) {
  const Windows& windows = of.windows;
  const std::int64_t count = windows.planes * windows.height * windows.width;
  for (std::int64_t i = thread_number(); i < count; i += thread_count()) {
    const std::int64_t plane = i / (windows.height * windows.width);
    const std::int64_t pixel = i - plane * windows.height * windows.width;
    const std::int64_t y = pixel / windows.width;
    const std::int64_t x = pixel % windows.width;
    float sum = 0;
    for (std::int64_t row = first_window(y, windows); row < of.rows && row * windows.stride <= y;
         ++row) {
      for (std::int64_t column = first_window(x, windows);
           column < of.columns && column * windows.stride <= x; ++column) {
        const std::int64_t window = (plane * of.rows + row) * of.columns + column;
        if (pixels[window] == pixel) sum += to_float(output_gradient[window]);
      }
    }
    input_gradient[i] = rounded_to<Number>(sum);
  }
}

}  // namespace

void max_pool(const Stream& stream, const Windows& windows, View input, View output, View pixels) {
  const WindowCounts of{windows, windows.rows(), windows.columns()};
  with_floats(input.type, [&](auto kind) {
    using Number = typename decltype(kind)::Number;
    launch(forward_kernel<Number>, grid_for(output.count), stream, of, numbers_in<Number>(input),
           numbers_in<Number>(output), numbers_in<std::int32_t>(pixels));
  });
}

void max_pool_gradient(const Stream& stream, const Windows& windows, View pixels,
                       View output_gradient, View input_gradient) {
  const WindowCounts of{windows, windows.rows(), windows.columns()};
  with_floats(input_gradient.type, [&](auto kind) {
    using Number = typename decltype(kind)::Number;
    launch(gradient_kernel<Number>, grid_for(input_gradient.count), stream, of,
           numbers_in<std::int32_t>(pixels), numbers_in<Number>(output_gradient),
           numbers_in<Number>(input_gradient));
  });
}

}  // namespace dapple::cuda
