#include <utility>

#include "nn/linear.h"
#include "nn/matrix.h"
#include "nn/modules.h"
#include "nn/shared_modules.h"

namespace dapple::nn {
namespace {

std::int64_t size_of(const std::vector<ParameterPart::Range>& ranges) {
  std::int64_t size = 0;
  for (const ParameterPart::Range& range : ranges) size += range.end - range.begin;
  return size;
}

LinearOperation with_outputs(LinearOperation operation, std::int64_t outputs) {
  operation.outputs = outputs;
  return operation;
}

LinearOperation with_inputs(LinearOperation operation, std::int64_t inputs) {
  operation.inputs = inputs;
  return operation;
}

/// The stash has the rank's input, which with sequence parallelism is gathered again for the weight
/// gradient, and between the parts of a backward the output's gradient.
class ColumnParallel : public Module {
 public:
  ColumnParallel(const LinearOperation& whole, const std::vector<ParameterPart::Range>& columns,
                 const TensorRank& rank)
      : operation_(with_outputs(whole, size_of(columns))),
        rank_(rank),
        parameters_(linear_parameters(whole)) {
    for (ParameterSpec& parameter : parameters_) {
      const bool is_by_inputs = parameter.shape.size() == 2 && !whole.transposed;
      const std::size_t dimension = is_by_inputs ? 1 : 0;
      parameter.part = {.whole = parameter.shape, .dimension = dimension, .ranges = columns};
      parameter.shape[dimension] = operation_.outputs;
    }
  }

  const std::vector<ParameterSpec>& parameters() const override { return parameters_; }

  Shape output_shape(const Shape& sample) const override {
    check_last_dimension(sample, operation_.inputs);
    Shape shape = sample;
    shape.back() = operation_.outputs;
    if (rank_.is_sequence_parallel) shape.front() *= rank_.ranks;
    return shape;
  }

  Tensor forward(Parameters parameters, Tensor input, const Tensor&, Stash& stash) const override {
    const auto bias = operation_.bias ? parameters[1] : std::span<const float>{};
    Tensor output =
        rank_.is_sequence_parallel
            ? linear_output(operation_, parameters[0], bias, gather_sequences(input, rank_))
            : linear_output(operation_, parameters[0], bias, input);
    stash.tensors.push_back(std::move(input));
    return output;
  }

  Tensor input_gradient(Parameters parameters, Tensor output_gradient,
                        Stash& stash) const override {
    Tensor gradient = linear_input_gradient(operation_, parameters[0], output_gradient);
    stash.tensors.push_back(std::move(output_gradient));
    if (rank_.is_sequence_parallel) return scatter_sequences(std::move(gradient), rank_);
    rank_.group->all_reduce(gradient.values);
    return gradient;
  }

  void weight_gradient(Stash& stash, Gradients sums) const override {
    const Tensor& own = stash.tensors[0];
    const Tensor& gradient = stash.tensors[1];
    if (rank_.is_sequence_parallel) {
      add_linear_weight_gradient(operation_, gather_sequences(own, rank_), gradient, sums[0]);
    } else {
      add_linear_weight_gradient(operation_, own, gradient, sums[0]);
    }
    if (operation_.bias) add_bias_gradient(gradient, sums[1]);
    stash.tensors.clear();
  }

 private:
  LinearOperation operation_;  // of the rank's outputs
  TensorRank rank_;
  std::vector<ParameterSpec> parameters_;
};

/// The bias is added to the sum over the ranks, by each of them.
class RowParallel : public Module {
 public:
  RowParallel(const LinearOperation& whole, const TensorRank& rank)
      : operation_(with_inputs(whole, whole.inputs / rank.ranks)),
        rank_(rank),
        parameters_(linear_parameters(whole)) {
    ParameterSpec& weight = parameters_.front();
    weight.part = {
        .whole = weight.shape, .dimension = 0, .ranges = {part_of_rank(whole.inputs, rank)}};
    weight.shape[0] = operation_.inputs;
    if (whole.bias) parameters_.back().is_summed_over_ranks = rank.is_sequence_parallel;
  }

  const std::vector<ParameterSpec>& parameters() const override { return parameters_; }

  Shape output_shape(const Shape& sample) const override {
    check_last_dimension(sample, operation_.inputs);
    Shape shape = sample;
    shape.back() = operation_.outputs;
    if (rank_.is_sequence_parallel) shape.front() /= rank_.ranks;
    return shape;
  }

  Tensor forward(Parameters parameters, Tensor input, const Tensor&, Stash& stash) const override {
    Tensor output = linear_output(operation_, parameters[0], {}, input);
    stash.tensors.push_back(std::move(input));
    if (rank_.is_sequence_parallel) {
      output = scatter_sequences(std::move(output), rank_);
    } else {
      rank_.group->all_reduce(output.values);
    }
    if (operation_.bias) {
      rows_of(output, operation_.outputs).rowwise() += vector_of(parameters[1]);
    }
    return output;
  }

  Tensor input_gradient(Parameters parameters, Tensor output_gradient,
                        Stash& stash) const override {
    if (rank_.is_sequence_parallel) {
      // The bias was added to the rank's part of the sequences.
      Tensor gathered = gather_sequences(output_gradient, rank_);
      if (operation_.bias) stash.tensors.push_back(std::move(output_gradient));
      output_gradient = std::move(gathered);
    }
    Tensor gradient = linear_input_gradient(operation_, parameters[0], output_gradient);
    stash.tensors.push_back(std::move(output_gradient));
    return gradient;
  }

  void weight_gradient(Stash& stash, Gradients sums) const override {
    add_linear_weight_gradient(operation_, stash.tensors.front(), stash.tensors.back(), sums[0]);
    // Behind the input: the gradient of the rank's part, which without sequence parallelism is all.
    if (operation_.bias) add_bias_gradient(stash.tensors[1], sums[1]);
    stash.tensors.clear();
  }

 private:
  LinearOperation operation_;  // of the rank's inputs
  TensorRank rank_;
  std::vector<ParameterSpec> parameters_;
};

}  // namespace

std::unique_ptr<Module> make_column_parallel(const LinearOperation& whole,
                                             const std::vector<ParameterPart::Range>& columns,
                                             const TensorRank& rank) {
  return std::make_unique<ColumnParallel>(whole, columns, rank);
}

std::unique_ptr<Module> make_row_parallel(const LinearOperation& whole, const TensorRank& rank) {
  return std::make_unique<RowParallel>(whole, rank);
}

}  // namespace dapple::nn
