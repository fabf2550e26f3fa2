// Messages between the processes of an MPI job, one device each.
//
// One thread of each process calls MPI, from its initialisation to its end, so MPI_THREAD_FUNNELED
// is enough; everyone else leaves messages with it and takes them from a mailbox. What comes in is
// always taken in at once, so that a message leaves whether or not anybody waits for it. A message
// is a frame that names it, its bytes in pieces of at most 1 GiB, and, where links are paced, word
// of the moment at which it is there. Every message is checked by a fingerprint.
//
// Pacing: the processes of a host share the buckets of the ports in memory. On several hosts they
// cannot, and links that are only played cannot be paced.
//
// Faults: each rank sends a sign of life to the next, round in a ring, with what it is at; who
// hears none for nine tenths of the timeout says so. A rank that fails tells all others when it
// failed, waits a moment for what they have to tell, and says why if nobody failed before it.
//
// Clocks: ranks on the host of rank 0 share its clock. That of any other host is compared once, at
// the start, by the quickest of several messages there and back: it is off by half of what that
// took at most, and may drift from then on.
//
// Requires: all ranks run the same binary on machines of the same byte order.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dapple/core/index.h"
#include "dapple/core/quantity.h"
#include "dapple/exec/last_words.h"
#include "dapple/exec/pacing.h"
#include "dapple/exec/transport.h"
#include "dapple/topology/topology.h"

namespace dapple {

struct MpiTransportOptions {
  std::optional<Pacing> pacing = {};                            // unpaced if not given
  std::chrono::nanoseconds timeout = std::chrono::seconds(30);  // of every wait
  LastWords* last_words = nullptr;  // learns what this device is at; must outlive the transport
  /// For tests of faults: may change what has come in, before it is checked.
  std::function<void(const MessageKey& key, Payload& payload)> on_arrival = {};
};

/// This process's part in the job. One at a time, and one in a process's life.
class MpiJob {
 public:
  /// Throws Error(Environment) where MPI cannot be used, was not there to build with, or some rank
  /// does not start it in time. What is left to do then is to end the process by std::_Exit().
  explicit MpiJob(std::chrono::nanoseconds timeout);
  /// Without finish() before: ends the job everywhere, with code 5.
  ~MpiJob();
  MpiJob(const MpiJob&) = delete;
  MpiJob& operator=(const MpiJob&) = delete;

  int rank() const;
  int size() const;
  bool is_on_one_host() const;

  /// The end of this rank's device: rank r is `devices[r]`. To be called once, by all ranks, with
  /// the same arguments. The topology must outlive it, and the job must. Throws Error(Usage) where
  /// links are to be paced on several hosts. Requires: as many devices as ranks.
  std::unique_ptr<Transport> join(const Topology& topology, const std::vector<DeviceIndex>& devices,
                                  const MpiTransportOptions& options);

  /// Waits until all ranks are here, at their end. Throws as a transport's barrier().
  void finish();

  /// Of a rank that has failed: tells all others, and whether it is the one to say why, the first
  /// to fail and of those at the same moment the lowest. Takes a fraction of a second for the one,
  /// and a few seconds for the others, who are meant to be ended by the launcher. What is left to
  /// do is to end the process without ending the job, by std::_Exit().
  bool is_first_to_fail() noexcept;

 private:
  class State;
  class End;
  std::unique_ptr<State> state_;
};

/// "rank 2 (node1:0)".
std::string rank_name(int rank, const std::string& device);

}  // namespace dapple
