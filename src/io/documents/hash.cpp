#include "io/documents/hash.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "dapple/core/error.h"
#include "dapple/core/parallel.h"
#include "dapple/io/documents/documents.h"

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
  // Lane by lane, since the text of a whole schedule repeats every lane's list for each device; of
  // a long one, the texts of a few lanes are made side by side.
  constexpr std::size_t kFewPasses = 10'000;
  constexpr std::size_t kLanesSideBySide = 2;
  const bool is_long =
      plan.stages.size() * static_cast<std::size_t>(plan.num_micro_batches) > kFewPasses;
  std::array<std::string, kLanesSideBySide> texts;
  for (std::size_t first = 0; first < schedule.lanes.size(); first += texts.size()) {
    const std::size_t count = std::min(texts.size(), schedule.lanes.size() - first);
    parallel_for(count, is_long ? static_cast<int>(count) : 1, [&](std::size_t i) {
      Schedule part{.num_micro_batches = schedule.num_micro_batches, .lanes = {}};
      part.lanes.push_back(std::move(schedule.lanes[first + i]));
      texts[i] = to_text(part, topology);
    });
    for (std::size_t i = 0; i < count; ++i) hash.add(texts[i]);
  }
  return hash.finish();
}

}  // namespace dapple
