#include <fmt/format.h>

#include <utility>
#include <vector>

#include "nn/modules.h"
#include "nn/shared_modules.h"

namespace dapple::nn {
namespace {

/// A rotation of the plane, and as a complex number of absolute value one.
struct Turn {
  double cosine = 1;
  double sine = 0;

  Turn operator*(const Turn& other) const {
    return {cosine * other.cosine - sine * other.sine, cosine * other.sine + sine * other.cosine};
  }
};

// The angles are computed with additions, multiplications and divisions only, in one order. These
// are exactly rounded, so the angles are the same on every machine, which those of a library's pow,
// sin and cos need not be.

/// Returns the n-th root of `base` to the last bits, by bisection. Requires: base >= 1.
double root_of(double base, std::int64_t n) {
  double low = 1;
  double high = base;
  for (double middle = (low + high) / 2; middle > low && middle < high; middle = (low + high) / 2) {
    double power = 1;
    for (std::int64_t i = 0; i < n && power <= base; ++i) power *= middle;
    (power > base ? high : low) = middle;
  }
  return low;
}

/// Returns the rotation by an angle from 0 to 1, by the series of cosine and sine, of which the
/// first 20 terms are accurate to the last bits.
Turn turn_by(double angle) {
  Turn turn{0, 0};
  double term = 1;
  for (int power = 0; power < 20; ++power) {
    const bool is_even = power % 2 == 0;
    const double sign = power % 4 < 2 ? 1 : -1;
    (is_even ? turn.cosine : turn.sine) += sign * term;
    term = term * angle / (power + 1);
  }
  return turn;
}

/// Returns the rotations of the pairs at position 1; those at position p are their p-th powers.
std::vector<Turn> first_turns(double base, std::int64_t pairs) {
  const double root = root_of(base, pairs);
  std::vector<Turn> turns;
  double angle = 1;
  for (std::int64_t pair = 0; pair < pairs; ++pair) {
    turns.push_back(turn_by(angle));
    angle /= root;
  }
  return turns;
}

/// Turns pair i of each head of queries and keys, its numbers i and i + width / 2, by position *
/// base^(-2 i / width). Source: Su et al. 2021, "RoFormer", with the pairs of Llama's published
/// weights in Hugging Face's form.
class Rotary : public WithoutParameters {
 public:
  Rotary(const AttentionOperation& operation, const GroupRank& rank)
      : rank_(rank),
        turned_heads_(operation.heads + kv_heads_of(operation)),
        columns_((operation.heads + 2 * kv_heads_of(operation)) * head_width_of(operation)),
        turns_(first_turns(*operation.form.rotary_base, head_width_of(operation) / 2)) {}

  Shape output_shape(const Shape& sample) const override {
    if (sample.size() != 2 || sample[1] != columns_) {
      refuse_shape(fmt::format("an input of [sequence, {}]", columns_), sample);
    }
    return sample;
  }

  Tensor forward(Parameters, Tensor input, const Tensor&, Stash&) const override {
    turn(input, 1);
    return input;
  }

  /// Turns the gradient back: the inverse of a rotation is its transpose.
  Tensor input_gradient(Parameters, Tensor output_gradient, Stash&) const override {
    turn(output_gradient, -1);
    return output_gradient;
  }

 private:
  void turn(Tensor& tensor, float direction) const {
    const std::int64_t sequence = tensor.shape[1];
    const std::vector<std::int64_t> rows = rows_of_positions(sequence);
    std::vector<Turn> turns(turns_.size());  // of position 0
    std::vector<float> cosines(turns_.size());
    std::vector<float> sines(turns_.size());
    for (const std::int64_t row : rows) {
      for (std::size_t pair = 0; pair < turns.size(); ++pair) {
        cosines[pair] = static_cast<float>(turns[pair].cosine);
        sines[pair] = direction * static_cast<float>(turns[pair].sine);
        turns[pair] = turns[pair] * turns_[pair];
      }
      for (std::int64_t sample = 0; row >= 0 && sample < tensor.samples(); ++sample) {
        float* head = tensor.values.data() + (sample * sequence + row) * columns_;
        for (std::int64_t i = 0; i < turned_heads_; ++i, head += 2 * turns_.size()) {
          turn_head(cosines, sines, head);
        }
      }
    }
  }

  /// Returns the row of each position of whole sequences among the rank's; -1 if it has it not.
  std::vector<std::int64_t> rows_of_positions(std::int64_t own) const {
    std::vector<std::int64_t> rows(static_cast<std::size_t>(own * rank_.ranks), -1);
    std::int64_t row = 0;
    for (const std::int64_t position : positions_of(rank_, own * rank_.ranks)) {
      rows[static_cast<std::size_t>(position)] = row++;
    }
    return rows;
  }

  static void turn_head(const std::vector<float>& cosines, const std::vector<float>& sines,
                        float* head) {
    float* other = head + cosines.size();
    for (std::size_t i = 0; i < cosines.size(); ++i) {
      const float before = head[i];
      head[i] = before * cosines[i] - other[i] * sines[i];
      other[i] = before * sines[i] + other[i] * cosines[i];
    }
  }

  GroupRank rank_;
  std::int64_t turned_heads_;
  std::int64_t columns_;
  std::vector<Turn> turns_;
};

}  // namespace

std::unique_ptr<Module> make_rotary(const AttentionOperation& operation, const GroupRank& rank) {
  return std::make_unique<Rotary>(operation, rank);
}

}  // namespace dapple::nn
