// Dynamic loss scaling: the factor by which the loss is multiplied so that its gradients do not
// underflow in half precision.
//
// Source: Micikevicius et al. 2018, mixed precision training, section 3.2; the constants are those
// of PyTorch's GradScaler, but the factor never falls below one. Every device of a job is told the
// same, so all have the same factor.
#pragma once

#include <algorithm>
#include <cstdint>

namespace dapple::exec {

class LossScale {
 public:
  /// The factor is one and constant unless the scale is dynamic.
  explicit LossScale(bool is_dynamic) : is_dynamic_(is_dynamic), factor_(is_dynamic ? kFirst : 1) {}

  bool is_dynamic() const { return is_dynamic_; }
  float factor() const { return factor_; }

  /// Applies the factor that the iteration before led to. Must be called before each iteration.
  void begin() { factor_ = next_; }

  /// Updates the next factor by whether all gradients of an iteration are finite. Returns false if
  /// they must be discarded.
  bool accepts(bool are_finite) {
    if (!is_dynamic_) return true;
    accepted_ = are_finite ? accepted_ + 1 : 0;
    if (!are_finite) next_ = std::max(kLeast, factor_ / 2);
    if (accepted_ == kUntilGrowth) {
      next_ = factor_ * 2;
      accepted_ = 0;
    }
    return are_finite;
  }

 private:
  static constexpr float kFirst = 65536;
  static constexpr float kLeast = 1;
  static constexpr std::int64_t kUntilGrowth = 2'000;

  bool is_dynamic_;
  float factor_;
  float next_ = factor_;       // for the next iteration
  std::int64_t accepted_ = 0;  // iterations since the factor has changed
};

}  // namespace dapple::exec
