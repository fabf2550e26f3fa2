#include <utility>

#include "dapple/core/error.h"
#include "nn/matrix.h"
#include "nn/modules.h"

namespace dapple::nn {
namespace {

class Chain : public Module {
 public:
  Chain(std::vector<Part> parts, Shape takes) : parts_(std::move(parts)), takes_(std::move(takes)) {
    check(!parts_.empty(), "a chain needs a part");
    for (const Part& part : parts_) {
      const std::string prefix = part.name.empty() ? "" : part.name + ".";
      for (ParameterSpec parameter : part.module->parameters()) {
        parameter.name.insert(0, prefix);
        parameters_.push_back(std::move(parameter));
      }
    }
  }

  const std::vector<ParameterSpec>& parameters() const override { return parameters_; }

  Shape output_shape(const Shape& sample) const override {
    if (!takes_.empty() && sample != takes_) {
      refuse_shape("an input of " + to_string(takes_), sample);
    }
    Shape shape = sample;
    for (const Part& part : parts_) shape = part.module->output_shape(shape);
    return shape;
  }

  Tensor forward(Parameters parameters, Tensor input, const Tensor& targets,
                 Stash& stash) const override {
    stash.parts.resize(parts_.size());
    std::size_t first = 0;
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const Module& module = *parts_[i].module;
      const std::size_t count = module.parameters().size();
      input = module.forward(parameters.subspan(first, count), std::move(input), targets,
                             stash.parts[i]);
      first += count;
    }
    return input;
  }

  Tensor input_gradient(Parameters parameters, Tensor output_gradient,
                        Stash& stash) const override {
    std::size_t end = parameters_.size();
    for (std::size_t i = parts_.size(); i-- > 0;) {
      const Module& module = *parts_[i].module;
      const std::size_t count = module.parameters().size();
      end -= count;
      output_gradient = module.input_gradient(parameters.subspan(end, count),
                                              std::move(output_gradient), stash.parts[i]);
    }
    return output_gradient;
  }

  void weight_gradient(Stash& stash, Gradients sums) const override {
    std::size_t first = 0;
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const std::size_t count = parts_[i].module->parameters().size();
      parts_[i].module->weight_gradient(stash.parts[i], sums.subspan(first, count));
      first += count;
    }
    stash.parts.clear();
  }

 private:
  std::vector<Part> parts_;
  Shape takes_;
  std::vector<ParameterSpec> parameters_;
};

class Residual : public Module {
 public:
  explicit Residual(std::unique_ptr<Module> inner) : inner_(std::move(inner)) {}

  const std::vector<ParameterSpec>& parameters() const override { return inner_->parameters(); }

  Shape output_shape(const Shape& sample) const override { return inner_->output_shape(sample); }

  Tensor forward(Parameters parameters, Tensor input, const Tensor& targets,
                 Stash& stash) const override {
    Tensor output = inner_->forward(parameters, input, targets, stash);
    array_of(output) += array_of(std::as_const(input));
    return output;
  }

  Tensor input_gradient(Parameters parameters, Tensor output_gradient,
                        Stash& stash) const override {
    Tensor gradient = inner_->input_gradient(parameters, output_gradient, stash);
    array_of(gradient) += array_of(std::as_const(output_gradient));
    return gradient;
  }

  void weight_gradient(Stash& stash, Gradients sums) const override {
    inner_->weight_gradient(stash, sums);
  }

 private:
  std::unique_ptr<Module> inner_;
};

}  // namespace

std::unique_ptr<Module> make_chain(std::vector<Part> parts, Shape takes) {
  return std::make_unique<Chain>(std::move(parts), std::move(takes));
}

std::unique_ptr<Module> make_residual(std::unique_ptr<Module> inner) {
  return std::make_unique<Residual>(std::move(inner));
}

}  // namespace dapple::nn
