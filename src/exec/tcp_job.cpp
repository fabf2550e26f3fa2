#include "dapple/exec/tcp_job.h"

#include <utility>

#include "dapple/core/error.h"
#include "tcp_loop.h"

namespace dapple {

std::unique_ptr<RankJob> start_tcp_job(const TcpPlace& place, std::chrono::nanoseconds timeout) {
  check(place.rank >= 0 && place.rank < place.size, "a rank that its job does not have");
  return std::make_unique<RankJob>([&](WireHandler handler) {
    return std::make_unique<TcpLoop>(std::move(handler), place, timeout);
  });
}

}  // namespace dapple
