#include "planner/request/micro_batches.h"

#include <fmt/format.h>

#include <algorithm>

#include "dapple/core/error.h"
#include "dapple/plan/limits.h"
#include "dapple/plan/record_text.h"
#include "dapple/planner/request/planner_options.h"

namespace dapple::planner {
namespace {

std::vector<std::int64_t> divisors(std::int64_t number) {
  std::vector<std::int64_t> found;
  for (std::int64_t divisor = 1; divisor * divisor <= number; ++divisor) {
    if (number % divisor != 0) continue;
    found.push_back(divisor);
    if (divisor * divisor != number) found.push_back(number / divisor);
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

MicroBatchSizes micro_batch_sizes(const PlannerOptions& options) {
  MicroBatchSizes result;
  const std::int64_t global = options.global_batch_size;
  if (options.micro_batch_size) {
    const std::int64_t size = *options.micro_batch_size;
    if (size < 1 || global % size != 0) {
      throw Error(
          ErrorKind::BadInput, "",
          {{"/request/micro_batch_size",
            fmt::format("expected a divisor of the global batch of {}, got {}", global, size)}});
    }
    result.sizes = {size};
    result.cut.push_back(cut_of_micro_batch_size(size));
  } else {
    result.sizes = divisors(global);
  }
  if (options.pins.equal_shares && options.pins.replicas) {
    const std::int64_t replicas = *options.pins.replicas * options.pins.replicas_in_group;
    std::erase_if(result.sizes, [replicas](std::int64_t size) { return size % replicas != 0; });
    if (result.sizes.empty()) {
      throw Error(ErrorKind::BadInput, "",
                  {{"/request/micro_batch_size",
                    fmt::format("expected a size that {} replicas share evenly, got none in a "
                                "global batch of {}",
                                replicas, global)}});
    }
  }
  const std::int64_t least = options.pins.least_micro_batches;
  std::erase_if(result.sizes, [&](std::int64_t size) { return global / size < least; });
  if (result.sizes.empty()) {
    throw Error(ErrorKind::BadInput, "",
                {{"/request/micro_batch_size",
                  fmt::format("expected a size that makes at least {} micro-batches of a global "
                              "batch of {}, got none",
                              least, global)}});
  }
  const auto small = std::find_if(result.sizes.begin(), result.sizes.end(), [&](std::int64_t size) {
    return global / size <= kMostMicroBatches;
  });
  if (small == result.sizes.end()) {
    throw Error(ErrorKind::BadInput, "",
                {{"/request/micro_batch_size",
                  fmt::format("expected at most {} micro-batches, got {}", kMostMicroBatches,
                              global / result.sizes.back())}});
  }
  if (small != result.sizes.begin()) {
    result.cut.push_back(cut_of_small_micro_batches(*small, kMostMicroBatches));
    result.sizes.erase(result.sizes.begin(), small);
  }
  return result;
}

}  // namespace dapple::planner
