#include "exec/train/cpu_math.h"

#include <algorithm>
#include <functional>

#include "dapple/core/error.h"
#include "exec/message/value_payload.h"

namespace dapple::exec {
namespace {

/// Returns the values of a range of samples.
template <class Values>
auto numbers_of(Values& values, const nn::Shape& shape, SampleRange samples) {
  const std::int64_t each = nn::count_of(shape) / std::max<std::int64_t>(1, shape.front());
  return std::span(values).subspan(static_cast<std::size_t>(samples.begin * each),
                                   static_cast<std::size_t>(samples.size() * each));
}

/// The gradients of one of a device's tied stages, to which those of the others are added before
/// the reduction.
class TiedReductionBuffer : public HostReductionBuffer {
 public:
  TiedReductionBuffer(std::span<float> sum, std::vector<std::span<float>> others)
      : HostReductionBuffer(sum), sum_(sum), others_(std::move(others)) {}

  void begin() override {
    for (const std::span<const float> own : others_) {
      std::transform(own.begin(), own.end(), sum_.begin(), sum_.begin(), std::plus<>());
    }
  }

 private:
  std::span<float> sum_;
  std::vector<std::span<float>> others_;
};

}  // namespace

CpuMath::CpuMath(const TrainingJob& job, const TrainingDevice& device) : layers_(*job.layers) {
  const bool notes_margins = !device.forms.front().layers.margins.empty();
  if (runs_whole_layers(device.forms) && !notes_margins) return;
  shared_ = layers_by_stage(*job.layers, job.plan, device.forms, "");
  layers_ = shared_;
}

void CpuMath::add_shard(nn::RankGroup& group, Numbers all, Numbers sum) {
  std::vector<float> own(sum.size());
  group.reduce_scatter(all, own);
  add(own, sum);
}

void CpuMath::add(Numbers all, Numbers sum) {
  std::transform(all.begin(), all.end(), sum.begin(), sum.begin(), std::plus<>());
}

void CpuMath::take_in(Tensor& tensor, SampleRange samples, Payload payload) {
  copy_values(std::move(payload), numbers_of(tensor.values, tensor.shape, samples));
}

Payload CpuMath::give_out(const Tensor& tensor, SampleRange samples) {
  return payload_of(numbers_of(tensor.values, tensor.shape, samples));
}

Payload CpuMath::give_out(Tensor&& tensor) {
  return payload_of(tensor.values);
}

void CpuMath::take_in(Tensor& tensor, ElementRange numbers, Payload payload) {
  copy_values(std::move(payload), part(tensor.values, numbers));
}

Payload CpuMath::give_out(const Tensor& tensor, ElementRange numbers) {
  return payload_of(std::span(tensor.values).subspan(numbers.begin, numbers.size()));
}

void CpuMath::gather_shares(nn::RankGroup& group, Tensor& tensor, ElementRange all,
                            ElementRange own) {
  group.all_gather(part(tensor.values, own), part(tensor.values, all));
}

void CpuMath::copy_samples(const Tensor& from, SampleRange samples, Tensor& to,
                           SampleRange places) {
  std::ranges::copy(numbers_of(from.values, from.shape, samples),
                    numbers_of(to.values, to.shape, places).begin());
}

nn::Tensor CpuMath::loss_gradient(std::int64_t samples, float share) {
  return {.shape = {samples},
          .values = std::vector<float>(static_cast<std::size_t>(samples), share)};
}

std::unique_ptr<ReductionBuffer> CpuMath::buffer(Numbers gradients, std::vector<Numbers> others) {
  return std::make_unique<TiedReductionBuffer>(gradients, std::move(others));
}

void CpuMath::copy(Numbers from, Numbers to) {
  std::ranges::copy(from, to.begin());
}

CpuArrays::CpuArrays(CpuMath& /*math*/, const StageLayout& layout,
                     const nn::OptimizerSettings& optimizer)
    : layout_(layout),
      optimizer_(optimizer),
      states_(static_cast<std::size_t>(nn::state_count(optimizer.kind))),
      parameters_(layout.held_size()),
      gradients_(layout.held_size()),
      state_(layout.state_size() * states_) {}

void CpuArrays::clear_gradients() {
  std::fill(gradients_.begin(), gradients_.end(), 0.0F);
}

void CpuArrays::scale_gradients(float factor) {
  for (float& gradient : gradients_) gradient *= factor;
}

std::vector<double> CpuArrays::squares(const std::vector<ElementRange>& ranges) {
  std::vector<double> squares;
  for (const ElementRange& range : ranges) {
    double sum = 0;
    for (const float gradient : gradients(range)) sum += double{gradient} * double{gradient};
    squares.push_back(sum);
  }
  return squares;
}

/// Works tensor by tensor, so that values that the optimizer reads several times stay in a cache.
void CpuArrays::update(ElementRange range, std::int64_t number) {
  for (const UpdatedPart& part : layout_.parts) {
    const ElementRange own = part.numbers;
    if (own.begin < range.begin || own.end > range.end) continue;
    const ElementRange held = layout_.held(own);
    nn::update(optimizer_, number, std::span(parameters_).subspan(held.begin, held.size()),
               gradients(own),
               std::span(state_).subspan(part.state * states_, own.size() * states_));
  }
}

std::unique_ptr<ReductionBuffer> CpuArrays::buffer(ElementRange range) {
  return std::make_unique<HostReductionBuffer>(replaced(range));
}

std::span<const float> CpuArrays::values(TensorKind kind) const {
  switch (kind) {
    case TensorKind::Parameters:
      return parameters_;
    case TensorKind::Gradients:
      return gradients_;
    case TensorKind::State:
      return state_;
  }
  throw Bug("a kind of tensor that is none");
}

void CpuArrays::assign(const TensorPlace& place, std::span<const float> values) {
  const ElementRange held = layout_.held(place.numbers);
  const std::size_t skipped = layout_.first_held(place.numbers) - place.numbers.begin;
  std::ranges::copy(values.subspan(skipped, held.size()),
                    parameters_.begin() + static_cast<std::ptrdiff_t>(held.begin));
}

void CpuArrays::assign_state(const UpdatedPart& part, std::size_t number,
                             std::span<const float> values) {
  const std::size_t begin = part.state * states_ + number * part.numbers.size();
  std::ranges::copy(values, state_.begin() + static_cast<std::ptrdiff_t>(begin));
}

}  // namespace dapple::exec
