#include "dapple/cuda/shared_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "dapple/core/error.h"

namespace dapple::cuda {

void* SharedLibrary::load() const {
  if (void* handle = ::dlopen(name_.c_str(), RTLD_NOW | RTLD_LOCAL)) return handle;
  const std::string fault = ::dlerror();
  if (void* handle = ::dlopen(built_with_.c_str(), RTLD_NOW | RTLD_LOCAL)) return handle;
  throw Error(ErrorKind::Environment, name_,
              {{"", fmt::format("expected a library that can be loaded, got: {}", fault)}});
}

void* SharedLibrary::address_of(const char* name) {
  const std::lock_guard lock(mutex_);
  if (handle_ == nullptr) handle_ = load();
  if (void* address = ::dlsym(handle_, name)) return address;
  throw Error(ErrorKind::Environment, name_,
              {{name, "expected a function of the library, got a library without it"}});
}

}  // namespace dapple::cuda
