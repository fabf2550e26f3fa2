#include "hash.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>
#include <memory>

#include "dapple/core/error.h"
#include "dapple/io/documents.h"

namespace dapple {
namespace io {

struct Sha256::State {
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context{EVP_MD_CTX_new(),
                                                                  &EVP_MD_CTX_free};
};

Sha256::Sha256() : state_(std::make_unique<State>()) {
  check(state_->context != nullptr &&
            EVP_DigestInit_ex(state_->context.get(), EVP_sha256(), nullptr) == 1,
        "SHA-256 is not available");
}

Sha256::~Sha256() = default;

void Sha256::add(std::string_view text) {
  check(EVP_DigestUpdate(state_->context.get(), text.data(), text.size()) == 1,
        "SHA-256 takes no more text");
}

std::string Sha256::finish() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  check(EVP_DigestFinal_ex(state_->context.get(), digest.data(), &size) == 1,
        "SHA-256 cannot be finished");
  std::string text;
  for (unsigned int i = 0; i < size; ++i) text += fmt::format("{:02x}", digest[i]);
  return text;
}

std::string sha256(std::string_view text) {
  Sha256 hash;
  hash.add(text);
  return hash.finish();
}

}  // namespace io

std::string hash_of(const ModelProfile& profile) {
  return io::sha256(write_profile(profile));
}

std::string hash_of(const TopologyDescription& topology) {
  return io::sha256(write_topology(topology));
}

std::string hash_of(const PlanDocument& document) {
  return io::sha256(write_plan(document));
}

std::string schedule_digest(const Plan& plan, const Topology& topology) {
  Schedule schedule = generate(plan);
  io::Sha256 hash;
  // Lane by lane, since the text of a whole schedule repeats every lane's list for each device.
  Schedule part{.num_micro_batches = schedule.num_micro_batches, .lanes = {}};
  for (Lane& lane : schedule.lanes) {
    part.lanes.clear();
    part.lanes.push_back(std::move(lane));
    hash.add(to_text(part, topology));
  }
  return hash.finish();
}

}  // namespace dapple
