#include "exec/train/named_tensors.h"

#include <algorithm>
#include <cmath>

#include "dapple/core/error.h"

namespace dapple::exec {
namespace {

/// Sets the values of a tensor that begin at number `begin` of what the layout holds of it.
void set(nn::Tensor& tensor, const TensorPlace& place, std::size_t begin,
         std::span<const float> values) {
  if (tensor.values.empty()) tensor = nn::zeros(place.whole_shape());
  if (!place.part) {
    std::ranges::copy(values, tensor.values.begin() + static_cast<std::ptrdiff_t>(begin));
    return;
  }
  std::vector<float> held(place.numbers.size());
  nn::take_part(*place.part, tensor.values, held);
  std::ranges::copy(values, held.begin() + static_cast<std::ptrdiff_t>(begin));
  nn::put_part(*place.part, held, tensor.values);
}

}  // namespace

std::string moment_name(const std::string& tensor, std::size_t number) {
  return tensor + ".moment" + std::to_string(number + 1);
}

void add_tensors(const StageLayout& layout, std::span<const float> values, TensorKind kind,
                 std::int64_t states, NamedTensors& tensors) {
  if (kind == TensorKind::Parameters && !layout.holds_shards) {
    for (const TensorPlace& place : layout.places) {
      if (place.is_copy || layout.is_repeated(place)) continue;
      set(tensors[place.name], place, 0, values.subspan(place.numbers.begin, place.numbers.size()));
    }
    return;
  }
  const bool is_state = kind == TensorKind::State;
  const auto arrays = static_cast<std::size_t>(is_state ? states : 1);
  for (const UpdatedPart& part : layout.parts) {
    const TensorPlace& place = layout.places[part.place];
    if (place.is_copy || layout.is_repeated(place)) continue;
    const std::size_t size = part.numbers.size();
    for (std::size_t k = 0; k < arrays; ++k) {
      const std::size_t begin =
          is_state ? part.state * arrays + k * size : layout.held(part.numbers).begin;
      set(tensors[is_state ? moment_name(place.name, k) : place.name], place,
          part.numbers.begin - place.numbers.begin, values.subspan(begin, size));
    }
  }
}

std::optional<std::size_t> first_not_finite(const nn::Tensor& tensor) {
  const auto found = std::find_if(tensor.values.begin(), tensor.values.end(),
                                  [](float value) { return !std::isfinite(value); });
  if (found == tensor.values.end()) return std::nullopt;
  return static_cast<std::size_t>(found - tensor.values.begin());
}

HeldTensor::HeldTensor(const NamedTensors& tensors, const std::string& name,
                       const TensorPlace& place) {
  const auto found = tensors.find(name);
  check(found != tensors.end() && found->second.shape == place.whole_shape(),
        "a tensor that training goes on with is missing or has another shape");
  values_ = found->second.values;
  if (!place.part) return;
  part_.resize(place.numbers.size());
  nn::take_part(*place.part, values_, part_);
  values_ = part_;
}

}  // namespace dapple::exec
