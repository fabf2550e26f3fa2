// Modules that are whole on every rank, which may see only its part of each sequence.
#include <utility>

#include "nn/matrix.h"
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
  PositionsOfPart(const PositionEmbeddingOperation& whole, const LayerRank& rank)
      : parameters_(make_position_embedding(whole)->parameters()), hidden_(whole.hidden) {
    rows_ = positions_of(rank.context, whole.sequence);
    if (rank.tensor.is_sequence_parallel) {
      const ParameterPart::Range part =
          part_of_rank(static_cast<std::int64_t>(rows_.size()), rank.tensor);
      rows_ = {rows_.begin() + part.begin, rows_.begin() + part.end};
      parameters_.front().is_summed_over_ranks = true;
    }
    of_part_ = make_position_embedding({static_cast<std::int64_t>(rows_.size()), hidden_});
  }

  const std::vector<ParameterSpec>& parameters() const override { return parameters_; }
  Shape output_shape(const Shape& sample) const override { return of_part_->output_shape(sample); }
  Tensor forward(Parameters parameters, Tensor input, const Tensor& targets,
                 Stash& stash) const override {
    const std::vector<float> own = own_rows(parameters[0]);
    const std::span<const float> rows = own;
    return of_part_->forward({&rows, 1}, std::move(input), targets, stash);
  }
  Tensor input_gradient(Parameters parameters, Tensor output_gradient,
                        Stash& stash) const override {
    return of_part_->input_gradient(parameters, std::move(output_gradient), stash);
  }
  void weight_gradient(Stash& stash, Gradients sums) const override {
    std::vector<float> own(rows_.size() * static_cast<std::size_t>(hidden_));
    const std::span<float> rows = own;
    of_part_->weight_gradient(stash, {&rows, 1});
    Matrix table = rows_of(sums[0], hidden_);
    const Matrix of_part = rows_of(rows, hidden_);
    for (std::size_t row = 0; row < rows_.size(); ++row) {
      table.row(rows_[row]) += of_part.row(static_cast<Eigen::Index>(row));
    }
  }

 private:
  std::vector<float> own_rows(std::span<const float> table) const {
    std::vector<float> own;
    for (const std::int64_t row : rows_) {
      const std::span<const float> values =
          table.subspan(static_cast<std::size_t>(row * hidden_), static_cast<std::size_t>(hidden_));
      own.insert(own.end(), values.begin(), values.end());
    }
    return own;
  }

  std::vector<ParameterSpec> parameters_;
  std::int64_t hidden_;
  std::vector<std::int64_t> rows_;
  std::unique_ptr<Module> of_part_;
};

}  // namespace

std::unique_ptr<Module> make_shared_position_embedding(const PositionEmbeddingOperation& whole,
                                                       const LayerRank& rank) {
  const bool is_whole = !rank.tensor.is_sequence_parallel && rank.context.ranks == 1;
  if (is_whole) return make_position_embedding(whole);
  return std::make_unique<PositionsOfPart>(whole, rank);
}

std::unique_ptr<Module> make_replicated(std::unique_ptr<Module> module, const TensorRank& rank) {
  if (!rank.is_sequence_parallel) return module;
  return std::make_unique<Replicated>(std::move(module));
}

}  // namespace dapple::nn
