// What the loss is multiplied by so that its gradients are not too small for half precision.
//
// Source: Micikevicius et al. 2018, mixed precision training, section 3.2; the figures are those of
// PyTorch's GradScaler. Every device of a job is told the same, so all have the same factor.
#pragma once

#include <algorithm>
#include <cstdint>

namespace dapple::exec {

class LossScale {
 public:
  /// One, and stays so, unless it is dynamic.
  explicit LossScale(bool is_dynamic) : is_dynamic_(is_dynamic), factor_(is_dynamic ? kFirst : 1) {}

  bool is_dynamic() const { return is_dynamic_; }
  float factor() const { return factor_; }

  /// To be called before an iteration: what it has found of the one before is heeded from now on.
  void begin() { factor_ = next_; }

  /// Told of an iteration's gradients, whether all of them are numbers. False where they are to be
  /// thrown away.
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
  float next_ = factor_;       // of the next iteration
  std::int64_t accepted_ = 0;  // since it has changed
};

}  // namespace dapple::exec
