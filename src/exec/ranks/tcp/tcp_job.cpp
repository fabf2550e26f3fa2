#include "dapple/exec/ranks/tcp/tcp_job.h"

#include <boost/asio/ip/address.hpp>
#include <utility>

#include "dapple/core/error.h"
#include "exec/ranks/tcp/tcp_loop.h"

namespace dapple::exec {

bool is_loopback(const std::string& address) {
  boost::system::error_code is_name;
  const auto literal = boost::asio::ip::make_address(address, is_name);
  return address == "localhost" || (!is_name && literal.is_loopback());
}

std::unique_ptr<RankJob> start_tcp_job(const TcpPlace& place, std::chrono::nanoseconds timeout) {
  check(place.rank >= 0 && place.rank < place.size, "a rank that its job does not have");
  return std::make_unique<RankJob>([&](WireHandler handler) {
    return std::make_unique<TcpLoop>(std::move(handler), place, timeout);
  });
}

}  // namespace dapple::exec
