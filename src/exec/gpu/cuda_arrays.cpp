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
  const std::size_t size = layout.held_size();
  const bool is_single = math.type() == cuda::Type::Float32;
  masters_ = zeros(size, cuda::Type::Float32, master_memory_);
  copies_ = zeros(is_single ? 0 : size, math.type(), copy_memory_);
  gradients_ = zeros(size, cuda::Type::Float32, gradient_memory_);
  state_ = zeros(layout.state_size() * states_, cuda::Type::Float32, state_memory_);
}

cuda::View CudaArrays::zeros(std::size_t count, cuda::Type type, cuda::Buffer& memory) {
  cuda::View view{nullptr, type, static_cast<std::int64_t>(count)};
  memory = math_.device().allocate(view.size());
  view.address = memory.address();
  cuda::fill_with_zeros(math_.device().compute(), view);
  return view;
}

cuda::View CudaArrays::parameters(ElementRange range) const {
  return part(copies_.count > 0 ? copies_ : masters_, layout_.held(range));
}

cuda::View CudaArrays::replaced(ElementRange range) const {
  return part(masters_, range);
}

cuda::View CudaArrays::gradients(ElementRange range) const {
  return part(gradients_, layout_.held(range));
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
  for (const UpdatedRange& updated : layout_.updated) {
    const ElementRange own = updated.numbers;
    if (own.begin < range.begin || own.end > range.end || own.size() == 0) continue;
    const ElementRange states{updated.state * states_, (updated.state + own.size()) * states_};
    const ElementRange held = layout_.held(own);
    cuda::update(math_.device().compute(), optimizer_, number, gradient_factor(),
                 {.parameters = part(masters_, held),
                  .gradients = part(gradients_, held),
                  .state = part(state_, states),
                  .copy = copies_.count > 0 ? part(copies_, held) : copies_});
  }
}

std::unique_ptr<ReductionBuffer> CudaArrays::buffer(ElementRange range) {
  return math_.buffer(replaced(range), {});
}

void CudaArrays::make_copies(ElementRange range) {
  if (copies_.count == 0) return;
  cuda::copy(math_.device().compute(), part(masters_, range), part(copies_, range));
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
    const cuda::View copy = zeros(copies_.count > 0 ? count : 0, math_.type(), memory[3]);
    cuda::update(stream, optimizer_, 1, 1,
                 {.parameters = parameters,
                  .gradients = gradients,
                  .state = zeros(count * states_, cuda::Type::Float32, memory[2]),
                  .copy = copy});
    if (copy.count > 0) cuda::copy(stream, parameters, copy);  // as for gathered parameters
    cuda::add(stream, parameters, gradients);                  // as for tied gradients
    cuda::squared_norm(device, gradients, norm.address());
  }
}

std::size_t CudaArrays::state_of(const UpdatedPart& part, std::size_t number) const {
  const UpdatedRange& range = layout_.updated[part.range];
  return range.state * states_ + number * range.numbers.size() + part.state - range.state;
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
  for (const UpdatedPart& part : layout_.parts) {
    const std::size_t size = part.numbers.size();
    for (std::size_t k = 0; k < states_; ++k) {
      std::ranges::copy(
          std::span(values).subspan(state_of(part, k), size),
          on_host_.begin() + static_cast<std::ptrdiff_t>(part.state * states_ + k * size));
    }
  }
  return on_host_;
}

void CudaArrays::assign(const TensorPlace& place, std::span<const float> values) {
  cuda::Device& device = math_.device();
  const ElementRange held = layout_.held(place.numbers);
  const std::size_t skipped = layout_.first_held(place.numbers) - place.numbers.begin;
  device.upload(std::as_bytes(values.subspan(skipped, held.size())), part(masters_, held).address,
                device.compute());
  make_copies(held);
}

void CudaArrays::assign_state(const UpdatedPart& of, std::size_t number,
                              std::span<const float> values) {
  cuda::Device& device = math_.device();
  const std::size_t begin = state_of(of, number);
  const cuda::View target = part(state_, {begin, begin + of.numbers.size()});
  device.upload(std::as_bytes(values), target.address, device.compute());
}

}  // namespace dapple::exec
