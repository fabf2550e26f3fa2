// Random models, clusters and plans, seeded, for properties that must hold for any of them.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "dice.h"
#include "pipeline.h"
#include "scaled.h"

namespace dapple::small {

template <class T>
void shuffle(Dice& dice, std::vector<T>& values) {
  for (std::size_t i = values.size(); i > 1; --i) {
    std::swap(values[i - 1],
              values[static_cast<std::size_t>(dice.roll(0, static_cast<std::int64_t>(i) - 1))]);
  }
}

struct RandomChoices {
  bool slowdown = false;  // overlap may slow computation down
  bool deal = false;      // stages may deal micro-batches
  bool crowded = false;   // there may be PCIe roots, racks and pods
  bool measured = false;  // there are measured all-reduces
  bool mixed = false;     // servers may have slower devices
  bool sharded = false;   // replicas may shard the optimizer's state
  bool direct = false;    // tensors that skip stages are many, and sent directly
  bool cut = false;       // tensors may cross boundaries in shares, and be gathered
  std::int64_t most_micro_batches = 7;
};

/// Ranges of figures: small ones make ties, large ones make fractions.
struct Ranges {
  std::int64_t time = 12;
  std::int64_t bytes = 20;
  std::int64_t least_bandwidth = kNanosecondsPerSecond;
  std::int64_t most_bandwidth = 3 * kNanosecondsPerSecond;
  std::int64_t latency = 6;
};
Ranges random_ranges(Dice& dice);

Link random_link(Dice& dice, const Ranges& ranges);

ModelProfile random_model(Dice& dice, const Ranges& ranges);

TopologyDescription random_cluster(Dice& dice, const Ranges& ranges);

std::vector<std::int64_t> random_depths(Dice& dice, std::size_t stages, std::int64_t micro_batches);

/// Cuts the layers at random and gives each stage one to four devices, in any order.
std::vector<StageShape> random_stages(Dice& dice, std::int32_t layers, std::int32_t devices,
                                      const PlanShape& shape, bool deal);

Pipeline random_pipeline(Dice& dice, const RandomChoices& choices = {});

/// Whether the topology's measurements are what it takes: rings have two rounds or more.
bool is_measured(const AllReduceCost& cost);

/// The whole plan in a line or two, to repeat a failure by hand.
std::string text_of(const Pipeline& pipeline);

}  // namespace dapple::small
