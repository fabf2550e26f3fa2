#include "exec/measure/lone_rank.h"

#include <algorithm>
#include <utility>

#include "dapple/core/error.h"
#include "exec/measure/cpu_engine.h"

namespace dapple::exec {
namespace {

/// Counts collectives by kind and size.
class CountingRank : public LoneRank {
 public:
  CountingRank(CollectiveMembers over, std::vector<Collective>& collectives)
      : over_(over), collectives_(collectives) {}

  void all_reduce(std::span<float> values) override {
    add(CollectiveKind::AllReduce, values.size());
    LoneRank::all_reduce(values);
  }
  void all_gather(std::span<const float> own, std::span<float> all) override {
    add(CollectiveKind::AllGather, all.size());
    LoneRank::all_gather(own, all);
  }
  void reduce_scatter(std::span<float> all, std::span<float> own) override {
    add(CollectiveKind::ReduceScatter, all.size());
    LoneRank::reduce_scatter(all, own);
  }
  /// What the rank holds, which is for other ranks and for itself.
  void all_to_all(const std::vector<std::vector<float>>& to,
                  std::vector<std::vector<float>>& from) override {
    std::size_t values = 0;
    for (const std::vector<float>& one : to) values += one.size();
    add(CollectiveKind::AllToAll, values);
    LoneRank::all_to_all(to, from);
  }

 private:
  void add(CollectiveKind kind, std::size_t values) {
    const Bytes size{static_cast<std::int64_t>(values * sizeof(float))};
    const auto found =
        std::find_if(collectives_.begin(), collectives_.end(), [&](const Collective& some) {
          return some.kind == kind && some.over == over_ && some.size_per_sample == size;
        });
    if (found != collectives_.end()) {
      ++found->count;
    } else {
      collectives_.push_back({.kind = kind, .over = over_, .size_per_sample = size});
    }
  }

  CollectiveMembers over_;
  std::vector<Collective>& collectives_;
};

}  // namespace

void LoneRank::all_reduce(std::span<float> /*values*/) {}

void LoneRank::all_gather(std::span<const float> own, std::span<float> all) {
  for (std::size_t begin = 0; begin < all.size(); begin += own.size()) {
    std::ranges::copy(own, all.begin() + static_cast<std::ptrdiff_t>(begin));
  }
}

void LoneRank::reduce_scatter(std::span<float> all, std::span<float> own) {
  std::ranges::copy(all.first(own.size()), own.begin());
}

void LoneRank::all_to_all(const std::vector<std::vector<float>>& to,
                          std::vector<std::vector<float>>& from) {
  for (std::vector<float>& one : from) {
    if (one.empty()) one = to.front();
  }
}

LayerCollectives collectives_of(const std::vector<nn::ModelLayer>& whole, std::size_t number,
                                nn::LayerRank rank) {
  std::vector<Collective> counted;
  CountingRank in_tensor(CollectiveMembers::Tensor, counted);
  CountingRank in_context(CollectiveMembers::Context, counted);
  rank.tensor.group = &in_tensor;
  rank.context.group = &in_context;
  CountingRank between_experts(CollectiveMembers::Experts, counted);
  rank.experts.group = &between_experts;
  // As many consecutive ranks.
  check(rank.expert_tensor.ranks == 1 || rank.expert_tensor.ranks == rank.tensor.ranks,
        "ranks share experts that are no tensor-parallel group");
  rank.expert_tensor.group = &in_tensor;
  const std::vector<nn::ModelLayer> shared = nn::share_model(whole, rank, "");
  CpuEngine engine;
  TimedLayer<CpuEngine> layer(engine, shared, number, {1});
  LayerCollectives collectives;
  layer.forward(0);
  collectives.forward = std::exchange(counted, {});
  layer.backward(0);
  collectives.backward = std::exchange(counted, {});
  return collectives;
}

}  // namespace dapple::exec
