// Modules that are whole on every rank and that, with sequence parallelism, see only its part of
// each sequence.
#include <utility>

#include "nn/modules.h"
#include "nn/shared_modules.h"

namespace dapple::nn {
namespace {

/// A module whose gradients are sums over the ranks.
class Replicated : public Module {
 public:
  explicit Replicated(std::unique_ptr<Module> module)
      : module_(std::move(module)), parameters_(module_->parameters()) {
    for (ParameterSpec& parameter : parameters_) parameter.is_summed_over_ranks = true;
  }

  const std::vector<ParameterSpec>& parameters() const override { return parameters_; }
  Shape output_shape(const Shape& sample) const override { return module_->output_shape(sample); }
  Tensor forward(Parameters parameters, Tensor input, const Tensor& targets,
                 Stash& stash) const override {
    return module_->forward(parameters, std::move(input), targets, stash);
  }
  Tensor input_gradient(Parameters parameters, Tensor output_gradient,
                        Stash& stash) const override {
    return module_->input_gradient(parameters, std::move(output_gradient), stash);
  }
  void weight_gradient(Stash& stash, Gradients sums) const override {
    module_->weight_gradient(stash, sums);
  }

 private:
  std::unique_ptr<Module> module_;
  std::vector<ParameterSpec> parameters_;
};

/// Uses the rows of the table that belong to the rank's part of the sequence.
class PositionsOfPart : public Module {
 public:
  PositionsOfPart(const PositionEmbeddingOperation& whole, const TensorRank& rank)
      : parameters_(make_position_embedding(whole)->parameters()),
        rows_(part_of_rank(whole.sequence, rank)),
        hidden_(whole.hidden),
        of_part_(make_position_embedding({rows_.end - rows_.begin, whole.hidden})) {
    parameters_.front().is_summed_over_ranks = true;
  }

  const std::vector<ParameterSpec>& parameters() const override { return parameters_; }
  Shape output_shape(const Shape& sample) const override { return of_part_->output_shape(sample); }
  Tensor forward(Parameters parameters, Tensor input, const Tensor& targets,
                 Stash& stash) const override {
    const std::span<const float> rows = own_rows(parameters[0]);
    return of_part_->forward({&rows, 1}, std::move(input), targets, stash);
  }
  Tensor input_gradient(Parameters parameters, Tensor output_gradient,
                        Stash& stash) const override {
    const std::span<const float> rows = own_rows(parameters[0]);
    return of_part_->input_gradient({&rows, 1}, std::move(output_gradient), stash);
  }
  void weight_gradient(Stash& stash, Gradients sums) const override {
    const std::span<float> rows = own_rows(sums[0]);
    of_part_->weight_gradient(stash, {&rows, 1});
  }

 private:
  template <class Number>
  std::span<Number> own_rows(std::span<Number> table) const {
    return table.subspan(static_cast<std::size_t>(rows_.begin * hidden_),
                         static_cast<std::size_t>((rows_.end - rows_.begin) * hidden_));
  }

  std::vector<ParameterSpec> parameters_;
  ParameterPart::Range rows_;
  std::int64_t hidden_;
  std::unique_ptr<Module> of_part_;
};

}  // namespace

std::unique_ptr<Module> make_replicated_position_embedding(const PositionEmbeddingOperation& whole,
                                                           const TensorRank& rank) {
  if (!rank.is_sequence_parallel) return make_position_embedding(whole);
  return std::make_unique<PositionsOfPart>(whole, rank);
}

std::unique_ptr<Module> make_replicated(std::unique_ptr<Module> module, const TensorRank& rank) {
  if (!rank.is_sequence_parallel) return module;
  return std::make_unique<Replicated>(std::move(module));
}

}  // namespace dapple::nn
