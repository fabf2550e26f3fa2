// Messages between the processes of a job, the ranks, one device each.
//
// What carries them, MPI (mpi_job.h) or TCP (tcp_job.h), is served by one thread of each process;
// everyone else leaves messages with it and takes them from a mailbox. What comes in is always
// taken in at once, so that a message leaves whether or not anybody waits for it. Where links are
// paced, word of the moment at which a message is there follows it. Every message is checked by a
// fingerprint.
//
// Pacing: the processes of a host share the buckets of the ports in memory. On several hosts they
// cannot, and links that are only played cannot be paced.
//
// Faults: each rank sends a sign of life to the next, round in a ring, with what it is at; who
// hears none for nine tenths of the timeout says so. Where a connection ends, the next in the ring
// says so at once, and any other one if that does not. A rank that fails tells all others when it
// failed, waits a moment for what they have to tell, and says why if nobody failed before it.
//
// Clocks: ranks on the host of rank 0 share its clock. That of any other host is compared once, at
// the start, by the quickest of several messages there and back: it is off by half of what that
// took at most, and may drift from then on.
//
// Requires: all ranks run the same binary on machines of the same byte order.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dapple/core/index.h"
#include "dapple/core/quantity.h"
#include "dapple/exec/message/pacing.h"
#include "dapple/exec/message/transport.h"
#include "dapple/exec/ranks/crash_record.h"
#include "dapple/topology/topology.h"

namespace dapple::exec {

class RankWire;
struct WireHandler;

struct RankTransportOptions {
  std::optional<Pacing> pacing = {};                            // unpaced if not given
  std::chrono::nanoseconds timeout = std::chrono::seconds(30);  // of every wait
  CrashRecord* crash_record = nullptr;  // learns what this device is at; must outlive the transport
  /// What all ranks must be given alike, as their plan; neighbours in the ring compare it.
  std::string agreement = {};
  /// For tests of faults: may change what has come in, before it is checked.
  std::function<void(const MessageKey& key, std::span<std::byte> bytes)> on_arrival = {};
};

/// This process's part in the job.
class RankJob {
 public:
  using MakeWire = std::function<std::unique_ptr<RankWire>(WireHandler handler)>;

  /// Throws what `make_wire` throws.
  explicit RankJob(const MakeWire& make_wire);
  /// Without finish() before: ends the job everywhere.
  ~RankJob();
  RankJob(const RankJob&) = delete;
  RankJob& operator=(const RankJob&) = delete;

  int rank() const;
  int size() const;
  bool is_on_one_host() const;

  /// The end of this rank's device: rank r is `devices[r]`. To be called once, by all ranks, with
  /// the same arguments. The topology must outlive it, and the job must. Throws Error(Usage) where
  /// links are to be paced on several hosts; where a neighbour's agreement is another one, the
  /// end's functions do. Requires: as many devices as ranks.
  std::unique_ptr<Transport> join(const Topology& topology, const std::vector<DeviceIndex>& devices,
                                  const RankTransportOptions& options);

  /// Waits until all ranks are here, at their end. Throws as a transport's barrier().
  void finish();

  /// Of a rank that has failed: tells all others, and whether it is the one to say why, the first
  /// to fail and of those at the same moment the lowest. Takes a fraction of a second for the one,
  /// and longer for the others, who are meant to be ended by the launcher. What is left to do is
  /// to end the process without ending the job, by std::_Exit().
  bool is_first_to_fail() noexcept;

 private:
  class State;
  class End;
  std::unique_ptr<State> state_;
};

/// "rank 2 (node1:0)".
std::string rank_name(int rank, const std::string& device);

}  // namespace dapple::exec
