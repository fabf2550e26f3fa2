#include "dapple/profile/parallelism.h"

namespace dapple {

std::string to_text(const Parallelism& parallelism) {
  return "tensor " + std::to_string(parallelism.tensor) +
         (parallelism.sequence ? " with sequence parallelism" : "") +
         (parallelism.shards_optimizer ? ", sharded optimizer state" : "");
}

std::string short_text(const Parallelism& parallelism) {
  return "tensor " + std::to_string(parallelism.tensor) +
         (parallelism.sequence ? ", sequence" : "") +
         (parallelism.shards_optimizer ? ", sharded" : "");
}

}  // namespace dapple
