#include <utility>

#include "nn/modules.h"
#include "nn/shared_modules.h"

namespace dapple::nn {
namespace {

class Recomputed : public Module {
 public:
  explicit Recomputed(std::unique_ptr<Module> module) : module_(std::move(module)) {}

  const std::vector<ParameterSpec>& parameters() const override { return module_->parameters(); }
  Shape output_shape(const Shape& sample) const override { return module_->output_shape(sample); }

  Tensor forward(Parameters parameters, Tensor input, const Tensor&, Stash& stash) const override {
    stash.tensors.push_back(input);
    Stash dropped;
    return module_->forward(parameters, std::move(input), {}, dropped);
  }

  Tensor input_gradient(Parameters parameters, Tensor output_gradient,
                        Stash& stash) const override {
    Tensor input = std::move(stash.tensors.front());
    stash.tensors.clear();
    Stash& again = stash.parts.emplace_back();
    module_->forward(parameters, std::move(input), {}, again);
    return module_->input_gradient(parameters, std::move(output_gradient), again);
  }

  void weight_gradient(Stash& stash, Gradients sums) const override {
    module_->weight_gradient(stash.parts.front(), sums);
    stash.parts.clear();
  }

 private:
  std::unique_ptr<Module> module_;
};

}  // namespace

std::unique_ptr<Module> make_recomputed(std::unique_ptr<Module> module) {
  return std::make_unique<Recomputed>(std::move(module));
}

}  // namespace dapple::nn
