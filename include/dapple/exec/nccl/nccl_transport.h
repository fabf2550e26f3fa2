// Messages and sums in the memory of GPUs by NCCL, of version 2.18 or later; everything else, and
// all that devices have to agree on first, by another transport, the one below. One process may
// have one device or several, each on a GPU of its own: NCCL knows no two on one.
//
// Communicators: one for each pair of devices and direction, one for each group that reduces. All
// are made with this end, with ids that pass below, and have been used when it is there: that takes
// seconds, and memory beside the inbox, as much as NCCL likes.
//
// No deadlock. NCCL's kernels occupy a GPU until their counterparts run, which may be behind other
// work there, in queues that streams share. So nothing is given to a GPU that has to wait long:
//  1. A message is sent once its bytes have been computed. The host then says so below, and a
//     thread of the receiver, which waits for that and for nothing else, takes it in at once,
//     whether or not anybody has asked for it. It is handed out once it has come.
//  2. A sum is begun once all members have said below that theirs is computed, and is over before
//     anything is done with it.
// So no kernel of NCCL waits for a computation, and no computation for a kernel of NCCL: of those
// that run, each has its counterparts running, or being begun by threads that wait for nothing. Any
// order of messages that goes through with a transport that takes in everything at once goes
// through here, however many streams share a queue. The price is that the host has to see each
// message, which takes tens of microseconds.
//
// Faults: what is waited for below is named by it in time. Another thread looks for asynchronous
// errors of all communicators; when there is one, or the job below is over, all of them are
// aborted, so that no GPU stays busy and nobody waits for it.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "dapple/core/index.h"
#include "dapple/core/quantity.h"
#include "dapple/exec/message/all_reduce.h"
#include "dapple/exec/message/transport.h"
#include "dapple/topology/topology.h"

namespace dapple::exec {

struct NcclTransportOptions {
  DeviceIndex here;
  /// With whom messages that lie on GPUs are exchanged, in either direction; each names the other.
  std::vector<DeviceIndex> peers;
  /// Of sums of what lies on GPUs, as reduction_sizes(); the same for each member of a group.
  ReductionSizes reductions;
  int gpu = 0;  // of those that this process may use
  /// GPU memory for messages that have come and are still in use, as message_memory().
  Bytes inbox;
  std::chrono::nanoseconds timeout = std::chrono::seconds(30);  // of every wait
};

bool is_built_with_nccl();

/// This device's end; to be made by all of them at the same time, before their GPUs have anything
/// else to do. The transport below, its own end there, must outlive it, as must the topology. It
/// ends once those of all peers, and of all members of its groups, do. Throws Error(Environment)
/// where the GPU has no room, and JobAborted. Requires: is_built_with_nccl().
std::unique_ptr<Transport> make_nccl_transport(Transport& below, const Topology& topology,
                                               const NcclTransportOptions& options);

}  // namespace dapple::exec
