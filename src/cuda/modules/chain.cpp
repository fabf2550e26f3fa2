#include <utility>

#include "cuda/modules/modules.h"
#include "dapple/core/error.h"
#include "dapple/cuda/kernels/arrays.h"

namespace dapple::cuda {
namespace {

class Chain : public DeviceModule {
 public:
  explicit Chain(std::vector<std::unique_ptr<DeviceModule>> parts) : parts_(std::move(parts)) {
    check(!parts_.empty(), "a chain needs a part");
    for (const auto& part : parts_) parameter_count_ += part->parameter_count();
  }

  std::size_t parameter_count() const override { return parameter_count_; }

  DeviceTensor forward(Device& device, Parameters parameters, DeviceTensor input,
                       const DeviceTensor& targets, DeviceStash& stash) const override {
    stash.parts.resize(parts_.size());
    std::size_t first = 0;
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const std::size_t count = parts_[i]->parameter_count();
      input = parts_[i]->forward(device, parameters.subspan(first, count), std::move(input),
                                 targets, stash.parts[i]);
      first += count;
    }
    return input;
  }

  DeviceTensor input_gradient(Device& device, Parameters parameters, DeviceTensor output_gradient,
                              DeviceStash& stash) const override {
    std::size_t end = parameter_count_;
    for (std::size_t i = parts_.size(); i-- > 0;) {
      const std::size_t count = parts_[i]->parameter_count();
      end -= count;
      output_gradient = parts_[i]->input_gradient(device, parameters.subspan(end, count),
                                                  std::move(output_gradient), stash.parts[i]);
    }
    return output_gradient;
  }

  void weight_gradient(Device& device, DeviceStash& stash, Gradients sums) const override {
    std::size_t first = 0;
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const std::size_t count = parts_[i]->parameter_count();
      parts_[i]->weight_gradient(device, stash.parts[i], sums.subspan(first, count));
      first += count;
    }
    stash.parts.clear();
  }

 private:
  std::vector<std::unique_ptr<DeviceModule>> parts_;
  std::size_t parameter_count_ = 0;
};

/// Copies what the inner module takes, as that may keep it or write over it.
class Residual : public DeviceModule {
 public:
  explicit Residual(std::unique_ptr<DeviceModule> inner) : inner_(std::move(inner)) {}

  std::size_t parameter_count() const override { return inner_->parameter_count(); }

  DeviceTensor forward(Device& device, Parameters parameters, DeviceTensor input,
                       const DeviceTensor& targets, DeviceStash& stash) const override {
    const DeviceTensor kept = copy_of(device, input);
    DeviceTensor output = inner_->forward(device, parameters, std::move(input), targets, stash);
    add(device.compute(), kept.view(), output.view());
    return output;
  }

  DeviceTensor input_gradient(Device& device, Parameters parameters, DeviceTensor output_gradient,
                              DeviceStash& stash) const override {
    const DeviceTensor kept = copy_of(device, output_gradient);
    DeviceTensor gradient =
        inner_->input_gradient(device, parameters, std::move(output_gradient), stash);
    add(device.compute(), kept.view(), gradient.view());
    return gradient;
  }

  void weight_gradient(Device& device, DeviceStash& stash, Gradients sums) const override {
    inner_->weight_gradient(device, stash, sums);
  }

 private:
  static DeviceTensor copy_of(Device& device, const DeviceTensor& tensor) {
    DeviceTensor kept = make_tensor(device, tensor.shape, tensor.type);
    copy(device.compute(), tensor.view(), kept.view());
    return kept;
  }

  std::unique_ptr<DeviceModule> inner_;
};

}  // namespace

std::unique_ptr<DeviceModule> make_residual(std::unique_ptr<DeviceModule> inner) {
  return std::make_unique<Residual>(std::move(inner));
}

std::unique_ptr<DeviceModule> make_chain(std::vector<std::unique_ptr<DeviceModule>> parts) {
  return std::make_unique<Chain>(std::move(parts));
}

}  // namespace dapple::cuda
