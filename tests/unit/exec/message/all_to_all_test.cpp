#include "dapple/exec/message/all_to_all.h"

#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "../../../support/dice.h"
#include "../../../support/job.h"

namespace dapple::exec {
namespace {

using namespace small;

/// Bytes that say from whom they are, to whom, and where in the message.
HostBytes message_of(std::size_t from, std::size_t to, std::size_t size) {
  HostBytes bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(31 * from + 7 * to + i);
  return bytes;
}

/// One member's messages on the host.
class HostExchange : public ExchangeBuffer {
 public:
  using Sizes = std::vector<std::vector<std::size_t>>;  // by sender and receiver

  HostExchange(const Sizes& sizes, std::size_t own)
      : sizes_(sizes), own_(own), arrived(sizes.size()) {}

  Memory memory() const override { return Memory::Host; }
  std::size_t sent(std::size_t member) const override { return sizes_[own_][member]; }
  std::size_t received(std::size_t member) const override { return sizes_[member][own_]; }
  Payload give_out(std::size_t member) override {
    return message_of(own_, member, sizes_[own_][member]);
  }
  void take_in(std::size_t member, Payload payload) override {
    arrived[member].assign(payload.host().begin(), payload.host().end());
  }

 private:
  const Sizes& sizes_;
  const std::size_t own_;

 public:
  std::vector<HostBytes> arrived;
};

TEST_CASE("each member gets what each other one sends, of any size or nothing") {
  Dice dice(3110);
  for (int round = 0; round < 40; ++round) {
    const auto members = static_cast<std::size_t>(dice.roll(1, 5));
    HostExchange::Sizes sizes(members, std::vector<std::size_t>(members));
    std::size_t others = 0;
    for (std::size_t from = 0; from < members; ++from) {
      for (std::size_t to = 0; to < members; ++to) {
        sizes[from][to] = dice.chance(30) ? 0 : static_cast<std::size_t>(dice.roll(1, 50));
        if (from != to) others += sizes[from][to];
      }
    }
    const Topology topology(full_mesh(members, {bytes_per_ns(1), {}}));
    ThreadNetwork network(topology, all_devices(topology), {});
    std::vector<std::vector<HostBytes>> arrived(members);
    side_by_side(members, [&](std::size_t own) {
      const auto end = network.end_of(index_at<DeviceIndex>(own));
      HostExchange buffer(sizes, own);
      all_to_all(all_devices(topology),
                 {.iteration = 0,
                  .action = {ActionKind::Forward, 0, {}},
                  .step = 0,
                  .from = index_at<DeviceIndex>(own),
                  .to = index_at<DeviceIndex>(own)},
                 buffer, *end);
      arrived[own] = std::move(buffer.arrived);
    });
    CAPTURE(round, members);
    for (std::size_t to = 0; to < members; ++to) {
      for (std::size_t from = 0; from < members; ++from) {
        const bool is_own = from == to;
        CHECK(arrived[to][from] == message_of(from, to, is_own ? 0 : sizes[from][to]));
      }
    }
    CHECK(network.sent().count == static_cast<std::int64_t>(others));
  }
}

}  // namespace
}  // namespace dapple::exec
