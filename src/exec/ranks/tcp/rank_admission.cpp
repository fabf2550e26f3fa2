#include "dapple/exec/ranks/tcp/rank_admission.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace dapple::exec {
namespace {

/// The time in which a caller has to prove its identity and to finish asking for the time.
constexpr std::chrono::nanoseconds kAdmissionTimeout = std::chrono::seconds(5);

}  // namespace

RankAdmission::RankAdmission(std::string secret, std::size_t most_unproven)
    : secret_(std::move(secret)), most_unproven_(most_unproven) {}

void RankAdmission::open(const ExpectedRanks& expected, const Answer& answer) {
  expected_ = expected;
  answer_ = answer;
}

RankAdmission::Caller RankAdmission::enter(std::int64_t now) {
  callers_[next_].deadline = now + kAdmissionTimeout.count();
  return next_++;
}

std::optional<RankAdmission::Caller> RankAdmission::next_to_evict() const {
  const auto unproven = std::count_if(callers_.begin(), callers_.end(), [](const auto& one) {
    return one.second.verdict == Verdict::Unproven;
  });
  return static_cast<std::size_t>(unproven) < most_unproven_ ? std::nullopt : oldest_unproven();
}

std::optional<RankAdmission::Caller> RankAdmission::oldest_unproven() const {
  const auto oldest = std::find_if(callers_.begin(), callers_.end(), [](const auto& one) {
    return one.second.verdict == Verdict::Unproven;
  });
  return oldest == callers_.end() ? std::nullopt : std::optional(oldest->first);
}

std::optional<std::int64_t> RankAdmission::next_deadline() const {
  return callers_.empty() ? std::nullopt : std::optional(callers_.begin()->second.deadline);
}

std::vector<RankAdmission::Caller> RankAdmission::overdue(std::int64_t now) const {
  std::vector<Caller> overdue;
  for (const auto& [caller, state] : callers_) {
    if (state.deadline > now) break;
    overdue.push_back(caller);
  }
  return overdue;
}

Verdict RankAdmission::verdict_on(const Hello& hello) const {
  if (hello.size != static_cast<Word>(expected_.size)) return Verdict::OtherSize;
  if (hello.rank < static_cast<Word>(expected_.first) || hello.rank >= hello.size ||
      hello.port == 0 || hello.port > kLastPort) {
    return Verdict::NoSuchRank;
  }
  return taken_.count(static_cast<int>(hello.rank)) > 0 ? Verdict::Taken : Verdict::Welcome;
}

ProvenAnswer RankAdmission::judge(Caller caller, const Transcript& transcript, const Proof& proof) {
  const Hello hello = hello_of(transcript.hello);
  const bool is_proven = is_same(proof, caller_proof(secret_, transcript));
  Answer answer{.verdict = is_proven ? verdict_on(hello) : Verdict::Unproven};
  if (is_proven) answer.size = answer_.size;
  CallerState& state = callers_.at(caller);
  state.verdict = answer.verdict;
  if (answer.verdict == Verdict::Welcome) {
    answer = answer_;
    state.rank = static_cast<int>(hello.rank);
    taken_.insert(state.rank);
  } else {
    turned_away_ = fmt::format("rank {} of a job of {}{}", hello.rank, hello.size,
                               is_proven ? "" : " with another secret or job number");
  }
  // This rank proves nothing to a caller that has not proven anything itself.
  return {.verdict = answer.verdict,
          .words = words_of(answer),
          .proof = is_proven ? answer_proof(secret_, transcript, answer) : Proof{}};
}

void RankAdmission::leave(Caller caller) {
  const auto found = callers_.find(caller);
  if (found == callers_.end()) return;
  if (found->second.verdict == Verdict::Welcome) taken_.erase(found->second.rank);
  callers_.erase(found);
}

int RankAdmission::admit(Caller caller) {
  const int rank = callers_.at(caller).rank;
  admitted_.insert(rank);
  callers_.erase(caller);
  return rank;
}

void RankAdmission::forget(int rank) {
  admitted_.erase(rank);
  taken_.erase(rank);
}

bool RankAdmission::is_complete() const {
  return static_cast<int>(admitted_.size()) == expected_.size - expected_.first;
}

int RankAdmission::missing() const {
  int rank = expected_.first;
  while (admitted_.count(rank) > 0) ++rank;
  return rank;
}

}  // namespace dapple::exec
