// How a group of devices shares the work of every layer, and the replicas of a stage its state.
//
// Source: Megatron-LM (Shoeybi et al. 2019) section 3, tensor parallelism; Korthikanti et al. 2022
// section 4.2.2, sequence parallelism; ZeRO (Rajbhandari et al. 2020) section 5.1, sharded
// optimizer state.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

namespace dapple {

/// The degrees by which the devices of a group divide a layer among themselves.
struct Parallelism {
  /// The tensor-parallel degree: so many devices hold a part each of every layer's parameters.
  std::int64_t tensor = 1;
  /// Whether what tensor parallelism leaves whole on every device is divided along the sequence.
  bool sequence = false;
  /// Whether each replica of a stage holds only its shard of the optimizer's state, and updates
  /// only its shard of the parameters (ZeRO stage 1).
  bool shards_optimizer = false;

  friend constexpr auto operator<=>(const Parallelism&, const Parallelism&) = default;

  /// The number of devices of a group.
  constexpr std::int64_t group_size() const { return tensor; }
  /// Whether every device is a group of its own and no state is sharded.
  constexpr bool is_none() const { return group_size() == 1 && !shards_optimizer; }
};

/// Returns "tensor 8", "tensor 8 with sequence parallelism", or either followed by ", sharded
/// optimizer state".
std::string to_text(const Parallelism& parallelism);

/// Returns "tensor 8", "tensor 8, sequence", or either followed by ", sharded", for tables.
std::string short_text(const Parallelism& parallelism);

}  // namespace dapple
