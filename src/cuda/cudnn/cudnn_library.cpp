// The functions of cuDNN that are used, forwarded to the library.
#include <cudnn.h>
#include <fmt/format.h>

#include "dapple/cuda/shared_library.h"

namespace {

dapple::cuda::SharedLibrary& library() {
  static dapple::cuda::SharedLibrary loaded(fmt::format("libcudnn.so.{}", CUDNN_MAJOR),
                                            DAPPLE_CUDNN_LIBRARY);
  return loaded;
}

}  // namespace

DAPPLE_FORWARD(library(), size_t, cudnnGetVersion, (), ())
DAPPLE_FORWARD(library(), const char*, cudnnGetErrorString, (cudnnStatus_t status), (status))
DAPPLE_FORWARD(library(), cudnnStatus_t, cudnnCreate, (cudnnHandle_t * created), (created))
DAPPLE_FORWARD(library(), cudnnStatus_t, cudnnDestroy, (cudnnHandle_t handle), (handle))
DAPPLE_FORWARD(library(), cudnnStatus_t, cudnnSetStream,
               (cudnnHandle_t handle, cudaStream_t stream), (handle, stream))
DAPPLE_FORWARD(library(), cudnnStatus_t, cudnnBackendCreateDescriptor,
               (cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* created),
               (type, created))
DAPPLE_FORWARD(library(), cudnnStatus_t, cudnnBackendDestroyDescriptor,
               (cudnnBackendDescriptor_t descriptor), (descriptor))
DAPPLE_FORWARD(library(), cudnnStatus_t, cudnnBackendFinalize,
               (cudnnBackendDescriptor_t descriptor), (descriptor))
DAPPLE_FORWARD(library(), cudnnStatus_t, cudnnBackendSetAttribute,
               (cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t count, const void* values),
               (descriptor, name, type, count, values))
DAPPLE_FORWARD(library(), cudnnStatus_t, cudnnBackendGetAttribute,
               (cudnnBackendDescriptor_t const descriptor, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t most, int64_t* count, void* values),
               (descriptor, name, type, most, count, values))
DAPPLE_FORWARD(library(), cudnnStatus_t, cudnnBackendExecute,
               (cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                cudnnBackendDescriptor_t values),
               (handle, plan, values))
