#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "nn/matrix.h"
#include "nn/modules.h"

namespace dapple::nn {
namespace {

/// Computes one matrix product per sample: of the kernels, one per row, and the patch matrix, whose
/// columns hold the input pixels below the kernel at each output position (im2col).
/// Source: Chellapilla, Puri and Simard 2006.
class Convolution : public Module {
 public:
  explicit Convolution(const ConvolutionOperation& operation)
      : operation_(operation),
        patch_(operation.in_channels * operation.kernel * operation.kernel),
        out_height_(places(operation.height)),
        out_width_(places(operation.width)) {
    const Shape shape{operation.out_channels, operation.in_channels, operation.kernel,
                      operation.kernel};
    // Preserves the variance through a subsequent ReLU (He et al. 2015, equation 10).
    const auto spread = static_cast<float>(std::sqrt(2 / static_cast<double>(patch_)));
    parameters_.push_back({"weight", shape, {Initial::Kind::Normal, spread}});
    parameters_.push_back({"bias", {operation.out_channels}, {}});
  }

  const std::vector<ParameterSpec>& parameters() const override { return parameters_; }

  Shape output_shape(const Shape& sample) const override {
    const Shape expected{operation_.in_channels, operation_.height, operation_.width};
    if (sample != expected) {
      refuse_shape(fmt::format("an input of {}", to_string(expected)), sample);
    }
    return {operation_.out_channels, out_height_, out_width_};
  }

  Tensor forward(Parameters parameters, Tensor input, const Tensor&, Stash& stash) const override {
    Tensor output = zeros({input.samples(), operation_.out_channels, out_height_, out_width_});
    const ConstMatrix kernels = rows_of(parameters[0], patch_);
    RowMajor patches(patch_, out_height_ * out_width_);
    for (std::int64_t sample = 0; sample < input.samples(); ++sample) {
      Matrix image = image_of(output, sample);
      image.colwise() = vector_of(parameters[1]).transpose();
      to_patches(image_of(input, sample), patches);
      add_product(plain(kernels), plain(patches), image);
    }
    stash.tensors.push_back(std::move(input));
    return output;
  }

  Tensor input_gradient(Parameters parameters, Tensor output_gradient,
                        Stash& stash) const override {
    Tensor gradient = zeros(stash.tensors[0].shape);
    const ConstMatrix kernels = rows_of(parameters[0], patch_);
    RowMajor patches(patch_, out_height_ * out_width_);
    for (std::int64_t sample = 0; sample < gradient.samples(); ++sample) {
      patches.setZero();
      add_product(transposed(kernels), plain(image_of(output_gradient, sample)), patches);
      add_patches(patches, image_of(gradient, sample));
    }
    stash.tensors.push_back(std::move(output_gradient));
    return gradient;
  }

  void weight_gradient(Stash& stash, Gradients sums) const override {
    Tensor& input = stash.tensors[0];
    Tensor& gradient = stash.tensors[1];
    Matrix kernels = rows_of(sums[0], patch_);
    RowMajor patches(patch_, out_height_ * out_width_);
    for (std::int64_t sample = 0; sample < input.samples(); ++sample) {
      const Matrix slopes = image_of(gradient, sample);
      to_patches(image_of(input, sample), patches);
      add_product(plain(slopes), transposed(patches), kernels);
      vector_of(sums[1]) += slopes.rowwise().sum().transpose();
    }
    stash.tensors.clear();
  }

 private:
  /// Returns the number of output positions along a side.
  std::int64_t places(std::int64_t side) const {
    return (side + 2 * operation_.padding - operation_.kernel) / operation_.stride + 1;
  }

  /// Returns the channels of a sample, one per row.
  static Matrix image_of(Tensor& tensor, std::int64_t sample) {
    const std::int64_t channels = tensor.shape[1];
    const std::int64_t pixels = tensor.shape[2] * tensor.shape[3];
    return {tensor.values.data() + sample * channels * pixels, channels, pixels};
  }

  /// Calls `visit(row, begin, end, first)` for each row of one channel's patch matrix and each row
  /// of output positions: positions [begin, end) of the latter read the pixels from `first` on, a
  /// stride apart; its other positions read padding. Pixels and positions are numbered over the
  /// whole plane. Rows of positions that read padding only are skipped.
  template <class Visit>
  void for_each_run(const Visit& visit) const {
    const std::int64_t width = operation_.width;
    const std::int64_t kernel = operation_.kernel;
    const std::int64_t stride = operation_.stride;
    const std::int64_t padding = operation_.padding;
    for (std::int64_t y = 0; y < kernel; ++y) {
      for (std::int64_t x = 0; x < kernel; ++x) {
        // [begin, end) are the columns with 0 <= column * stride + x - padding < width.
        const std::int64_t begin = std::max<std::int64_t>(0, padding - x + stride - 1) / stride;
        const std::int64_t past = std::max<std::int64_t>(0, width + padding - x + stride - 1);
        const std::int64_t end = std::min(out_width_, past / stride);
        for (std::int64_t row = 0; row < out_height_; ++row) {
          const std::int64_t pixel_row = row * stride + y - padding;
          if (pixel_row < 0 || pixel_row >= operation_.height || begin >= end) continue;
          visit(y * kernel + x, row * out_width_ + begin, row * out_width_ + end,
                pixel_row * width + begin * stride + x - padding);
        }
      }
    }
  }

  void to_patches(const Matrix& image, RowMajor& patches) const {
    const std::int64_t area = operation_.kernel * operation_.kernel;
    patches.setZero();
    for (std::int64_t channel = 0; channel < operation_.in_channels; ++channel) {
      const float* pixels = image.row(channel).data();
      for_each_run([&](std::int64_t row, std::int64_t begin, std::int64_t end, std::int64_t pixel) {
        float* places = patches.row(channel * area + row).data();
        for (std::int64_t place = begin; place < end; ++place, pixel += operation_.stride) {
          places[place] = pixels[pixel];
        }
      });
    }
  }

  void add_patches(const RowMajor& patches, Matrix image) const {
    const std::int64_t area = operation_.kernel * operation_.kernel;
    for (std::int64_t channel = 0; channel < operation_.in_channels; ++channel) {
      float* pixels = image.row(channel).data();
      for_each_run([&](std::int64_t row, std::int64_t begin, std::int64_t end, std::int64_t pixel) {
        const float* places = patches.row(channel * area + row).data();
        for (std::int64_t place = begin; place < end; ++place, pixel += operation_.stride) {
          pixels[pixel] += places[place];
        }
      });
    }
  }

  ConvolutionOperation operation_;
  std::int64_t patch_;
  std::int64_t out_height_;
  std::int64_t out_width_;
  std::vector<ParameterSpec> parameters_;
};

}  // namespace

std::unique_ptr<Module> make_convolution(const ConvolutionOperation& operation) {
  return std::make_unique<Convolution>(operation);
}

}  // namespace dapple::nn
