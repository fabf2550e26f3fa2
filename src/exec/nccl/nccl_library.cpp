// Forwards the NCCL functions in use to the library, which is loaded at run time.
#include <fmt/format.h>
#include <nccl.h>

#include "dapple/cuda/shared_library.h"

namespace {

dapple::cuda::SharedLibrary& library() {
  static dapple::cuda::SharedLibrary loaded(fmt::format("libnccl.so.{}", NCCL_MAJOR),
                                            DAPPLE_NCCL_LIBRARY);
  return loaded;
}

}  // namespace

DAPPLE_FORWARD(library(), ncclResult_t, ncclGetUniqueId, (ncclUniqueId * drawn), (drawn))
DAPPLE_FORWARD(library(), ncclResult_t, ncclCommInitRankConfig,
               (ncclComm_t * created, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config),
               (created, ranks, id, rank, config))
DAPPLE_FORWARD(library(), ncclResult_t, ncclCommDestroy, (ncclComm_t of), (of))
DAPPLE_FORWARD(library(), ncclResult_t, ncclCommFinalize, (ncclComm_t of), (of))
DAPPLE_FORWARD(library(), ncclResult_t, ncclCommAbort, (ncclComm_t of), (of))
DAPPLE_FORWARD(library(), ncclResult_t, ncclCommGetAsyncError,
               (ncclComm_t of, ncclResult_t* result), (of, result))
DAPPLE_FORWARD(library(), const char*, ncclGetErrorString, (ncclResult_t result), (result))
DAPPLE_FORWARD(library(), ncclResult_t, ncclGroupStart, (), ())
DAPPLE_FORWARD(library(), ncclResult_t, ncclGroupEnd, (), ())
DAPPLE_FORWARD(library(), ncclResult_t, ncclSend,
               (const void* from, size_t count, ncclDataType_t type, int to, ncclComm_t by,
                cudaStream_t stream),
               (from, count, type, to, by, stream))
DAPPLE_FORWARD(library(), ncclResult_t, ncclRecv,
               (void* into, size_t count, ncclDataType_t type, int from, ncclComm_t by,
                cudaStream_t stream),
               (into, count, type, from, by, stream))
DAPPLE_FORWARD(library(), ncclResult_t, ncclAllReduce,
               (const void* from, void* into, size_t count, ncclDataType_t type, ncclRedOp_t sum,
                ncclComm_t by, cudaStream_t stream),
               (from, into, count, type, sum, by, stream))
DAPPLE_FORWARD(library(), ncclResult_t, ncclReduce,
               (const void* from, void* into, size_t count, ncclDataType_t type, ncclRedOp_t sum,
                int root, ncclComm_t by, cudaStream_t stream),
               (from, into, count, type, sum, root, by, stream))
DAPPLE_FORWARD(library(), ncclResult_t, ncclBroadcast,
               (const void* from, void* into, size_t count, ncclDataType_t type, int root,
                ncclComm_t by, cudaStream_t stream),
               (from, into, count, type, root, by, stream))
