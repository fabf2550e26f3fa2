// Experts that are on different ranks, or of which ranks compute a part each: each position's rows
// go to the ranks of its experts and back.
#include <span>
#include <utility>
#include <vector>

#include "nn/experts.h"
#include "nn/matrix.h"
#include "nn/modules.h"
#include "nn/row_exchange.h"
#include "nn/shared_modules.h"

namespace dapple::nn {
namespace {

/// Returns the rows with a number behind each.
Tensor with_column(const Tensor& rows, std::span<const float> column) {
  const std::int64_t columns = rows.shape.back();
  Tensor wider = zeros({static_cast<std::int64_t>(column.size()), columns + 1});
  Matrix to = rows_of(wider, columns + 1);
  to.leftCols(columns) = rows_of(rows, columns);
  for (std::size_t row = 0; row < column.size(); ++row) {
    to(static_cast<Eigen::Index>(row), columns) = column[row];
  }
  return wider;
}

/// Takes the last number off each row.
std::vector<float> take_column(Tensor& rows) {
  const std::int64_t columns = rows.shape.back() - 1;
  const ConstMatrix from = rows_of(std::as_const(rows), columns + 1);
  std::vector<float> column;
  Tensor narrower = zeros({from.rows(), columns});
  for (Eigen::Index row = 0; row < from.rows(); ++row) column.push_back(from(row, columns));
  rows_of(narrower, columns) = from.leftCols(columns);
  rows = std::move(narrower);
  return column;
}

/// Every rank has other positions, and routes them by the whole router.
class ExpertParallel : public Module {
 public:
  ExpertParallel(const TransformerBlockOperation& operation, const LayerRank& rank)
      : hidden_(operation.hidden),
        experts_(*operation.experts),
        own_(experts_.count / rank.experts.ranks),
        exchange_(rank.experts, rank.expert_tensor, own_),
        feed_forwards_(hidden_, operation.feed_forward / rank.expert_tensor.ranks,
                       operation.activation),
        parameters_(expert_parameters(operation)) {
    parameters_[0].is_summed_over_ranks = rank.tensor.is_sequence_parallel;
    const GroupRank& sharing = rank.expert_tensor;
    if (sharing.ranks > 1) {
      divide_experts(operation, {.rank = sharing.rank, .ranks = sharing.ranks}, parameters_);
    }
    const ParameterPart::Range own{rank.experts.rank * own_, (rank.experts.rank + 1) * own_};
    for (ParameterSpec& parameter : std::span(parameters_).subspan(1)) {
      parameter.is_of_experts = true;
      if (parameter.part) {
        parameter.part->of_first = own;
      } else {
        parameter.part = {.whole = parameter.shape, .dimension = 0, .ranges = {own}};
      }
      parameter.shape[0] = own_;
    }
  }

  const std::vector<ParameterSpec>& parameters() const override { return parameters_; }

  Shape output_shape(const Shape& sample) const override {
    check_last_dimension(sample, hidden_);
    return sample;
  }

  /// The stash has the input, the scores, the rows that have arrived with their counts, the
  /// activation's output and what it keeps.
  Tensor forward(Parameters parameters, Tensor input, const Tensor&, Stash& stash) const override {
    Tensor scores = expert_scores(input, hidden_, parameters[0], experts_.count);
    const Routing routing = routing_of(scores, experts_.count, experts_.per_token);
    Arrivals arrivals(exchange_.sources(), own_);
    Tensor rows = exchange_.to_experts(routing, rows_of_entries(input, hidden_, routing), arrivals);
    Tensor activated;
    const Tensor output_rows =
        feed_forwards_.forward(ExpertFeedForwards::Weights::of(parameters), rows, arrivals.first(),
                               activated, stash.parts.emplace_back());
    Tensor entries = exchange_.to_positions(routing, output_rows, arrivals);
    scale_rows(ordered_shares(routing), entries);
    Tensor output = zeros(input.shape);
    add_to_positions(entries, routing, output);
    stash.tensors.push_back(std::move(input));
    stash.tensors.push_back(std::move(scores));
    stash.tensors.push_back(std::move(rows));
    stash.tensors.push_back(arrivals.counts());
    stash.tensors.push_back(std::move(activated));
    return output;
  }

  /// Each row's share goes with its gradient, and the share's gradient comes back with the row's.
  Tensor input_gradient(Parameters parameters, Tensor output_gradient,
                        Stash& stash) const override {
    const Routing routing = routing_of(stash.tensors[1], experts_.count, experts_.per_token);
    const Arrivals arrivals(exchange_.sources(), own_, stash.tensors[3]);
    const Tensor sent =
        with_column(rows_of_entries(output_gradient, hidden_, routing), ordered_shares(routing));
    Tensor slopes = exchange_.to_experts_again(routing, sent, arrivals);
    const std::vector<float> shares = take_column(slopes);
    ExpertFeedForwards::Gradients gradients =
        feed_forwards_.backward(ExpertFeedForwards::Weights::of(parameters), std::move(slopes),
                                shares, arrivals.first(), stash.tensors[4], stash.parts.front());
    stash.parts.clear();
    Tensor entries = exchange_.to_positions(
        routing, with_column(gradients.of_rows, gradients.of_shares), arrivals);
    const std::vector<float> of_shares = take_column(entries);
    Tensor of_scores = gradient_of_scores(routing, experts_.count, of_shares);
    Tensor gradient = zeros(output_gradient.shape);
    add_to_positions(entries, routing, gradient);
    add_gradient_of_rows(of_scores, parameters[0], gradient);
    stash.tensors.push_back(std::move(of_scores));
    stash.tensors.push_back(std::move(gradients.of_expanded));
    stash.tensors.push_back(std::move(gradients.of_output));
    return gradient;
  }

  void weight_gradient(Stash& stash, Gradients sums) const override {
    const Arrivals arrivals(exchange_.sources(), own_, stash.tensors[3]);
    add_gradient_of_router(stash.tensors[0], stash.tensors[5], sums[0]);
    feed_forwards_.add_weight_gradients(stash.tensors[2], stash.tensors[4], stash.tensors[6],
                                        stash.tensors[7], arrivals.first(), sums[1], sums[2]);
    stash.tensors.clear();
  }

 private:
  std::int64_t hidden_;
  ExpertsForm experts_;
  std::int64_t own_;  // experts
  RowExchange exchange_;
  ExpertFeedForwards feed_forwards_;
  std::vector<ParameterSpec> parameters_;
};

}  // namespace

std::unique_ptr<Module> make_expert_parallel(const TransformerBlockOperation& operation,
                                             const LayerRank& rank) {
  return std::make_unique<ExpertParallel>(operation, rank);
}

}  // namespace dapple::nn
