// NCCL as far as dapple uses it, on the host: the members of a communicator are threads of one
// process, and a GPU's memory is the host's. Calls never block: two members' first message, and the
// first sum, are in progress until all of them have called, as the communicator says when asked.
// Streams wait for each other until they are all there.
//
// What would hang with NCCL hangs its streams until it is aborted; what it forbids is an error, or
// an exception where nobody may look at errors. So is what it may hang at, depending on when it is
// called: making a communicator while others are used, and destroying one that is not finalized.
#pragma once

#include <cstddef>

#include <cuda_runtime.h>

#define NCCL_VERSION(major, minor, patch) ((major)*10000 + (minor)*100 + (patch))
#define NCCL_VERSION_CODE NCCL_VERSION(2, 18, 0)
#define NCCL_UNIQUE_ID_BYTES 128
#define NCCL_CONFIG_INITIALIZER \
  { 1 }

struct ncclUniqueId {
  char internal[NCCL_UNIQUE_ID_BYTES];
};
struct ncclConfig_t {
  int blocking;
};
using ncclComm_t = struct ncclComm*;

enum ncclResult_t {
  ncclSuccess = 0,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7,
};
enum ncclDataType_t { ncclInt8, ncclFloat32 };
enum ncclRedOp_t { ncclSum };

const char* ncclGetErrorString(ncclResult_t result);
ncclResult_t ncclGetUniqueId(ncclUniqueId* id);
ncclResult_t ncclCommInitRankConfig(ncclComm_t* communicator, int size, ncclUniqueId id, int member,
                                    ncclConfig_t* config);
ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t* error);
ncclResult_t ncclCommFinalize(ncclComm_t communicator);
ncclResult_t ncclCommDestroy(ncclComm_t communicator);
ncclResult_t ncclCommAbort(ncclComm_t communicator);
ncclResult_t ncclGroupStart();
ncclResult_t ncclGroupEnd();
ncclResult_t ncclSend(const void* bytes, std::size_t count, ncclDataType_t type, int to,
                      ncclComm_t communicator, cudaStream_t stream);
ncclResult_t ncclRecv(void* bytes, std::size_t count, ncclDataType_t type, int from,
                      ncclComm_t communicator, cudaStream_t stream);
ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t operation, ncclComm_t communicator, cudaStream_t stream);
ncclResult_t ncclReduce(const void* from, void* to, std::size_t count, ncclDataType_t type,
                        ncclRedOp_t operation, int root, ncclComm_t communicator,
                        cudaStream_t stream);
ncclResult_t ncclBroadcast(const void* from, void* to, std::size_t count, ncclDataType_t type,
                           int root, ncclComm_t communicator, cudaStream_t stream);

namespace nccl_on_host {

/// From now on every communicator, there or to come, tells of an asynchronous error; or none does.
void break_down(bool is_broken);

/// Communicators that have been made and not yet ended.
int communicators();

}  // namespace nccl_on_host
