#include "nn/experts.h"

#include <span>
#include <utility>
#include <vector>

#include "nn/modules.h"
#include "nn/shared_modules.h"

namespace dapple::nn {
namespace {

/// All experts, of which a tensor-parallel rank computes a part each. With sequence parallelism the
/// sequences are gathered first, and the outputs scattered.
class Experts : public Module {
 public:
  Experts(const TransformerBlockOperation& operation, const LayerRank& rank)
      : rank_(rank.tensor),
        margins_(rank.margins),
        hidden_(operation.hidden),
        experts_(*operation.experts),
        feed_forwards_(hidden_, operation.feed_forward / rank_.ranks, operation.activation),
        parameters_(expert_parameters(operation)) {
    if (rank_.ranks > 1) divide_experts(operation, rank_, parameters_);
  }

  const std::vector<ParameterSpec>& parameters() const override { return parameters_; }

  Shape output_shape(const Shape& sample) const override {
    check_last_dimension(sample, hidden_);
    return sample;
  }

  /// The stash has the rank's input, the scores, the activation's output and what it keeps.
  Tensor forward(Parameters parameters, Tensor input, const Tensor&, Stash& stash) const override {
    const Tensor gathered = all_positions(input);
    const Tensor& x = divides_sequences() ? gathered : input;
    Tensor scores = expert_scores(x, hidden_, parameters[0], experts_.count);
    if (!margins_.empty()) margins_.front().add(scores, experts_.per_token);
    const Routing routing = routing_of(scores, experts_.count, experts_.per_token);
    Tensor activated;
    Tensor entries = feed_forwards_.forward(ExpertFeedForwards::Weights::of(parameters),
                                            rows_of_entries(x, hidden_, routing), routing.first,
                                            activated, stash.parts.emplace_back());
    scale_rows(ordered_shares(routing), entries);
    Tensor output = zeros(x.shape);
    add_to_positions(entries, routing, output);
    stash.tensors.push_back(std::move(input));
    stash.tensors.push_back(std::move(scores));
    stash.tensors.push_back(std::move(activated));
    return sum_of_ranks(std::move(output));
  }

  Tensor input_gradient(Parameters parameters, Tensor output_gradient,
                        Stash& stash) const override {
    const Tensor slope =
        divides_sequences() ? all_positions(output_gradient) : std::move(output_gradient);
    const Routing routing = routing_of(stash.tensors[1], experts_.count, experts_.per_token);
    ExpertFeedForwards::Gradients gradients = feed_forwards_.backward(
        ExpertFeedForwards::Weights::of(parameters), rows_of_entries(slope, hidden_, routing),
        ordered_shares(routing), routing.first, stash.tensors[2], stash.parts.front());
    stash.parts.clear();
    if (rank_.ranks > 1) rank_.group->all_reduce(gradients.of_shares);
    Tensor of_scores = gradient_of_scores(routing, experts_.count, gradients.of_shares);
    Tensor gradient = zeros(slope.shape);
    add_to_positions(gradients.of_rows, routing, gradient);
    if (rank_.rank == 0) {  // of all ranks, which have the same
      add_gradient_of_rows(of_scores, parameters[0], gradient);
    }
    stash.tensors.push_back(std::move(of_scores));
    stash.tensors.push_back(std::move(gradients.of_expanded));
    stash.tensors.push_back(std::move(gradients.of_output));
    return sum_of_ranks(std::move(gradient));
  }

  void weight_gradient(Stash& stash, Gradients sums) const override {
    const Tensor gathered = all_positions(stash.tensors[0]);
    const Tensor& x = divides_sequences() ? gathered : stash.tensors[0];
    const Routing routing = routing_of(stash.tensors[1], experts_.count, experts_.per_token);
    add_gradient_of_router(x, stash.tensors[3], sums[0]);
    feed_forwards_.add_weight_gradients(rows_of_entries(x, hidden_, routing), stash.tensors[2],
                                        stash.tensors[4], stash.tensors[5], routing.first, sums[1],
                                        sums[2]);
    stash.tensors.clear();
  }

 private:
  bool divides_sequences() const { return rank_.ranks > 1 && rank_.is_sequence_parallel; }
  /// Returns whole sequences of a rank's part of them; nothing where it has them.
  Tensor all_positions(const Tensor& own) const {
    return divides_sequences() ? gather_sequences(own, rank_) : Tensor{};
  }
  Tensor sum_of_ranks(Tensor partial) const {
    if (rank_.ranks == 1) return partial;
    if (divides_sequences()) return scatter_sequences(std::move(partial), rank_);
    rank_.group->all_reduce(partial.values);
    return partial;
  }

  TensorRank rank_;
  std::span<RoutingMargins> margins_;
  std::int64_t hidden_;
  ExpertsForm experts_;
  ExpertFeedForwards feed_forwards_;
  std::vector<ParameterSpec> parameters_;
};

}  // namespace

std::unique_ptr<Module> make_experts(const TransformerBlockOperation& operation,
                                     const LayerRank& rank) {
  return std::make_unique<Experts>(operation, rank);
}

}  // namespace dapple::nn
