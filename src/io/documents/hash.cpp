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
#include "dapple/io/runtime/runtime_document.h"
#include "dapple/plan/runtime.h"

namespace dapple::io {

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

std::string hash_of(const ModelProfile& profile) {
  return sha256(write_profile(profile));
}

std::string hash_of(const TopologyDescription& topology) {
  return sha256(write_topology(topology));
}

std::string hash_of(const PlanDocument& document) {
  return sha256(write_plan(document));
}

std::string hash_of(const Runtime& runtime) {
  return sha256(write_runtime(runtime));
}

std::string schedule_digest(const Plan& plan, const Topology& topology) {
  Schedule schedule = outline(plan);
  Sha256 hash;
  // The text is generated lane by lane, reusing memory, because a long schedule has hundreds of
  // megabytes and its text repeats each lane's list for every device of the lane. A few lanes are
  // generated in parallel.
  struct List {
    std::vector<Action> actions;
    std::string text;
  };
  constexpr std::size_t kFewPasses = 10'000;
  constexpr std::size_t kLanesSideBySide = 2;
  const bool is_long =
      plan.stages.size() * static_cast<std::size_t>(plan.num_micro_batches) > kFewPasses;
  std::array<List, kLanesSideBySide> lists;
  for (std::size_t first = 0; first < schedule.lanes.size(); first += lists.size()) {
    const std::size_t count = std::min(lists.size(), schedule.lanes.size() - first);
    parallel_for(count, is_long ? static_cast<int>(count) : 1, [&](std::size_t i) {
      Lane& lane = schedule.lanes[first + i];
      lane.actions.swap(lists[i].actions);
      generate_actions(plan, first + i, lane);
      write_text(lane.actions, lists[i].text);
      lane.actions.swap(lists[i].actions);
    });
    for (std::size_t i = 0; i < count; ++i) {
      // These are the lines of to_text(schedule).
      for (const DeviceIndex device : schedule.lanes[first + i].devices) {
        hash.add(topology.device(device).name + ":");
        hash.add(lists[i].text);
        hash.add("\n");
      }
    }
  }
  return hash.finish();
}

}  // namespace dapple::io
