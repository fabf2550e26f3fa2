// Decides about the callers of a rank that listens during the rendezvous, without sockets: who is
// admitted, who is turned away and why, who has to be dropped, and who is missing.
//
// A caller that has not proven its identity has a few seconds to do so. If the number of such
// callers reaches a limit, the oldest of them is dropped for a new one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "dapple/exec/ranks/tcp/handshake.h"
#include "dapple/exec/ranks/tcp/tcp_proof.h"

namespace dapple::exec {

/// The ranks that are expected to connect, from `first` to size - 1, and the number of the job that
/// they know.
struct ExpectedRanks {
  // The rank that they call.
  int rank = 0;
  int first = 0;
  int size = 1;
  Word known_job = 0;
  // Whether a pending peer sends nothing more until all are here. One that disconnects before may
  // connect again.
  bool is_silent = false;
};

/// The answer to a caller, as it is sent.
struct ProvenAnswer {
  Verdict verdict = Verdict::Unproven;
  AnswerWords words{};
  // Zeros for a caller that has not proven anything itself.
  Proof proof{};
};

/// The callers of one rank, numbered in the order in which they have called. Times are nanoseconds
/// of one clock.
class RankAdmission {
 public:
  using Caller = std::uint64_t;

  /// At most `most_unproven` callers may be unproven at a time.
  RankAdmission(std::string secret, std::size_t most_unproven);

  /// Says who is expected, and what a welcome caller is answered.
  void open(const ExpectedRanks& expected, const Answer& answer);
  const ExpectedRanks& expected() const { return expected_; }

  /// Takes in a new caller. The caller returned by next_to_evict() has to leave before.
  Caller enter(std::int64_t now);
  /// Returns the oldest unproven caller if no other one may enter before it leaves.
  std::optional<Caller> next_to_evict() const;
  /// Returns the oldest unproven caller, if there is any.
  std::optional<Caller> oldest_unproven() const;

  /// Returns the time by which the oldest caller must have been admitted, if there is any.
  std::optional<std::int64_t> next_deadline() const;
  /// Returns the callers whose time is over at `now`.
  std::vector<Caller> overdue(std::int64_t now) const;

  /// Returns the start of the transcript of a caller's handshake, which the caller's words and its
  /// challenge continue.
  Transcript new_transcript() const {
    return {.called = expected_.rank, .job = expected_.known_job};
  }
  /// Judges a caller by its proof. From now on it is proven unless the verdict says otherwise, and
  /// one that is welcome takes the place of its rank. Requires: the caller is here.
  ProvenAnswer judge(Caller caller, const Transcript& transcript, const Proof& proof);

  /// Takes in that a caller has gone or was turned away; has no effect if it is not here. Its rank
  /// may call again.
  void leave(Caller caller);
  /// Admits a welcome caller, and returns its rank.
  int admit(Caller caller);
  /// Takes in that an admitted rank has gone. It may call again.
  void forget(int rank);

  /// Whether all expected ranks have been admitted.
  bool is_complete() const;
  /// Returns the lowest missing rank. Requires: not complete.
  int missing() const;
  /// Describes the last caller that was turned away, such as "rank 1 of a job of 3"; empty if there
  /// was none.
  const std::string& turned_away() const { return turned_away_; }

 private:
  struct CallerState {
    std::int64_t deadline = 0;
    Verdict verdict = Verdict::Unproven;
    int rank = 0;
  };

  Verdict verdict_on(const Hello& hello) const;

  const std::string secret_;
  const std::size_t most_unproven_;
  ExpectedRanks expected_;
  Answer answer_;
  Caller next_ = 0;
  std::map<Caller, CallerState> callers_;
  // The ranks of welcome callers and of admitted ones.
  std::set<int> taken_;
  std::set<int> admitted_;
  std::string turned_away_;
};

}  // namespace dapple::exec
