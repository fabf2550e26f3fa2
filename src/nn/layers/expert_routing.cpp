#include <algorithm>
#include <cmath>

#include "nn/experts.h"
#include "nn/matrix.h"

namespace dapple::nn {
namespace {

/// Returns the positions of the `many` largest scores, of equals the first, in that order.
std::vector<std::int64_t> largest_of(const float* scores, std::int64_t count, std::int64_t many) {
  std::vector<std::int64_t> largest;
  for (std::int64_t n = 0; n < many; ++n) {
    std::int64_t best = -1;
    for (std::int64_t i = 0; i < count; ++i) {
      if (std::find(largest.begin(), largest.end(), i) != largest.end()) continue;
      if (best < 0 || scores[i] > scores[best]) best = i;
    }
    largest.push_back(best);
  }
  return largest;
}

}  // namespace

Tensor expert_scores(const Tensor& x, std::int64_t hidden, std::span<const float> router,
                     std::int64_t experts) {
  Tensor scores = zeros({static_cast<std::int64_t>(x.values.size()) / hidden, experts});
  add_product(plain(rows_of(x, hidden)), plain(rows_of(router, experts)), rows_of(scores, experts));
  return scores;
}

void add_gradient_of_rows(const Tensor& of_scores, std::span<const float> router,
                          Tensor& gradient) {
  const std::int64_t experts = of_scores.shape.back();
  add_product(plain(rows_of(of_scores, experts)), transposed(rows_of(router, experts)),
              rows_of(gradient, gradient.shape.back()));
}

void add_gradient_of_router(const Tensor& x, const Tensor& of_scores, std::span<float> gradient) {
  const std::int64_t experts = of_scores.shape.back();
  add_product(transposed(rows_of(x, x.shape.back())), plain(rows_of(of_scores, experts)),
              rows_of(gradient, experts));
}

Routing routing_of(const Tensor& scores, std::int64_t experts, std::int64_t per_token) {
  const ConstMatrix rows = rows_of(scores, experts);
  Routing routing;
  routing.per_token = per_token;
  std::vector<std::vector<std::size_t>> entries(static_cast<std::size_t>(experts));
  for (Eigen::Index row = 0; row < rows.rows(); ++row) {
    const float* of_row = rows.row(row).data();
    float sum = 0;
    const std::vector<std::int64_t> chosen = largest_of(of_row, experts, per_token);
    for (const std::int64_t expert : chosen) {
      entries[static_cast<std::size_t>(expert)].push_back(routing.shares.size());
      routing.shares.push_back(std::exp(of_row[expert] - of_row[chosen.front()]));
      sum += routing.shares.back();
    }
    for (auto share = routing.shares.end() - per_token; share != routing.shares.end(); ++share) {
      *share /= sum;
    }
  }
  for (const std::vector<std::size_t>& of_expert : entries) {
    routing.first.push_back(static_cast<std::int64_t>(routing.order.size()));
    routing.order.insert(routing.order.end(), of_expert.begin(), of_expert.end());
  }
  routing.first.push_back(static_cast<std::int64_t>(routing.order.size()));
  return routing;
}

Tensor rows_of_entries(const Tensor& positions, std::int64_t hidden, const Routing& routing) {
  Tensor entries = zeros({routing.entries(), hidden});
  const ConstMatrix from = rows_of(positions, hidden);
  Matrix to = rows_of(entries, hidden);
  for (std::size_t i = 0; i < routing.order.size(); ++i) {
    to.row(static_cast<Eigen::Index>(i)) = from.row(routing.position_of(routing.order[i]));
  }
  return entries;
}

void add_to_positions(const Tensor& entries, const Routing& routing, Tensor& positions) {
  const std::int64_t hidden = entries.shape.back();
  const ConstMatrix from = rows_of(entries, hidden);
  Matrix to = rows_of(positions, hidden);
  for (std::size_t i = 0; i < routing.order.size(); ++i) {
    to.row(routing.position_of(routing.order[i])) += from.row(static_cast<Eigen::Index>(i));
  }
}

std::vector<float> ordered_shares(const Routing& routing) {
  std::vector<float> shares;
  for (const std::size_t entry : routing.order) shares.push_back(routing.shares[entry]);
  return shares;
}

void scale_rows(std::span<const float> factors, Tensor& rows) {
  Matrix all = rows_of(rows, rows.shape.back());
  for (std::size_t i = 0; i < factors.size(); ++i) {
    all.row(static_cast<Eigen::Index>(i)) *= factors[i];
  }
}

Tensor gradient_of_scores(const Routing& routing, std::int64_t experts,
                          std::span<const float> of_shares) {
  std::vector<float> by_entry(routing.shares.size());
  std::vector<std::int64_t> expert_of(routing.shares.size());
  for (std::int64_t expert = 0; expert < experts; ++expert) {
    const auto at = static_cast<std::size_t>(expert);
    for (std::int64_t row = routing.first[at]; row < routing.first[at + 1]; ++row) {
      const std::size_t entry = routing.order[static_cast<std::size_t>(row)];
      by_entry[entry] = of_shares[static_cast<std::size_t>(row)];
      expert_of[entry] = expert;
    }
  }
  const auto each = static_cast<std::size_t>(routing.per_token);
  Tensor gradient = zeros({static_cast<std::int64_t>(by_entry.size() / each), experts});
  Matrix rows = rows_of(gradient, experts);
  for (std::size_t begin = 0; begin < by_entry.size(); begin += each) {
    float mean = 0;
    for (std::size_t e = begin; e < begin + each; ++e) mean += routing.shares[e] * by_entry[e];
    for (std::size_t e = begin; e < begin + each; ++e) {
      rows(routing.position_of(begin), expert_of[e]) = routing.shares[e] * (by_entry[e] - mean);
    }
  }
  return gradient;
}

}  // namespace dapple::nn
