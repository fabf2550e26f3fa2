// Allocator setting for processes that compute with tensors.
#pragma once

namespace dapple::exec {

/// From now on the process keeps freed memory for its next tensors, instead of returning pages to
/// the system that it requests again, zeroed, shortly afterwards; that costs a sixth of the time of
/// a small transformer block. Affects the whole process; to be called before the first tensor is
/// allocated.
void keep_freed_memory();

}  // namespace dapple::exec
