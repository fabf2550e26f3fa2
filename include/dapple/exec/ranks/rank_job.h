// Messages between the processes of a job, its ranks, each with one device.
//
// MPI (mpi_job.h) or TCP (tcp_job.h) carries the messages. One thread of each process serves it;
// all other threads hand messages to that thread and take them from a mailbox. Incoming messages
// are always received eagerly, so a message leaves whether or not anyone waits for it. With paced
// links a notice with the arrival time follows each message. Every message is verified by a
// fingerprint.
//
// Pacing: the processes of one host share the token buckets of the ports in memory. Processes on
// several hosts cannot, so emulated links cannot be paced there.
//
// Faults: the ranks form a ring, in which each sends heartbeats with its current action to the
// next. A rank that receives no heartbeat for 0.9 x timeout reports its predecessor as dead. If a
// connection breaks, the next rank in the ring reports the loss at once, and every other rank does
// so after a delay if that one does not. A rank that fails sends the time of its failure to all
// others, waits a grace period for their failure notices, and reports the cause if no other rank
// failed earlier.
//
// Clocks: ranks on the host of rank 0 share its clock. The clock of every other host is compared
// once, at the start, by the fastest of several round trips: the error is at most half of that
// round-trip time, plus later drift.
//
// Requires: all ranks run the same binary on machines with the same byte order.
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

/// Options of one rank's transport.
struct RankTransportOptions {
  /// Links are not paced if this is empty.
  std::optional<Pacing> pacing = {};
  /// The timeout of every wait.
  std::chrono::nanoseconds timeout = std::chrono::seconds(30);
  /// Receives this device's name and current action, unless null; must outlive the transport.
  CrashRecord* crash_record = nullptr;
  /// Data that must be identical on all ranks, such as their plan; neighbours in the ring compare
  /// it.
  std::string agreement = {};
  /// For fault tests: may modify the bytes of a received message before they are verified.
  std::function<void(const MessageKey& key, std::span<std::byte> bytes)> on_arrival = {};
};

/// The clock of a rank, in nanoseconds. Its functions may be called concurrently.
struct RankClock {
  std::function<std::int64_t()> now;
  /// Returns once that time has come, at once if it has passed.
  std::function<void(std::int64_t moment)> sleep_until;
};

/// Returns the steady clock of this host.
RankClock host_clock();

/// This process's part in the job.
class RankJob {
 public:
  /// Creates the connection to the other ranks.
  using MakeWire = std::function<std::unique_ptr<RankWire>(WireHandler handler)>;

  /// Throws what `make_wire` throws. Waits for messages and at barriers time out by the
  /// host's clock; everything else goes by `clock`.
  explicit RankJob(const MakeWire& make_wire, RankClock clock = host_clock());
  /// Ends the job on all ranks if finish() has not been called.
  ~RankJob();
  RankJob(const RankJob&) = delete;
  RankJob& operator=(const RankJob&) = delete;

  int rank() const;
  int size() const;
  bool is_on_one_host() const;

  /// Returns the endpoint of this rank's device; the device of rank r is `devices[r]`. All ranks
  /// call it once, with the same arguments. The topology and the job must outlive the endpoint.
  /// Throws Error(Usage) if links are to be paced on several hosts. If a neighbour's agreement
  /// differs, the functions of the endpoint throw Error(Usage). Requires: there are as many devices
  /// as ranks.
  std::unique_ptr<Transport> join(const Topology& topology, const std::vector<DeviceIndex>& devices,
                                  const RankTransportOptions& options);

  /// Waits until all ranks have finished. Throws as Transport::barrier().
  void finish();

  /// Notifies all other ranks that this one has failed, and returns whether it is the one to report
  /// the cause: the first rank to fail, and the lowest of those that failed at the same time.
  /// Returns within a fraction of a second on that rank, and later on the others, which the
  /// launcher is expected to end meanwhile. The process must then be ended by std::_Exit(), without
  /// ending the job.
  bool is_first_to_fail() noexcept;

 private:
  class State;
  class Endpoint;
  std::unique_ptr<State> state_;
};

/// Returns a name such as "rank 2 (node1:0)".
std::string rank_name(int rank, const std::string& device);

}  // namespace dapple::exec
