#include "cuda/kernels/layers/patches.h"

#include "cuda/kernels/launch.h"
#include "cuda/kernels/numbers.h"
#include "cuda/kernels/reductions.h"
#include "cuda/kernels/threads.h"

namespace dapple::cuda {
namespace {

struct PatchShape {
  ConvolutionOperation operation;
  std::int64_t rows;     // places along the height
  std::int64_t columns;  // places along the width
};

template <class Number>
__global__ void to_patches_kernel(PatchShape shape, const Number* image, Number* patches) {
  const ConvolutionOperation& of = shape.operation;
  const std::int64_t places = shape.rows * shape.columns;
  const std::int64_t count = of.in_channels * of.kernel * of.kernel * places;
  for (std::int64_t i = thread_number(); i < count; i += thread_count()) {
    const std::int64_t patch_row = i / places;
    const std::int64_t place = i - patch_row * places;
    const std::int64_t channel = patch_row / (of.kernel * of.kernel);
    const std::int64_t y =
        place / shape.columns * of.stride + patch_row / of.kernel % of.kernel - of.padding;
    const std::int64_t x = place % shape.columns * of.stride + patch_row % of.kernel - of.padding;
    const bool exists = y >= 0 && y < of.height && x >= 0 && x < of.width;
    patches[i] = exists ? image[(channel * of.height + y) * of.width + x] : rounded_to<Number>(0);
  }
}

template <class Number>
__global__ void from_patches_kernel(PatchShape shape, const Number* patches, Number* image) {
  const ConvolutionOperation& of = shape.operation;
  const std::int64_t places = shape.rows * shape.columns;
  const std::int64_t count = of.in_channels * of.height * of.width;
  for (std::int64_t i = thread_number(); i < count; i += thread_count()) {
    const std::int64_t channel = i / (of.height * of.width);
    const std::int64_t y = i / of.width % of.height + of.padding;
    const std::int64_t x = i % of.width + of.padding;
    float sum = 0;
    for (std::int64_t kernel_y = y % of.stride; kernel_y < of.kernel && kernel_y <= y;
         kernel_y += of.stride) {
      const std::int64_t row = (y - kernel_y) / of.stride;
      if (row >= shape.rows) continue;
      for (std::int64_t kernel_x = x % of.stride; kernel_x < of.kernel && kernel_x <= x;
           kernel_x += of.stride) {
        const std::int64_t column = (x - kernel_x) / of.stride;
        if (column >= shape.columns) continue;
        const std::int64_t patch_row = (channel * of.kernel + kernel_y) * of.kernel + kernel_x;
        sum += to_float(patches[patch_row * places + row * shape.columns + column]);
      }
    }
    image[i] = rounded_to<Number>(sum);
  }
}

template <class Number>
__global__ void add_biases_kernel(std::int64_t count, std::int64_t channels, std::int64_t places,
                                  const Number* biases, Number* images) {
  for (std::int64_t i = thread_number(); i < count; i += thread_count()) {
    images[i] = rounded_to<Number>(to_float(images[i]) + to_float(biases[i / places % channels]));
  }
}

/// Uses one block per channel.
template <class Number>
__global__ void channel_sum_kernel(std::int64_t samples, std::int64_t channels, std::int64_t places,
                                   const Number* gradient, float* sums) {
  const std::int64_t channel = blockIdx.x;
  float sum = 0;
  for (std::int64_t i = threadIdx.x; i < samples * places; i += blockDim.x) {
    const std::int64_t sample = i / places;
    sum += to_float(gradient[(sample * channels + channel) * places + i - sample * places]);
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) sums[channel] += sum;
}

PatchShape shape_of(const ConvolutionOperation& operation) {
  return {operation, places_along(operation, operation.height),
          places_along(operation, operation.width)};
}

}  // namespace

std::int64_t places_along(const ConvolutionOperation& operation, std::int64_t side) {
  return (side + 2 * operation.padding - operation.kernel) / operation.stride + 1;
}

void to_patches(const Stream& stream, const ConvolutionOperation& operation, View image,
                View patches) {
  with_floats(image.type, [&](auto of) {
    using Number = typename decltype(of)::Number;
    launch(to_patches_kernel<Number>, grid_for(patches.count), stream, shape_of(operation),
           numbers_in<Number>(image), numbers_in<Number>(patches));
  });
}

void from_patches(const Stream& stream, const ConvolutionOperation& operation, View patches,
                  View image) {
  with_floats(image.type, [&](auto of) {
    using Number = typename decltype(of)::Number;
    launch(from_patches_kernel<Number>, grid_for(image.count), stream, shape_of(operation),
           numbers_in<Number>(patches), numbers_in<Number>(image));
  });
}

void add_channel_biases(const Stream& stream, View biases, std::int64_t places, View images) {
  with_floats(images.type, [&](auto of) {
    using Number = typename decltype(of)::Number;
    launch(add_biases_kernel<Number>, grid_for(images.count), stream, images.count, biases.count,
           places, numbers_in<Number>(biases), numbers_in<Number>(images));
  });
}

void add_channel_sums(const Stream& stream, std::int64_t places, View gradient, View sums) {
  constexpr unsigned kThreads = 256;
  with_floats(gradient.type, [&](auto of) {
    using Number = typename decltype(of)::Number;
    launch(channel_sum_kernel<Number>, {{blocks_for(sums.count, 1), 1, 1}, {kThreads, 1, 1}},
           stream, gradient.count / (sums.count * places), sums.count, places,
           numbers_in<Number>(gradient), numbers_in<float>(sums));
  });
}

}  // namespace dapple::cuda
