#include "named_tensors.h"

#include <algorithm>

#include "dapple/core/error.h"

namespace dapple {
namespace {

void copy_in(const NamedTensors& tensors, const std::string& name, const nn::Shape& shape,
             std::span<float> values) {
  const auto found = tensors.find(name);
  check(found != tensors.end() && found->second.shape == shape,
        "a tensor that training goes on with is missing or has another shape");
  std::copy(found->second.values.begin(), found->second.values.end(), values.begin());
}

}  // namespace

std::string moment_name(const std::string& tensor, std::int64_t number) {
  return tensor + ".moment" + std::to_string(number + 1);
}

void add_tensors(const std::vector<TensorPlace>& places, std::span<const float> values,
                 TensorKind kind, std::int64_t states, NamedTensors& tensors) {
  const bool is_state = kind == TensorKind::State;
  const auto arrays = static_cast<std::size_t>(is_state ? states : 1);
  for (const TensorPlace& place : places) {
    if (place.is_copy) continue;
    for (std::size_t k = 0; k < arrays; ++k) {
      const std::span<const float> array =
          values.subspan(place.offset * arrays + k * place.size, place.size);
      tensors[is_state ? moment_name(place.name, static_cast<std::int64_t>(k)) : place.name] = {
          .shape = place.shape, .values = {array.begin(), array.end()}};
    }
  }
}

void restore(const NamedTensors& tensors, std::int64_t states, StageParameters& stage) {
  const auto arrays = static_cast<std::size_t>(states);
  for (const TensorPlace& place : stage.places()) {
    copy_in(tensors, place.name, place.shape,
            stage.all_parameters().subspan(place.offset, place.size));
    for (std::size_t k = 0; k < arrays; ++k) {
      copy_in(tensors, moment_name(place.name, static_cast<std::int64_t>(k)), place.shape,
              stage.all_state().subspan(place.offset * arrays + k * place.size, place.size));
    }
  }
}

std::span<float> values_of(StageParameters& stage, TensorKind kind) {
  switch (kind) {
    case TensorKind::Parameters:
      return stage.all_parameters();
    case TensorKind::Gradients:
      return stage.all_gradients();
    case TensorKind::State:
      return stage.all_state();
  }
  throw Bug("a kind of tensor that is none");
}

}  // namespace dapple
