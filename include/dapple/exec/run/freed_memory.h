// What becomes of memory that is given back.
#pragma once

namespace dapple::exec {

/// From now on the process keeps what it frees for its next tensors, instead of giving the system
/// pages that it asks for again a moment later, zeroed: a sixth of the time of a small transformer
/// block. For whoever computes with tensors, before the first one; of the whole process.
void keep_freed_memory();

}  // namespace dapple::exec
