#include "exec/train/named_tensors.h"

#include <algorithm>
#include <cmath>

#include "dapple/core/error.h"

namespace dapple::exec {

std::string moment_name(const std::string& tensor, std::size_t number) {
  return tensor + ".moment" + std::to_string(number + 1);
}

void add_tensors(const StageLayout& layout, std::span<const float> values, TensorKind kind,
                 std::int64_t states, NamedTensors& tensors) {
  if (kind == TensorKind::Parameters) {
    for (const TensorPlace& place : layout.places) {
      if (place.is_copy) continue;
      const std::span<const float> all = values.subspan(place.numbers.begin, place.numbers.size());
      tensors[place.name] = {.shape = place.shape, .values = {all.begin(), all.end()}};
    }
    return;
  }
  const bool is_state = kind == TensorKind::State;
  const auto arrays = static_cast<std::size_t>(is_state ? states : 1);
  for (const UpdatedPart& part : layout.parts) {
    const TensorPlace& place = layout.places[part.place];
    if (place.is_copy) continue;
    const std::size_t size = part.numbers.size();
    for (std::size_t k = 0; k < arrays; ++k) {
      nn::Tensor& tensor = tensors[is_state ? moment_name(place.name, k) : place.name];
      if (tensor.values.empty()) tensor = nn::zeros(place.shape);
      const std::size_t begin = is_state ? part.state * arrays + k * size : part.numbers.begin;
      std::ranges::copy(values.subspan(begin, size),
                        tensor.values.begin() +
                            static_cast<std::ptrdiff_t>(part.numbers.begin - place.numbers.begin));
    }
  }
}

std::optional<std::size_t> first_not_finite(const nn::Tensor& tensor) {
  const auto found = std::find_if(tensor.values.begin(), tensor.values.end(),
                                  [](float value) { return !std::isfinite(value); });
  if (found == tensor.values.end()) return std::nullopt;
  return static_cast<std::size_t>(found - tensor.values.begin());
}

std::span<const float> tensor_of(const NamedTensors& tensors, const std::string& name,
                                 const nn::Shape& shape) {
  const auto found = tensors.find(name);
  check(found != tensors.end() && found->second.shape == shape,
        "a tensor that training goes on with is missing or has another shape");
  return found->second.values;
}

}  // namespace dapple::exec
