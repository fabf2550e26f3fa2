#include "dapple/nn/tensor.h"

#include <functional>
#include <numeric>
#include <utility>

namespace dapple::nn {

std::int64_t count_of(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

Tensor zeros(Shape shape) {
  Tensor tensor{std::move(shape), {}};
  tensor.values.resize(static_cast<std::size_t>(count_of(tensor.shape)));
  return tensor;
}

Tensor samples_of(const Tensor& tensor, std::int64_t begin, std::int64_t end) {
  Tensor part{tensor.shape, {}};
  part.shape.front() = end - begin;
  const auto per_sample =
      static_cast<std::ptrdiff_t>(count_of({tensor.shape.begin() + 1, tensor.shape.end()}));
  const auto first = tensor.values.begin();
  part.values.assign(first + begin * per_sample, first + end * per_sample);
  return part;
}

}  // namespace dapple::nn
