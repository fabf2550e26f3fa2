// For src/cuda/cudnn/cudnn_attention.cpp: takes half precision, so that both ways to attend are
// tried, and is as plain as the formulas.
#include "cuda/memory/fused_attention.h"

#include <cmath>
#include <vector>

#include "cuda/kernels/numbers.h"

namespace dapple::cuda {
namespace {

/// One head of one sample.
class Head {
 public:
  Head(const AttentionShape& shape, std::int64_t number)
      : shape_(shape), sample_(number / shape.heads), head_(number % shape.heads) {}

  /// Number `i` of a position, in an array of so many vectors for each position and head.
  std::int64_t at(std::int64_t position, std::int64_t i, int part = 0, int parts = 1) const {
    return ((sample_ * shape_.sequence + position) * parts + part) * shape_.heads * shape_.width +
           head_ * shape_.width + i;
  }
  std::int64_t log_sum(std::int64_t position) const {
    return (sample_ * shape_.heads + head_) * shape_.sequence + position;
  }
  std::int64_t seen_by(std::int64_t position) const {
    return shape_.is_causal ? position + 1 : shape_.sequence;
  }

  double product(const __half* left, std::int64_t left_at, const __half* right,
                 std::int64_t right_at) const {
    double sum = 0;
    for (std::int64_t i = 0; i < shape_.width; ++i) {
      sum += static_cast<double>(to_float(left[left_at + i])) *
             static_cast<double>(to_float(right[right_at + i]));
    }
    return sum;
  }

  /// Scaled, of what the position sees.
  std::vector<double> scores(const __half* qkv, std::int64_t position) const {
    std::vector<double> result;
    for (std::int64_t other = 0; other < seen_by(position); ++other) {
      result.push_back(product(qkv, at(position, 0, 0, 3), qkv, at(other, 0, 1, 3)) /
                       std::sqrt(static_cast<double>(shape_.width)));
    }
    return result;
  }

  void forward(const __half* qkv, __half* output, float* log_sums) const {
    for (std::int64_t position = 0; position < shape_.sequence; ++position) {
      const std::vector<double> of_position = scores(qkv, position);
      double sum = 0;
      for (const double score : of_position) sum += std::exp(score);
      for (std::int64_t i = 0; i < shape_.width; ++i) {
        double number = 0;
        for (std::size_t other = 0; other < of_position.size(); ++other) {
          const auto position_of_value = static_cast<std::int64_t>(other);
          number += std::exp(of_position[other]) / sum *
                    static_cast<double>(to_float(qkv[at(position_of_value, i, 2, 3)]));
        }
        output[at(position, i)] = rounded_to<__half>(static_cast<float>(number));
      }
      log_sums[log_sum(position)] = static_cast<float>(std::log(sum));
    }
  }

  void backward(const AttentionBackward& arrays) const {
    const auto* qkv = numbers_in<__half>(arrays.forward.queries_keys_values);
    const auto* output = numbers_in<__half>(arrays.forward.output);
    const auto* log_sums = numbers_in<float>(arrays.forward.log_sums);
    const auto* slopes = numbers_in<__half>(arrays.output_gradient);
    auto* gradient = numbers_in<__half>(arrays.input_gradient);
    const auto size = static_cast<std::size_t>(shape_.sequence * shape_.width);
    std::vector<double> sums[3] = {std::vector<double>(size), std::vector<double>(size),
                                   std::vector<double>(size)};
    const auto place = [&](std::int64_t position, std::int64_t i) {
      return static_cast<std::size_t>(position * shape_.width + i);
    };
    const double scale = 1 / std::sqrt(static_cast<double>(shape_.width));
    for (std::int64_t position = 0; position < shape_.sequence; ++position) {
      const std::vector<double> of_position = scores(qkv, position);
      const double mean = product(slopes, at(position, 0), output, at(position, 0));
      for (std::int64_t other = 0; other < seen_by(position); ++other) {
        const double share = std::exp(of_position[static_cast<std::size_t>(other)] -
                                      static_cast<double>(log_sums[log_sum(position)]));
        const double of_share = product(slopes, at(position, 0), qkv, at(other, 0, 2, 3));
        const double of_score = scale * share * (of_share - mean);
        for (std::int64_t i = 0; i < shape_.width; ++i) {
          const auto number = [&](std::int64_t from) {
            return static_cast<double>(to_float(qkv[from]));
          };
          sums[0][place(position, i)] += of_score * number(at(other, i, 1, 3));
          sums[1][place(other, i)] += of_score * number(at(position, i, 0, 3));
          sums[2][place(other, i)] +=
              share * static_cast<double>(to_float(slopes[at(position, i)]));
        }
      }
    }
    for (int part = 0; part < 3; ++part) {
      for (std::int64_t position = 0; position < shape_.sequence; ++position) {
        for (std::int64_t i = 0; i < shape_.width; ++i) {
          gradient[at(position, i, part, 3)] =
              rounded_to<__half>(static_cast<float>(sums[part][place(position, i)]));
        }
      }
    }
  }

 private:
  AttentionShape shape_;
  std::int64_t sample_;
  std::int64_t head_;
};

}  // namespace

class FusedAttention::Plans {};

FusedAttention::FusedAttention() = default;
FusedAttention::~FusedAttention() = default;

bool FusedAttention::supports(Device&, const AttentionShape& shape) {
  return shape.type == Type::Float16;
}

void FusedAttention::run(Device& device, const AttentionShape& shape,
                         const AttentionForward& arrays) {
  cuda_on_host::enqueue(device.compute().handle(), [shape, arrays] {
    for (std::int64_t head = 0; head < shape.samples * shape.heads; ++head) {
      Head(shape, head)
          .forward(numbers_in<__half>(arrays.queries_keys_values),
                   numbers_in<__half>(arrays.output), numbers_in<float>(arrays.log_sums));
    }
  });
}

void FusedAttention::run(Device& device, const AttentionShape& shape,
                         const AttentionBackward& arrays) {
  cuda_on_host::enqueue(device.compute().handle(), [shape, arrays] {
    for (std::int64_t head = 0; head < shape.samples * shape.heads; ++head) {
      Head(shape, head).backward(arrays);
    }
  });
}

}  // namespace dapple::cuda
