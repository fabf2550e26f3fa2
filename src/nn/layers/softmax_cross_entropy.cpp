#include <cmath>
#include <vector>

#include "dapple/core/error.h"
#include "nn/mean_loss.h"

namespace dapple::nn {
namespace {

/// The gradient is (softmax - one-hot target) / positions.
class SoftmaxCrossEntropy : public MeanLoss {
 public:
  explicit SoftmaxCrossEntropy(const SoftmaxCrossEntropyOperation& operation)
      : MeanLoss(operation.classes) {}

 private:
  std::vector<float> to_gradients(Matrix& rows, const Tensor& targets,
                                  float weight) const override {
    std::vector<float> losses(targets.values.size());
    for (std::size_t row = 0; row < losses.size(); ++row) {
      const auto target = static_cast<std::int64_t>(targets.values[row]);
      losses[row] = to_gradient(rows.row(static_cast<Eigen::Index>(row)), target, weight);
    }
    return losses;
  }

  float to_gradient(Matrix::RowXpr scores, std::int64_t target, float weight) const {
    check(target >= 0 && target < width(), "a target is no class");
    const float score = scores[target];
    const SoftmaxSum sum = kernels().elementwise->softmax(scores.data(), width(), 1, weight);
    scores[target] -= weight;
    return std::log(sum.sum) - (score - sum.largest);
  }
};

}  // namespace

std::unique_ptr<Module> make_softmax_cross_entropy(const SoftmaxCrossEntropyOperation& operation) {
  return std::make_unique<SoftmaxCrossEntropy>(operation);
}

}  // namespace dapple::nn
