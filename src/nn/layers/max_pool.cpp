#include <fmt/format.h>

#include <utility>

#include "nn/matrix.h"
#include "nn/modules.h"

namespace dapple::nn {
namespace {

/// Max pooling without padding: windows that would extend past the end are omitted. Of equal values
/// in a window, the first in row-major order is the maximum.
class MaxPool : public WithoutParameters {
 public:
  explicit MaxPool(const MaxPoolOperation& operation) : operation_(operation) {}

  Shape output_shape(const Shape& sample) const override {
    if (sample.size() != 3 || sample[1] < operation_.kernel || sample[2] < operation_.kernel) {
      refuse_shape(fmt::format("an input of [channels, height, width] with sides of at least {}",
                               operation_.kernel),
                   sample);
    }
    return {sample[0], windows(sample[1]), windows(sample[2])};
  }

  Tensor forward(Parameters, Tensor input, const Tensor&, Stash& stash) const override {
    const Shape& shape = input.shape;
    Tensor output = zeros({shape[0], shape[1], windows(shape[2]), windows(shape[3])});
    for_each_largest(input, [&](std::size_t place, std::size_t pixel) {
      output.values[place] = input.values[pixel];
    });
    stash.tensors.push_back(std::move(input));
    return output;
  }

  Tensor input_gradient(Parameters, Tensor output_gradient, Stash& stash) const override {
    const Tensor& input = stash.tensors[0];
    Tensor gradient = zeros(input.shape);
    for_each_largest(input, [&](std::size_t place, std::size_t pixel) {
      gradient.values[pixel] += output_gradient.values[place];
    });
    stash.tensors.clear();
    return gradient;
  }

 private:
  std::int64_t windows(std::int64_t side) const {
    return (side - operation_.kernel) / operation_.stride + 1;
  }

  /// Calls `visit(output position, input pixel of the maximum)` for each window.
  template <class Visit>
  void for_each_largest(const Tensor& input, const Visit& visit) const {
    const std::int64_t planes = input.shape[0] * input.shape[1];
    const std::int64_t height = input.shape[2];
    const std::int64_t width = input.shape[3];
    std::size_t place = 0;
    for (std::int64_t plane = 0; plane < planes; ++plane) {
      for (std::int64_t row = 0; row < windows(height); ++row) {
        for (std::int64_t column = 0; column < windows(width); ++column, ++place) {
          const std::int64_t corner =
              plane * height * width + row * operation_.stride * width + column * operation_.stride;
          visit(place, largest_from(input, corner, width));
        }
      }
    }
  }

  std::size_t largest_from(const Tensor& input, std::int64_t corner, std::int64_t width) const {
    auto largest = static_cast<std::size_t>(corner);
    for (std::int64_t y = 0; y < operation_.kernel; ++y) {
      for (std::int64_t x = 0; x < operation_.kernel; ++x) {
        const auto pixel = static_cast<std::size_t>(corner + y * width + x);
        if (input.values[pixel] > input.values[largest]) largest = pixel;
      }
    }
    return largest;
  }

  MaxPoolOperation operation_;
};

}  // namespace

std::unique_ptr<Module> make_max_pool(const MaxPoolOperation& operation) {
  return std::make_unique<MaxPool>(operation);
}

}  // namespace dapple::nn
