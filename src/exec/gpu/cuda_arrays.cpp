#include "exec/gpu/cuda_arrays.h"

#include <algorithm>
#include <array>

#include "dapple/core/error.h"
#include "dapple/cuda/kernels/arrays.h"
#include "dapple/cuda/kernels/optimizer.h"
#include "exec/gpu/cuda_math.h"

namespace dapple::exec {
namespace {

cuda::View part(const cuda::View& view, ElementRange range) {
  return view.part(static_cast<std::int64_t>(range.begin), static_cast<std::int64_t>(range.end));
}

}  // namespace

CudaArrays::CudaArrays(CudaMath& math, const StageLayout& layout,
                       const nn::OptimizerSettings& optimizer)
    : math_(math),
      layout_(layout),
      optimizer_(optimizer),
      states_(static_cast<std::size_t>(nn::state_count(optimizer.kind))) {
  const std::size_t size = layout.size();
  const bool is_single = math.type() == cuda::Type::Float32;
  masters_ = zeros(size, cuda::Type::Float32, master_memory_);
  copies_ = zeros(is_single ? 0 : size, math.type(), copy_memory_);
  gradients_ = zeros(size, cuda::Type::Float32, gradient_memory_);
  state_ = zeros(size * states_, cuda::Type::Float32, state_memory_);
}

cuda::View CudaArrays::zeros(std::size_t count, cuda::Type type, cuda::Buffer& memory) {
  cuda::View view{nullptr, type, static_cast<std::int64_t>(count)};
  memory = math_.device().allocate(view.size());
  view.address = memory.address();
  cuda::fill_with_zeros(math_.device().compute(), view);
  return view;
}

cuda::View CudaArrays::parameters(ElementRange range) const {
  return part(copies_.count > 0 ? copies_ : masters_, range);
}

cuda::View CudaArrays::gradients(ElementRange range) const {
  return part(gradients_, range);
}

void CudaArrays::clear_gradients() {
  factor_ = 1;
  cuda::fill_with_zeros(math_.device().compute(), gradients_);
}

float CudaArrays::gradient_factor() const {
  return factor_ / math_.loss_scale();
}

std::vector<double> CudaArrays::squares(const std::vector<ElementRange>& ranges) {
  cuda::Device& device = math_.device();
  std::vector<double> squares(ranges.size());
  const std::span<std::byte> bytes = std::as_writable_bytes(std::span(squares));
  const cuda::Buffer sums = device.allocate({static_cast<std::int64_t>(bytes.size())});
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    cuda::squared_norm(device, gradients(ranges[i]), sums.address() + i * sizeof(double));
  }
  device.download(sums.address(), bytes, device.compute());
  const auto factor = static_cast<double>(gradient_factor());
  for (double& square : squares) square *= factor * factor;
  return squares;
}

void CudaArrays::update(ElementRange range, std::int64_t number) {
  const ElementRange states{range.begin * states_, range.end * states_};
  cuda::update(math_.device().compute(), optimizer_, number, gradient_factor(),
               {.parameters = part(masters_, range),
                .gradients = part(gradients_, range),
                .state = part(state_, states),
                .copy = copies_.count > 0 ? part(copies_, range) : copies_});
}

void CudaArrays::warm_up() {
  cuda::Device& device = math_.device();
  const cuda::Stream& stream = device.compute();
  const cuda::Buffer norm = device.allocate({sizeof(double)});
  // Kernels process four elements at a time where possible, and single ones otherwise.
  for (const std::size_t count : {std::size_t{4}, std::size_t{1}}) {
    std::array<cuda::Buffer, 4> memory;
    const cuda::View parameters = zeros(count, cuda::Type::Float32, memory[0]);
    const cuda::View gradients = zeros(count, cuda::Type::Float32, memory[1]);
    cuda::update(stream, optimizer_, 1, 1,
                 {.parameters = parameters,
                  .gradients = gradients,
                  .state = zeros(count * states_, cuda::Type::Float32, memory[2]),
                  .copy = zeros(copies_.count > 0 ? count : 0, math_.type(), memory[3])});
    cuda::add(stream, parameters, gradients);  // as for tied gradients
    cuda::squared_norm(device, gradients, norm.address());
  }
}

std::size_t CudaArrays::state_of(const TensorPlace& place, std::size_t number) const {
  for (const ElementRange& unit : layout_.stepped) {
    if (place.numbers.begin < unit.begin || place.numbers.end > unit.end) continue;
    return unit.begin * states_ + number * unit.size() + place.numbers.begin - unit.begin;
  }
  throw Bug("a tensor that no step changes");
}

std::span<const float> CudaArrays::values(TensorKind kind) {
  const bool is_state = kind == TensorKind::State;
  const cuda::View& view = is_state                        ? state_
                           : kind == TensorKind::Gradients ? gradients_
                                                           : masters_;
  std::vector<float> values(static_cast<std::size_t>(view.count));
  math_.device().download(view.address, std::as_writable_bytes(std::span(values)),
                          math_.device().compute());
  if (kind == TensorKind::Gradients) {
    const float factor = gradient_factor();
    for (float& gradient : values) gradient *= factor;
  }
  if (!is_state) return on_host_ = std::move(values);
  on_host_.resize(values.size());
  for (const TensorPlace& place : layout_.places) {
    const std::size_t size = place.numbers.size();
    for (std::size_t k = 0; k < states_; ++k) {
      std::ranges::copy(
          std::span(values).subspan(state_of(place, k), size),
          on_host_.begin() + static_cast<std::ptrdiff_t>(place.numbers.begin * states_ + k * size));
    }
  }
  return on_host_;
}

void CudaArrays::assign(const TensorPlace& place, TensorKind kind, std::size_t number,
                        std::span<const float> values) {
  cuda::Device& device = math_.device();
  const bool is_state = kind == TensorKind::State;
  const std::size_t begin = is_state ? state_of(place, number) : place.numbers.begin;
  const cuda::View target =
      part(is_state ? state_ : masters_, {begin, begin + place.numbers.size()});
  device.upload(std::as_bytes(values), target.address, device.compute());
  if (!is_state && copies_.count > 0) {
    cuda::copy(device.compute(), target, part(copies_, place.numbers));
  }
}

}  // namespace dapple::exec
