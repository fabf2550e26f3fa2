// Carries messages and reductions in GPU memory with NCCL 2.18 or later. Everything else, including
// all agreement between devices, uses another transport, the one below. A process may have one
// device or several, each on a GPU of its own, because NCCL does not support two ranks on one GPU.
//
// Communicators: there is one for each ordered pair of devices that exchange messages, and one for
// each group that reduces. All of them are created together with this endpoint, with identifiers
// sent through the transport below, and are used once before the endpoint is returned. This takes
// seconds, and NCCL takes an unspecified amount of GPU memory in addition to the inbox.
//
// Freedom from deadlock: NCCL's kernels occupy a GPU until their counterparts run, and these may be
// queued behind other work there, in hardware queues that streams share. Therefore nothing is
// enqueued on a GPU that has to wait long:
//  1. A message is sent once its bytes have been computed. The host then announces it through the
//     transport below, and a receiver thread that waits only for announcements receives it at once,
//     whether or not it has been requested. It is handed out once it has arrived.
//  2. A reduction, or a collective of ranks that share layers, starts once all members have
//  reported
//     through the transport below that their addends are computed, and completes before its result
//     is used, and before its host goes on.
// So no NCCL kernel waits for a computation, and no computation for an NCCL kernel: the
// counterparts of every running NCCL kernel are running too, or are being launched by threads that
// wait for nothing. Any message order that completes with a transport that receives everything
// eagerly also completes with this one, however many streams share a queue. The cost is that the
// host has to observe each message, which takes tens of microseconds.
//
// Faults: the transport below names a device that is waited for in vain once the timeout is over. A
// separate thread polls all communicators for asynchronous errors. If there is one, or if the job
// below has ended, all communicators are aborted, so that no GPU stays busy and no device waits for
// it.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "dapple/core/index.h"
#include "dapple/core/quantity.h"
#include "dapple/exec/message/message_memory.h"
#include "dapple/exec/message/transport.h"
#include "dapple/topology/topology.h"

namespace dapple::exec {

/// Options of one device's endpoint.
struct NcclTransportOptions {
  DeviceIndex here;
  /// Each of the peers must name the other, and the reductions are the same for each member of a
  /// group. The inbox is GPU memory for messages that have arrived and are still in use.
  DeviceConnections connections;
  /// The GPU, of those that this process may use.
  int gpu = 0;
  /// The timeout of every wait.
  std::chrono::nanoseconds timeout = std::chrono::seconds(30);
};

/// Whether the program was built with NCCL.
bool is_built_with_nccl();

/// Creates this device's endpoint. All devices call it at the same time, before their GPUs have any
/// other work. `below`, this device's endpoint of the transport below, and the topology must
/// outlive it. Its destructor waits for those of all peers and of all members of its groups. Throws
/// Error(Environment) if the GPU has too little memory, and JobAborted. Requires:
/// is_built_with_nccl().
std::unique_ptr<Transport> make_nccl_transport(Transport& below, const Topology& topology,
                                               const NcclTransportOptions& options);

}  // namespace dapple::exec
