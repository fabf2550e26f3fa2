#include "dapple/exec/message/fingerprint.h"

#include <xxhash.h>

#include "dapple/core/error.h"

namespace dapple::exec {

std::uint64_t fingerprint(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

struct Fingerprint::State {
  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> sums{XXH3_createState(),
                                                                &XXH3_freeState};
};

Fingerprint::Fingerprint() : state_(std::make_unique<State>()) {
  check(state_->sums != nullptr && XXH3_64bits_reset(state_->sums.get()) == XXH_OK,
        "XXH3 cannot begin");
}

Fingerprint::~Fingerprint() = default;

void Fingerprint::add(std::span<const std::byte> bytes) {
  check(XXH3_64bits_update(state_->sums.get(), bytes.data(), bytes.size()) == XXH_OK,
        "XXH3 takes no more bytes");
}

std::uint64_t Fingerprint::value() const {
  return XXH3_64bits_digest(state_->sums.get());
}

}  // namespace dapple::exec
